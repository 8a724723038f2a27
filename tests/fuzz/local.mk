# SPDX-License-Identifier: Apache-2.0
# Fuzz targets: as tests they replay their corpus and seeded mutations of it.
check_PROGRAMS += tests/fuzz/fuzz_safetensors

fuzz_safetensors_corpus = \
	tests/fuzz/safetensors/deep \
	tests/fuzz/safetensors/empty \
	tests/fuzz/safetensors/gap \
	tests/fuzz/safetensors/huge_shape \
	tests/fuzz/safetensors/long_length \
	tests/fuzz/safetensors/not_utf8 \
	tests/fuzz/safetensors/one \
	tests/fuzz/safetensors/overlap \
	tests/fuzz/safetensors/padded \
	tests/fuzz/safetensors/several \
	tests/fuzz/safetensors/short \
	tests/fuzz/safetensors/truncated_json \
	tests/fuzz/safetensors/unicode_names \
	tests/fuzz/safetensors/zero_and_huge
EXTRA_DIST += $(fuzz_safetensors_corpus)
