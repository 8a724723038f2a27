# SPDX-License-Identifier: Apache-2.0
# Against other people's code; each skips itself where that is not installed.
# The drivers are built by make check and are no tests of their own.
peer_tests += tests/peer/attention.test tests/peer/compressors.test tests/peer/optimizers.test \
	tests/peer/safetensors.test tests/peer/state.test
EXTRA_DIST += tests/peer/attention_torch.py tests/peer/codec_ref.lua tests/peer/compressors_numpy.py \
	tests/peer/job.h tests/peer/optimizers_torch.py \
	tests/peer/safetensors_read.py tests/peer/state_numpy.py

EXTRA_PROGRAMS += tests/peer/opt_driver tests/peer/ref_driver
check_DATA += tests/peer/opt_driver
tests_peer_opt_driver_LDADD = sdk/libgyre_core.la
if HAVE_LUA
check_DATA += tests/peer/ref_driver
endif
tests_peer_ref_driver_CPPFLAGS = $(AM_CPPFLAGS) $(LUA_CFLAGS)
tests_peer_ref_driver_LDADD = sdk/libgyre_core.la $(LUA_LIBS)

EXTRA_PROGRAMS += tests/peer/state_driver
check_DATA += tests/peer/state_driver
tests_peer_state_driver_LDADD = sdk/libgyre_core.la

EXTRA_PROGRAMS += tests/peer/st_driver
check_DATA += tests/peer/st_driver
tests_peer_st_driver_LDADD = sdk/libgyre_core.la

EXTRA_PROGRAMS += tests/peer/codec_driver
check_DATA += tests/peer/codec_driver
tests_peer_codec_driver_LDADD = sdk/libgyre_core.la

EXTRA_PROGRAMS += tests/peer/attention_driver
check_DATA += tests/peer/attention_driver
tests_peer_attention_driver_LDADD = sdk/libgyre_core.la
