# SPDX-License-Identifier: Apache-2.0
# The gyre command; one cmd_<name>.c per sub-command, listed in commands.h.

# Apart from main.c, so that unit tests can link it.
noinst_LTLIBRARIES += sdk/cli/libcli.la
sdk_cli_libcli_la_SOURCES = \
	sdk/cli/cli.c \
	sdk/cli/cli.h \
	sdk/cli/progress.c \
	sdk/cli/progress.h
sdk_cli_libcli_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
sdk_cli_libcli_la_LIBADD = $(JANSSON_LIBS)

bin_PROGRAMS += sdk/cli/gyre
sdk_cli_gyre_SOURCES = \
	sdk/cli/cmd_plugins.c \
	sdk/cli/cmd_version.c \
	sdk/cli/commands.h \
	sdk/cli/main.c
sdk_cli_gyre_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
sdk_cli_gyre_LDADD = sdk/cli/libcli.la sdk/libgyre.la $(JANSSON_LIBS) -lm
