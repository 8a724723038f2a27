# SPDX-License-Identifier: Apache-2.0
# make check: unit tests (cmocka) and scripts, all of them TAP.
#
#     tests/unit/<room>/local.mk    check_PROGRAMS += tests/unit/<room>/test_x
#     cli_tests, fault_tests        tests/cli/x.test, tests/fault/x.test
#     peer_tests                    tests/peer/x.test, against others' code
#     slow_tests                    programs that check-valgrind leaves out
#
# `make check-unit` runs the unit tests alone, `make check-valgrind` all but the
# slow ones under valgrind's memcheck (VALGRIND_FLAGS adds to its flags),
# `make check-install` a trial installation, and `make check-dist` a distcheck
# that builds everything and runs what is short: what it is for is the tarball.

cli_tests += \
	tests/cli/bench.test \
	tests/cli/bench_attention.test \
	tests/cli/bench_near.test \
	tests/cli/gpt.test \
	tests/cli/same.test \
	tests/cli/gyre.test \
	tests/cli/lua.test \
	tests/cli/near.test \
	tests/cli/netns.test \
	tests/cli/plan.test \
	tests/cli/plugins.test \
	tests/cli/ranks.test \
	tests/cli/ranks_gpt.test \
	tests/cli/ranks_mpi.test \
	tests/cli/run.test \
	tests/cli/store.test \
	tests/cli/version.test

# Those that take longest come first, so that two of them do not end alone.
if HAVE_CMOCKA
include tests/fault/local.mk
include tests/unit/base/local.mk
include tests/unit/trace/local.mk
include tests/unit/registry/local.mk
include tests/unit/io/local.mk
include tests/unit/device/local.mk
include tests/unit/store/local.mk
include tests/unit/transport/local.mk
include tests/unit/plan/local.mk
include tests/unit/attention/local.mk
include tests/unit/cli/local.mk
include tests/unit/lua/local.mk
include tests/unit/profiler/local.mk
endif
include tests/fuzz/local.mk

include tests/peer/local.mk

# Every program without a link line of its own is a unit test.
LDADD = sdk/libgyre_core.la $(CMOCKA_LIBS)
AM_CFLAGS += $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)

tree_tests = tests/arrows tests/headers tests/manual tests/symbols
EXTRA_DIST += tests/README.md tests/gpu/run tests/install.test tests/needs tests/run \
	tests/tap.sh
EXTRA_DIST += tests/unit/codecs.h tests/unit/codecs_cases.h tests/unit/comma.h \
	tests/unit/tap tests/unit/unit.h
EXTRA_DIST += $(tree_tests) $(cli_tests) $(fault_tests) $(peer_tests)

TESTS += $(check_PROGRAMS) $(tree_tests) $(cli_tests) $(fault_tests) \
	$(peer_tests)
TEST_EXTENSIONS = .test
gyre_tap = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
LOG_DRIVER = $(gyre_tap)
TEST_LOG_DRIVER = $(gyre_tap)
TEST_LOG_COMPILER = $(SHELL)
LOG_COMPILER = $(SHELL) $(top_srcdir)/tests/unit/tap

# A tool of the shell tests, no test itself.
EXTRA_PROGRAMS += tests/json_get
tests_json_get_LDADD = $(JANSSON_LIBS)
check_DATA += tests/json_get$(EXEEXT)
CLEANFILES += $(EXTRA_PROGRAMS)

# Modules of the build tree are found before installed ones.
gyre_built = $(abs_top_builddir)/plugins
gyre_test_plugins = $(gyre_built)/optimizers/.libs:$(gyre_built)/compressors/.libs:$(gyre_built)/devices/.libs:$(gyre_built)/schedules/.libs:$(gyre_built)/transports/.libs

AM_TESTS_ENVIRONMENT = \
	CMOCKA_MESSAGE_OUTPUT=TAP; export CMOCKA_MESSAGE_OUTPUT; \
	GYRE_PLUGIN_PATH='$(gyre_test_plugins)'; export GYRE_PLUGIN_PATH; \
	GYRE='$(abs_top_builddir)/sdk/cli/gyre'; export GYRE; \
	GYRE_TOP_SRC='$(abs_top_srcdir)'; export GYRE_TOP_SRC; \
	GYRE_TOP_BUILD='$(abs_top_builddir)'; export GYRE_TOP_BUILD; \
	GYRE_BIT_CFLAGS='$(GYRE_BIT_CFLAGS)'; export GYRE_BIT_CFLAGS; \
	CC='$(CC)'; export CC; \
	SANITIZER='$(GYRE_SANITIZER_CFLAGS)'; export SANITIZER;

.PHONY: check-unit check-valgrind check-install check-dist

# Each step is a make of its own: side by side, two would build one object.
check-unit: all
	$(MAKE) $(AM_MAKEFLAGS) $(check_PROGRAMS)
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(check_PROGRAMS)'

check-install: all
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS=tests/install.test

dist_tests = $(filter-out $(slow_tests),$(check_PROGRAMS)) $(tree_tests) \
	tests/cli/gyre.test tests/cli/lua.test tests/cli/plugins.test \
	tests/cli/version.test

check-dist:
	$(MAKE) $(AM_MAKEFLAGS) distcheck TESTS='$(dist_tests)' \
	  DISTCHECK_CONFIGURE_FLAGS="CFLAGS='-O1 -g0'"

valgrind_tests = $(filter-out $(slow_tests),$(check_PROGRAMS))
EXTRA_DIST += tests/valgrind.supp

check-valgrind: all
	@test '$(VALGRIND)' != no || { \
	  echo 'check-valgrind: install valgrind, then configure again' >&2; \
	  exit 1; }
	@test -z '$(GYRE_SANITIZER_CFLAGS)' || { \
	  echo 'check-valgrind: not in a sanitizer build' >&2; exit 1; }
	$(MAKE) $(AM_MAKEFLAGS) $(check_PROGRAMS)
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(valgrind_tests)' \
	  LOG_COMPILER='$(LOG_COMPILER) $(LIBTOOL) --silent --mode=execute env GYRE_VALGRIND=1 \
	  $(VALGRIND) --quiet --error-exitcode=9 --leak-check=full \
	  --errors-for-leak-kinds=definite,indirect \
	  --suppressions=$(abs_top_srcdir)/tests/valgrind.supp $(VALGRIND_FLAGS)'
