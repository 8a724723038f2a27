# SPDX-License-Identifier: Apache-2.0
# make check: unit tests (cmocka) and scripts, all of them TAP.
#
#     tests/unit/<room>/local.mk    check_PROGRAMS += tests/unit/<room>/test_x
#     cli_tests, fault_tests        tests/cli/x.test, tests/fault/x.test
#     slow_tests                    programs that check-valgrind leaves out
#
# `make check-valgrind` runs the unit tests but those under valgrind's memcheck;
# VALGRIND_FLAGS adds to its flags.

slow_tests =
cli_tests =
fault_tests =

if HAVE_CMOCKA
include tests/unit/base/local.mk
include tests/unit/trace/local.mk
include tests/unit/registry/local.mk
include tests/unit/io/local.mk
include tests/unit/device/local.mk
include tests/unit/store/local.mk
endif
include tests/fuzz/local.mk

# Every program without a link line of its own is a unit test.
LDADD = sdk/libgyre_core.la $(CMOCKA_LIBS)
AM_CFLAGS += $(CMOCKA_CFLAGS)

tree_tests = tests/arrows tests/headers tests/symbols
EXTRA_DIST += tests/unit/unit.h $(tree_tests) $(cli_tests) $(fault_tests)

TESTS += $(check_PROGRAMS) $(tree_tests) $(cli_tests) $(fault_tests)
TEST_EXTENSIONS = .test
gyre_tap = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
LOG_DRIVER = $(gyre_tap)
TEST_LOG_DRIVER = $(gyre_tap)
TEST_LOG_COMPILER = $(SHELL)

# Modules of the build tree are found before installed ones.
gyre_test_plugins = $(abs_top_builddir)/plugins/optimizers/.libs

AM_TESTS_ENVIRONMENT = \
	CMOCKA_MESSAGE_OUTPUT=TAP; export CMOCKA_MESSAGE_OUTPUT; \
	GYRE_PLUGIN_PATH='$(gyre_test_plugins)'; export GYRE_PLUGIN_PATH; \
	GYRE='$(abs_top_builddir)/sdk/cli/gyre'; export GYRE; \
	GYRE_TOP_SRC='$(abs_top_srcdir)'; export GYRE_TOP_SRC; \
	GYRE_TOP_BUILD='$(abs_top_builddir)'; export GYRE_TOP_BUILD; \
	GYRE_BIT_CFLAGS='$(GYRE_BIT_CFLAGS)'; export GYRE_BIT_CFLAGS; \
	CC='$(CC)'; export CC; \
	SANITIZER='$(GYRE_SANITIZER_CFLAGS)'; export SANITIZER;

valgrind_tests = $(filter-out $(slow_tests),$(check_PROGRAMS))
EXTRA_DIST += tests/valgrind.supp

.PHONY: check-valgrind
check-valgrind: all $(check_PROGRAMS)
	@test '$(VALGRIND)' != no || { \
	  echo 'check-valgrind: install valgrind, then configure again' >&2; \
	  exit 1; }
	@test -z '$(GYRE_SANITIZER_CFLAGS)' || { \
	  echo 'check-valgrind: not in a sanitizer build' >&2; exit 1; }
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(valgrind_tests)' \
	  TEST_SUITE_LOG=test-suite-valgrind.log \
	  LOG_COMPILER='$(LIBTOOL) --silent --mode=execute env GYRE_VALGRIND=1 \
	  $(VALGRIND) --quiet --error-exitcode=9 --leak-check=full \
	  --errors-for-leak-kinds=definite,indirect \
	  --suppressions=$(abs_top_srcdir)/tests/valgrind.supp $(VALGRIND_FLAGS)'
