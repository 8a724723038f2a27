# SPDX-License-Identifier: Apache-2.0
# Device modules: they open their drivers at run time and link to none.
if HAVE_OPENCL
plugin_LTLIBRARIES += plugins/devices/opencl.la
plugins_devices_opencl_la_SOURCES = \
	plugins/devices/opencl/cl.h \
	plugins/devices/opencl/cl_birth.c \
	plugins/devices/opencl/cl_build.c \
	plugins/devices/opencl/cl_fetch.c \
	plugins/devices/opencl/cl_lane.c \
	plugins/devices/opencl/cl_load.c \
	plugins/devices/opencl/opencl.c
plugins_devices_opencl_la_CFLAGS = $(AM_CFLAGS) $(OPENCL_CFLAGS)
plugins_devices_opencl_la_LDFLAGS = $(plugin_ldflags)
endif
if HAVE_CUDA
plugin_LTLIBRARIES += plugins/devices/cuda.la
plugins_devices_cuda_la_SOURCES = \
	plugins/devices/cuda/cu.h \
	plugins/devices/cuda/cu_birth.c \
	plugins/devices/cuda/cu_build.c \
	plugins/devices/cuda/cu_fetch.c \
	plugins/devices/cuda/cu_lane.c \
	plugins/devices/cuda/cu_load.c \
	plugins/devices/cuda/cuda.c
plugins_devices_cuda_la_CFLAGS = $(AM_CFLAGS) $(CUDA_CFLAGS)
plugins_devices_cuda_la_LDFLAGS = $(plugin_ldflags)
endif
