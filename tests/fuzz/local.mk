# SPDX-License-Identifier: Apache-2.0
# Fuzz targets: as tests they replay their corpus and seeded mutations of it.
check_PROGRAMS += \
	tests/fuzz/fuzz_plan \
	tests/fuzz/fuzz_safetensors \
	tests/fuzz/fuzz_store \
	tests/fuzz/fuzz_wire
fuzz_replay = tests/fuzz/fuzz.h tests/fuzz/replay.c
tests_fuzz_fuzz_plan_SOURCES = tests/fuzz/fuzz_plan.c $(fuzz_replay)
tests_fuzz_fuzz_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c \
	$(fuzz_replay)
tests_fuzz_fuzz_store_SOURCES = tests/fuzz/fuzz_store.c $(fuzz_replay)
tests_fuzz_fuzz_wire_SOURCES = tests/fuzz/fuzz_wire.c $(fuzz_replay)
tests_fuzz_fuzz_store_LDADD = $(LDADD) $(XXHASH_LIBS) -lm
tests_fuzz_fuzz_wire_LDADD = $(LDADD) $(XXHASH_LIBS) -lm

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

fuzz_wire_corpus = \
	tests/fuzz/wire/00-topk-block \
	tests/fuzz/wire/00-topk-payload \
	tests/fuzz/wire/01-topk-block \
	tests/fuzz/wire/01-topk-payload \
	tests/fuzz/wire/02-topk-block \
	tests/fuzz/wire/02-topk-payload \
	tests/fuzz/wire/03-topk-block \
	tests/fuzz/wire/03-topk-payload \
	tests/fuzz/wire/04-topk-block \
	tests/fuzz/wire/04-topk-payload \
	tests/fuzz/wire/05-topk-block \
	tests/fuzz/wire/05-topk-payload \
	tests/fuzz/wire/06-topk-block \
	tests/fuzz/wire/06-topk-payload \
	tests/fuzz/wire/07-topk-block \
	tests/fuzz/wire/07-topk-payload \
	tests/fuzz/wire/08-topk-block \
	tests/fuzz/wire/08-topk-payload \
	tests/fuzz/wire/09-quantize-block \
	tests/fuzz/wire/09-quantize-payload \
	tests/fuzz/wire/10-quantize-block \
	tests/fuzz/wire/10-quantize-payload \
	tests/fuzz/wire/11-quantize-block \
	tests/fuzz/wire/11-quantize-payload \
	tests/fuzz/wire/12-quantize-block \
	tests/fuzz/wire/12-quantize-payload \
	tests/fuzz/wire/13-quantize-block \
	tests/fuzz/wire/13-quantize-payload \
	tests/fuzz/wire/14-quantize-block \
	tests/fuzz/wire/14-quantize-payload \
	tests/fuzz/wire/15-quantize-block \
	tests/fuzz/wire/15-quantize-payload \
	tests/fuzz/wire/16-quantize-block \
	tests/fuzz/wire/16-quantize-payload \
	tests/fuzz/wire/17-fp8-block \
	tests/fuzz/wire/17-fp8-payload \
	tests/fuzz/wire/18-fp8-block \
	tests/fuzz/wire/18-fp8-payload \
	tests/fuzz/wire/19-sign-block \
	tests/fuzz/wire/19-sign-payload \
	tests/fuzz/wire/20-sign-block \
	tests/fuzz/wire/20-sign-payload
EXTRA_DIST += $(fuzz_wire_corpus)

EXTRA_DIST += \
	tests/fuzz/store/near \
	tests/fuzz/store/plain \
	tests/fuzz/store/record \
	tests/fuzz/store/super \
	tests/fuzz/store/wide

fuzz_plan_corpus = \
	tests/fuzz/plan/blocks.bin \
	tests/fuzz/plan/blocks.txt \
	tests/fuzz/plan/documents.bin \
	tests/fuzz/plan/documents.txt \
	tests/fuzz/plan/head_only.txt \
	tests/fuzz/plan/ring1.txt \
	tests/fuzz/plan/ring2.bin \
	tests/fuzz/plan/ring2.txt \
	tests/fuzz/plan/ring3.bin
EXTRA_DIST += $(fuzz_plan_corpus)
