/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring places: what a slow one gets, what is refused, and that nothing
 * stays.  How fast a place is, is asserted nowhere; a disk held to a 500th of
 * another's rate must get the smaller weight.
 */
#include "config.h"

#include "fault/slow.h"

#include "base/base.h"

#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, RATE = MIB, DISK_BYTES = 24 * MIB };

static const uint64_t short_time = 60000000;

static void check_speeds(const gyre_device_speed *s, size_t count)
{
    double sum = 0;

    for (size_t d = 0; d < count; d++) {
        assert_true(s[d].read_rate > 0 && s[d].rate > 0 && s[d].weight > 0);
        sum += s[d].weight;
    }
    assert_true(sum > (double)count * 0.999 && sum < (double)count * 1.001);
}

/* ---- folders ---------------------------------------------------------- */

static void test_folders(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_device_speed speeds[4];
    gyre_error error = {GYRE_OK, ""};
    fault_place place;

    (void)state;
    for (int disk = 0; disk < 2; disk++) {
        const char *devices[4];

        fault_place_make(&place, 3, disk);
        for (size_t d = 0; d < 4; d++) /* one of them twice */
            devices[d] = place.device[d % 3];
        fault_ok(gyre_store_measure(context, devices, 4, 4 * MIB, short_time,
                                    speeds, &error),
                 &error);
        check_speeds(speeds, 4);
        for (size_t d = 0; d < 4; d++) {
            assert_true(speeds[d].write_rate > 0);
            /* 16 blocks to write at most, and both other phases. */
            assert_true(speeds[d].bytes >= 3 * 262144);
            assert_int_equal(fault_entries(devices[d]), 0);
        }
        if (!disk)
            assert_int_equal(speeds[0].direct, 0);
        fault_place_remove(&place);
    }
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

static void test_refused(void **state)
{
    unit_memory memory = {0};
    gyre_context *context = unit_context(&memory);
    gyre_device_speed speeds[2] = {{.rate = -1}, {.rate = -1}};
    gyre_error error = {GYRE_OK, ""};
    fault_place place;
    const char *devices[2];

    (void)state;
    fault_place_make(&place, 1, false);
    devices[0] = place.device[0];
    devices[1] = "/nowhere/at/all";
    assert_int_equal(gyre_store_measure(context, devices, 2, MIB, short_time,
                                        speeds, &error),
                     GYRE_NOT_FOUND);
    unit_assert_text(&error, "/nowhere/at/all");
    devices[1] = NULL;
    assert_int_equal(gyre_store_measure(context, devices, 2, MIB, short_time,
                                        speeds, &error),
                     GYRE_INVALID);
    unit_assert_text(&error, "device 1");
    assert_int_equal(gyre_store_measure(context, devices, 0, MIB, short_time,
                                        speeds, &error),
                     GYRE_RANGE);
    assert_int_equal(
        gyre_store_measure(context, NULL, 1, MIB, short_time, speeds, &error),
        GYRE_INVALID);
    /* Less than it takes. */
    assert_int_equal(gyre_store_measure(context, devices, 1, 1000, short_time,
                                        speeds, &error),
                     GYRE_NO_SPACE);
    unit_assert_text(&error, place.device[0]);
    assert_true(speeds[0].rate == -1 && speeds[1].rate == -1);
    assert_int_equal(fault_entries(place.device[0]), 0);
    fault_place_remove(&place);
    gyre_context_destroy(context);
    unit_memory_check(&memory);
}

/* ---- a slow disk ------------------------------------------------------ */

/* The folder with a file system on the disk, gone with this process. */
static bool mount_disk(const slow_disk *s, const char *folder)
{
    char command[256];

    snprintf(command, sizeof(command), "mkfs.ext4 -q -F %s >/dev/null 2>&1",
             s->disk);
    return system(command) == 0 && mount(s->disk, folder, "ext4", 0, NULL) == 0;
}

/* In a child, which joins the group: 0 good, else the line. */
static int measure_slow(const slow_disk *s, const char *fast, const char *slow)
{
    const char *devices[] = {slow, fast};
    gyre_device_speed speeds[2];
    gyre_context *context = NULL;
    gyre_error error = {GYRE_OK, ""};

    if (!slow_disk_join(s))
        return __LINE__;
    if (gyre_context_create(NULL, &context, &error) != GYRE_OK)
        return __LINE__;
    if (gyre_store_measure(context, devices, 2, 2 * MIB, short_time, speeds,
                           &error) != GYRE_OK) {
        printf("# %s\n", error.text);
        return __LINE__;
    }
    gyre_context_destroy(context);
    printf("# %s: %.3g MB/s, weight %.3g; %s: %.3g MB/s, weight %.3g\n", slow,
           speeds[0].rate / 1e6, speeds[0].weight, fast, speeds[1].rate / 1e6,
           speeds[1].weight);
    fflush(stdout);
    return speeds[0].weight < speeds[1].weight ? 0 : __LINE__;
}

static void run_child(const slow_disk *s, const char *fast, const char *slow)
{
    int status;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(measure_slow(s, fast, slow) % 255);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("measuring %s: line %d or so", slow, WEXITSTATUS(status));
}

static void test_slow_disk(void **state)
{
    fault_place place;
    slow_disk slow, fast;

    (void)state;
    fault_place_make(&place, 2, true);
    slow_disk_make(&slow, place.root, DISK_BYTES);
    slow_disk_make(&fast, place.root, DISK_BYTES);
    slow_disk_limit(&slow, RATE, RATE);
    if (slow.group[0] == '\0') {
        fault_skip("no root, loop device, or group to slow it down");
    } else {
        /* As block files, and as folders. */
        run_child(&slow, fast.disk, slow.disk);
        if (mount_disk(&slow, place.device[0])) {
            if (mount_disk(&fast, place.device[1])) {
                run_child(&slow, place.device[1], place.device[0]);
                assert_int_equal(umount(place.device[1]), 0);
            }
            assert_int_equal(umount(place.device[0]), 0);
        } else {
            fault_skip("no file system on a loop device");
        }
    }
    slow_disk_remove(&fast);
    slow_disk_remove(&slow);
    fault_place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_slow_disk),
    };

    return cmocka_run_group_tests_name("measure", tests, NULL, NULL);
}
