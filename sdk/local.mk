# SPDX-License-Identifier: Apache-2.0
# The library: each room lists its sources in sdk/src/<room>/local.mk.

# Public headers; a room adds its own.  Each compiles alone in C11 and C++
# (tests/headers).
gyre_includedir = $(includedir)/gyre
gyre_include_HEADERS = \
	sdk/include/gyre/context.h \
	sdk/include/gyre/dtype.h \
	sdk/include/gyre/status.h

include sdk/src/base/local.mk
include sdk/src/trace/local.mk
include sdk/src/registry/local.mk
include sdk/src/io/local.mk
include sdk/src/device/local.mk
include sdk/src/store/local.mk
include sdk/src/transport/local.mk
include sdk/src/plan/local.mk
include sdk/src/attention/local.mk

# All rooms in one archive that the unit tests link, so that they reach
# internal functions; libgyre is the same objects behind the symbol map.
noinst_LTLIBRARIES += sdk/libgyre_core.la
sdk_libgyre_core_la_SOURCES = $(base_sources) $(trace_sources) \
	$(registry_sources) $(io_sources) $(device_sources) $(store_sources) \
	$(transport_sources) $(plan_sources) $(attention_sources)
sdk_libgyre_core_la_CPPFLAGS = $(AM_CPPFLAGS) \
	-DGYRE_PLUGIN_DIR='"$(plugindir)"'
sdk_libgyre_core_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) \
	$(XXHASH_CFLAGS) $(LIBURING_CFLAGS) $(HWLOC_CFLAGS) $(SLEEF_CFLAGS)
sdk_libgyre_core_la_LIBADD = $(JANSSON_LIBS) $(XXHASH_LIBS) \
	$(LIBURING_LIBS) $(HWLOC_LIBS) $(SLEEF_LIBS)

lib_LTLIBRARIES += sdk/libgyre.la
sdk_libgyre_la_SOURCES =
sdk_libgyre_la_LIBADD = sdk/libgyre_core.la
sdk_libgyre_la_LDFLAGS = $(AM_LDFLAGS) -no-undefined \
	-version-info $(GYRE_SO_VERSION) \
	-Wl,--version-script=$(top_srcdir)/sdk/libgyre.map
EXTRA_sdk_libgyre_la_DEPENDENCIES = sdk/libgyre.map
EXTRA_DIST += sdk/doc/decisions.md sdk/libgyre.map

pkgconfig_DATA = sdk/gyre.pc sdk/gyre-plugin.pc
dist_man_MANS += sdk/man/gyre.1 sdk/man/gyre-plan.1 sdk/man/gyre-store.5 \
	sdk/man/gyre-plan.5 sdk/man/gyre-devices.7 sdk/man/gyre-transports.7
