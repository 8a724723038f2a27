# SPDX-License-Identifier: Apache-2.0
# The Lua module and `gyre run`; built when configure found Lua (HAVE_LUA).

lua_module_sources = \
	lua/array.c \
	lua/ask.c \
	lua/care.c \
	lua/context.c \
	lua/help.c \
	lua/json.c \
	lua/module.c \
	lua/module.h \
	lua/options.c \
	lua/options.h \
	lua/near.c \
	lua/plan.c \
	lua/plan_build.c \
	lua/plan_object.c \
	lua/plan_object.h \
	lua/plan_prove.c \
	lua/plan_text.c \
	lua/plugins.c \
	lua/probe.c \
	lua/progress.c \
	lua/round.c \
	lua/spec.c \
	lua/store.c \
	lua/trace.c \
	lua/util.c \
	lua/weigh.c

if HAVE_LUA
# The command links these objects, and `require "gyre"` opens the same in a
# shared module.  The module leaves Lua's own symbols to the interpreter: a
# second copy of Lua in one process would not know the first one's states.
# Bars are drawn by the command's progress.c, which the module compiles for
# itself.
lua_cppflags = $(AM_CPPFLAGS) -I$(top_srcdir)/sdk/cli
noinst_LTLIBRARIES += lua/libgyrelua.la
lua_libgyrelua_la_SOURCES = $(lua_module_sources) lua/run.c lua/run.h
lua_libgyrelua_la_CPPFLAGS = $(lua_cppflags)
lua_libgyrelua_la_CFLAGS = $(AM_CFLAGS) $(LUA_CFLAGS) $(JANSSON_CFLAGS)

luamodule_LTLIBRARIES = lua/gyre.la
lua_gyre_la_SOURCES = $(lua_module_sources) sdk/cli/amount.c \
	sdk/cli/amount.h sdk/cli/progress.c sdk/cli/progress.h
lua_gyre_la_CPPFLAGS = $(lua_cppflags)
lua_gyre_la_CFLAGS = $(AM_CFLAGS) $(LUA_CFLAGS) $(JANSSON_CFLAGS)
lua_gyre_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared
lua_gyre_la_LIBADD = sdk/libgyre.la $(JANSSON_LIBS)

# The manual page and the annotations for editors come from one table.
man_MANS = sdk/man/gyre-lua.3
luametadir = $(datadir)/gyre/lua
luameta_DATA = lua/gyre.meta.lua
CLEANFILES += $(man_MANS) $(luameta_DATA)

lua_document = sdk/cli/gyre$(EXEEXT) run $(top_srcdir)/lua/document.lua
$(man_MANS) $(luameta_DATA): sdk/cli/gyre$(EXEEXT) lua/api.lua lua/document.lua

sdk/man/gyre-lua.3:
	$(AM_V_GEN)$(MKDIR_P) sdk/man && $(lua_document) man >$@.new && \
		mv $@.new $@
lua/gyre.meta.lua:
	$(AM_V_GEN)$(MKDIR_P) lua && $(lua_document) meta >$@.new && \
		mv $@.new $@
endif

# Where the stock interpreter looks; --with-lua-module-dir in time.
luamoduledir = $(libdir)/lua/5.4
gyre_include_HEADERS += sdk/include/gyre/lua.h

dist_man_MANS += sdk/man/gyre-run.1 sdk/man/gyre-store.1
EXTRA_DIST += \
	lua/api.lua \
	lua/document.lua \
	tests/unit/lua/api.lua \
	tests/unit/lua/array.lua \
	tests/unit/lua/closing.lua \
	tests/unit/lua/json.lua \
	tests/unit/lua/module.lua \
	tests/unit/lua/near.lua \
	tests/unit/lua/plan.lua \
	tests/unit/lua/store.lua \
	tests/unit/lua/tap.lua
