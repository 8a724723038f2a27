/* SPDX-License-Identifier: Apache-2.0 */
/* The script that runs the ranks of `gyre bench attention`, and its end. */
#include "config.h"

#include "bench_attention.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A signal ends the script, which then removes what it made; so do we. */
static volatile sig_atomic_t child;

static void pass_on(int signal)
{
    (void)signal;
    if (child > 0)
        kill(child, SIGTERM);
}

static void start(char *const *argv)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    /* Standard output is for the result alone. */
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 ||
        dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        _exit(CLI_FAULT);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    execv(argv[0], argv);
    fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    _exit(CLI_FAULT);
}

int bench_attention_spawn(const attention_options *opt, char *const *argv)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    enum { SIGNALS = sizeof(signals) / sizeof(*signals) };
    struct sigaction action = {.sa_handler = pass_on}, before[SIGNALS];
    int state = 0;

    for (size_t i = 0; i < SIGNALS; i++)
        sigaction(signals[i], &action, &before[i]);
    pid_t pid = fork();
    if (pid == 0)
        start(argv);
    child = pid;
    while (pid > 0 && waitpid(pid, &state, 0) < 0 && errno == EINTR)
        ;
    child = 0;
    for (size_t i = 0; i < SIGNALS; i++)
        sigaction(signals[i], &before[i], NULL);
    if (pid > 0 && WIFEXITED(state) && WEXITSTATUS(state) == 0)
        return CLI_GOOD;
    if (pid > 0 && WIFEXITED(state) && WEXITSTATUS(state) == CLI_NOTHING)
        return cli_fail(opt->cli, CLI_NOTHING,
                        "ranks in network namespaces cannot be run here; the "
                        "reason is above");
    return cli_fail(opt->cli, CLI_FAULT,
                    "the ranks did not end well (status %d)",
                    WIFEXITED(state) ? WEXITSTATUS(state) : -1);
}
