# SPDX-License-Identifier: Apache-2.0
# Attention schedules, modules and built in as the optimizers are.
plugin_LTLIBRARIES += \
	plugins/schedules/2d.la \
	plugins/schedules/allgather.la \
	plugins/schedules/burst.la \
	plugins/schedules/double-ring.la \
	plugins/schedules/multi-ring.la \
	plugins/schedules/ring.la \
	plugins/schedules/tile.la \
	plugins/schedules/tokenring.la \
	plugins/schedules/ulysses.la

schedule_form = \
	plugins/schedules/form.h \
	plugins/schedules/form_bytes.h \
	plugins/schedules/form_memory.h \
	plugins/schedules/form_rows.h

plugins_schedules_2d_la_SOURCES = plugins/schedules/2d/2d.c \
	$(schedule_form)
plugins_schedules_2d_la_LDFLAGS = $(plugin_ldflags)
plugins_schedules_allgather_la_SOURCES = plugins/schedules/allgather/allgather.c \
	$(schedule_form)
plugins_schedules_allgather_la_LDFLAGS = $(plugin_ldflags)
plugins_schedules_burst_la_SOURCES = plugins/schedules/burst/burst.c \
	$(schedule_form)
plugins_schedules_burst_la_LDFLAGS = $(plugin_ldflags)
plugins_schedules_double_ring_la_SOURCES = plugins/schedules/double-ring/double_ring.c \
	$(schedule_form)
plugins_schedules_double_ring_la_LDFLAGS = $(plugin_ldflags)
plugins_schedules_multi_ring_la_SOURCES = plugins/schedules/multi-ring/multi_ring.c \
	$(schedule_form)
plugins_schedules_multi_ring_la_LDFLAGS = $(plugin_ldflags)
plugins_schedules_ring_la_SOURCES = plugins/schedules/ring/ring.c \
	$(schedule_form)
plugins_schedules_ring_la_LDFLAGS = $(plugin_ldflags)
plugins_schedules_tile_la_SOURCES = plugins/schedules/tile/tile.c \
	$(schedule_form)
plugins_schedules_tile_la_LDFLAGS = $(plugin_ldflags)
plugins_schedules_tokenring_la_SOURCES = plugins/schedules/tokenring/tokenring.c \
	$(schedule_form)
plugins_schedules_tokenring_la_LDFLAGS = $(plugin_ldflags)
plugins_schedules_ulysses_la_SOURCES = plugins/schedules/ulysses/ulysses.c \
	$(schedule_form)
plugins_schedules_ulysses_la_LDFLAGS = $(plugin_ldflags)

schedule_sources = \
	plugins/schedules/2d/2d.c \
	plugins/schedules/allgather/allgather.c \
	plugins/schedules/burst/burst.c \
	plugins/schedules/double-ring/double_ring.c \
	plugins/schedules/multi-ring/multi_ring.c \
	plugins/schedules/ring/ring.c \
	plugins/schedules/tile/tile.c \
	plugins/schedules/tokenring/tokenring.c \
	plugins/schedules/ulysses/ulysses.c
