/* SPDX-License-Identifier: Apache-2.0 */
/* Options that may be given more than once, and where options end. */
#include "config.h"

#include "words.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether the word is --name; *value is what follows "=", or NULL. */
static bool is_option(const char *word, const char *name, const char **value)
{
    size_t length = strlen(name);

    if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, length) != 0)
        return false;
    word += 2 + length;
    *value = *word == '=' ? word + 1 : NULL;
    return *word == '\0' || *word == '=';
}

int cli_words(int argc, char **argv, const char *name, const char **list,
              int max)
{
    int n = 0;

    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *value;

        if (!is_option(argv[i], name, &value))
            continue;
        if (value == NULL && ++i < argc)
            value = argv[i];
        if (value == NULL)
            break;
        if (n == max)
            return -1;
        list[n++] = value;
    }
    return n;
}

int cli_first_word(int argc, char **argv, const char *const *with_value)
{
    int i = 1;

    while (i < argc && argv[i][0] == '-' && argv[i][1] != '\0') {
        const char *value;
        bool takes = false;

        if (strcmp(argv[i], "--") == 0)
            return i + 1 < argc ? i + 1 : argc;
        for (size_t k = 0; with_value[k] != NULL; k++)
            takes = takes || (is_option(argv[i], with_value[k], &value) &&
                              value == NULL);
        i += takes ? 2 : 1;
    }
    return i < argc ? i : argc;
}
