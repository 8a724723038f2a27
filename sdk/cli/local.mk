# SPDX-License-Identifier: Apache-2.0
# The gyre command; one cmd_<name>.c per sub-command, listed in commands.h.

# Apart from main.c, so that unit tests can link it.
noinst_LTLIBRARIES += sdk/cli/libcli.la
sdk_cli_libcli_la_SOURCES = \
	sdk/cli/amount.c \
	sdk/cli/amount.h \
	sdk/cli/cli.c \
	sdk/cli/cli.h \
	sdk/cli/group.c \
	sdk/cli/progress.c \
	sdk/cli/progress.h \
	sdk/cli/words.c \
	sdk/cli/words.h
sdk_cli_libcli_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
sdk_cli_libcli_la_LIBADD = $(JANSSON_LIBS)

bin_PROGRAMS += sdk/cli/gyre
sdk_cli_gyre_SOURCES = \
	sdk/cli/cmd_plan.c \
	sdk/cli/cmd_plan.h \
	sdk/cli/cmd_plan_ask.c \
	sdk/cli/cmd_plan_draw.c \
	sdk/cli/cmd_plan_file.c \
	sdk/cli/cmd_plan_prove.c \
	sdk/cli/cmd_plan_run.c \
	sdk/cli/cmd_plan_svg.c \
	sdk/cli/cmd_plugins.c \
	sdk/cli/cmd_run.c \
	sdk/cli/cmd_store.c \
	sdk/cli/cmd_store.h \
	sdk/cli/cmd_store_move.c \
	sdk/cli/cmd_store_weigh.c \
	sdk/cli/cmd_version.c \
	sdk/cli/commands.h \
	sdk/cli/main.c
sdk_cli_gyre_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/sdk/cli \
	-I$(top_srcdir)/lua
sdk_cli_gyre_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
sdk_cli_gyre_LDADD = $(gyre_lua) sdk/cli/libcli.la sdk/libgyre.la \
	$(JANSSON_LIBS) -lm

# Scripts open Lua modules, which find Lua's functions in the command; and the
# whole of Lua, not what the command itself happens to use.
gyre_lua =
if HAVE_LUA
gyre_lua += lua/libgyrelua.la $(LUA_LIBS)
endif
