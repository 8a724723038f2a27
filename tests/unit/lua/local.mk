# SPDX-License-Identifier: Apache-2.0
if HAVE_LUA
check_PROGRAMS += tests/unit/lua/test_memory
tests_unit_lua_test_memory_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/lua $(LUA_CFLAGS)
tests_unit_lua_test_memory_LDADD = lua/libgyrelua.la sdk/cli/libcli.la $(LDADD) \
	$(LUA_LIBS) $(JANSSON_LIBS)
slow_tests += tests/unit/lua/test_memory
endif
