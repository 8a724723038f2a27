# SPDX-License-Identifier: Apache-2.0
# Transport modules: they open their libraries at run time and link to none.
if HAVE_MPI
plugin_LTLIBRARIES += plugins/transports/mpi.la
plugins_transports_mpi_la_SOURCES = \
	plugins/transports/mpi/mp.h \
	plugins/transports/mpi/mp_load.c \
	plugins/transports/mpi/mp_message.c \
	plugins/transports/mpi/mp_thread.c \
	plugins/transports/mpi/mpi.c
plugins_transports_mpi_la_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS)
plugins_transports_mpi_la_LDFLAGS = $(plugin_ldflags)
endif
if HAVE_NCCL
plugin_LTLIBRARIES += plugins/transports/nccl.la
plugins_transports_nccl_la_SOURCES = \
	plugins/transports/nccl/nc.h \
	plugins/transports/nccl/nc_comm.c \
	plugins/transports/nccl/nc_load.c \
	plugins/transports/nccl/nc_pair.c \
	plugins/transports/nccl/nc_rank.c \
	plugins/transports/nccl/nccl.c
plugins_transports_nccl_la_CFLAGS = $(AM_CFLAGS) $(NCCL_CFLAGS)
plugins_transports_nccl_la_LDFLAGS = $(plugin_ldflags)
endif
