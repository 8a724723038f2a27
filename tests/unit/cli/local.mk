# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/unit/cli/test_cli
tests_unit_cli_test_cli_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/sdk/cli
tests_unit_cli_test_cli_LDADD = sdk/cli/libcli.la $(LDADD) $(JANSSON_LIBS)
