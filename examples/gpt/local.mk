# SPDX-License-Identifier: Apache-2.0
# The example gpt: a Lua module and its tests. Needs CBLAS (any), Lua 5.4 and,
# for the tests, cmocka; Makefile fragment for a non-recursive automake.
#
# -fopenmp-simd lets the reductions in gpt_layers.c become vector code (no
# run-time library); -ffp-contract=off gives the element-wise parts the same
# bits on every x86-64, whichever version of a function the loader picks.

gpt_model_sources = \
	examples/gpt/gpt.c \
	examples/gpt/gpt.h \
	examples/gpt/gpt_attention.c \
	examples/gpt/gpt_backward.c \
	examples/gpt/gpt_forward.c \
	examples/gpt/gpt_internal.h \
	examples/gpt/gpt_layers.c \
	examples/gpt/gpt_math.h \
	examples/gpt/gpt_memory.c \
	examples/gpt/gpt_pool.c \
	examples/gpt/gpt_random.c \
	examples/gpt/gpt_sample.c
gpt_text_sources = \
	examples/gpt/gpt_ngram.c \
	examples/gpt/gpt_text.c \
	examples/gpt/gpt_text.h
gpt_flags = -O2 -fopenmp-simd -ffp-contract=off -fno-math-errno \
	-fno-trapping-math -fvisibility=hidden -pthread
gpt_include = -I$(srcdir)/examples/gpt

pkglib_LTLIBRARIES += gpt.la
gpt_la_SOURCES = $(gpt_model_sources) $(gpt_text_sources) \
	examples/gpt/array.h \
	examples/gpt/gpt_lua.c \
	examples/gpt/gpt_lua.h \
	examples/gpt/gpt_lua_text.c
gpt_la_CPPFLAGS = $(AM_CPPFLAGS) $(gpt_include) $(LUA_CFLAGS)
gpt_la_CFLAGS = $(AM_CFLAGS) $(gpt_flags)
gpt_la_LDFLAGS = -module -avoid-version -shared -pthread
gpt_la_LIBADD = $(CBLAS_LIBS) -lm

noinst_LTLIBRARIES += libgptmodel.la
libgptmodel_la_SOURCES = $(gpt_model_sources) $(gpt_text_sources)
libgptmodel_la_CPPFLAGS = $(AM_CPPFLAGS) $(gpt_include)
libgptmodel_la_CFLAGS = $(AM_CFLAGS) $(gpt_flags)
libgptmodel_la_LIBADD = $(CBLAS_LIBS) -lm

check_PROGRAMS += test_gpt test_text gpt_dump
test_gpt_SOURCES = tests/unit/gpt/test_gpt.c
test_gpt_CPPFLAGS = $(AM_CPPFLAGS) $(gpt_include)
test_gpt_LDADD = libgptmodel.la $(CMOCKA_LIBS)
test_text_SOURCES = tests/unit/gpt/test_text.c
test_text_CPPFLAGS = $(AM_CPPFLAGS) $(gpt_include)
test_text_LDADD = libgptmodel.la $(CMOCKA_LIBS)
gpt_dump_SOURCES = tests/peer/gpt_dump.c
gpt_dump_CPPFLAGS = $(AM_CPPFLAGS) $(gpt_include)
gpt_dump_LDADD = libgptmodel.la
EXTRA_DIST += tests/peer/gpt_torch.py
