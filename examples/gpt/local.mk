# SPDX-License-Identifier: Apache-2.0
# The example gpt: a Lua module and its tests.  Needs CBLAS (any) and Lua 5.4.
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
gpt_include = -I$(top_srcdir)/examples/gpt

if HAVE_BLAS
noinst_LTLIBRARIES += examples/gpt/libgptmodel.la
examples_gpt_libgptmodel_la_SOURCES = $(gpt_model_sources) \
	$(gpt_text_sources)
examples_gpt_libgptmodel_la_CPPFLAGS = $(AM_CPPFLAGS) $(gpt_include)
examples_gpt_libgptmodel_la_CFLAGS = $(AM_CFLAGS) $(gpt_flags) $(BLAS_CFLAGS)
examples_gpt_libgptmodel_la_LIBADD = $(BLAS_LIBS) -lm

# -rpath makes libtool build a shared object that is not installed.
if HAVE_LUA
noinst_LTLIBRARIES += examples/gpt/gpt.la
examples_gpt_gpt_la_SOURCES = \
	examples/gpt/gpt_lua.c \
	examples/gpt/gpt_lua.h \
	examples/gpt/gpt_lua_ranks.c \
	examples/gpt/gpt_lua_text.c \
	examples/gpt/gpt_ranks.c \
	examples/gpt/gpt_ranks.h
examples_gpt_gpt_la_CPPFLAGS = $(AM_CPPFLAGS) $(gpt_include) $(LUA_CFLAGS)
examples_gpt_gpt_la_CFLAGS = $(AM_CFLAGS) $(gpt_flags)
examples_gpt_gpt_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared \
	-pthread -rpath $(abs_builddir)/examples/gpt
examples_gpt_gpt_la_LIBADD = examples/gpt/libgptmodel.la sdk/libgyre.la
endif

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/gpt/test_gpt tests/unit/gpt/test_gpt_face \
	tests/unit/gpt/test_text
slow_tests += tests/unit/gpt/test_gpt tests/unit/gpt/test_gpt_face
tests_unit_gpt_test_gpt_SOURCES = tests/unit/gpt/test_gpt.c \
	tests/unit/gpt/small_gpt.h
tests_unit_gpt_test_gpt_CPPFLAGS = $(AM_CPPFLAGS) $(gpt_include)
tests_unit_gpt_test_gpt_LDADD = examples/gpt/libgptmodel.la $(CMOCKA_LIBS)
tests_unit_gpt_test_gpt_face_SOURCES = tests/unit/gpt/test_gpt_face.c \
	tests/unit/gpt/small_gpt.h
tests_unit_gpt_test_gpt_face_CPPFLAGS = $(AM_CPPFLAGS) $(gpt_include)
tests_unit_gpt_test_gpt_face_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc \
	-Wl,--wrap=aligned_alloc -Wl,--wrap=pthread_create
tests_unit_gpt_test_gpt_face_LDADD = examples/gpt/libgptmodel.la $(CMOCKA_LIBS)
tests_unit_gpt_test_text_SOURCES = tests/unit/gpt/test_text.c
tests_unit_gpt_test_text_CPPFLAGS = $(AM_CPPFLAGS) $(gpt_include)
tests_unit_gpt_test_text_LDADD = examples/gpt/libgptmodel.la $(CMOCKA_LIBS)
endif

noinst_PROGRAMS += tests/peer/gpt_dump
tests_peer_gpt_dump_SOURCES = tests/peer/gpt_dump.c
tests_peer_gpt_dump_CPPFLAGS = $(AM_CPPFLAGS) $(gpt_include)
tests_peer_gpt_dump_LDADD = examples/gpt/libgptmodel.la
endif

TESTS += tests/unit/gpt/gpt_lua.test tests/peer/gpt.test
EXTRA_DIST += tests/peer/gpt.test tests/peer/gpt_torch.py \
	tests/unit/gpt/gpt.lua tests/unit/gpt/gpt_lua.test \
	tests/unit/lua/tap.lua \
	examples/gpt/fail.lua \
	examples/gpt/quality.lua \
	examples/gpt/train.lua \
	examples/gpt/train_options.lua \
	examples/gpt/train_report.lua \
	examples/gpt/train_resume.lua \
	examples/gpt/train_store.lua
