# SPDX-License-Identifier: Apache-2.0
store_sources = \
	sdk/src/store/apply.c \
	sdk/src/store/born.c \
	sdk/src/store/build.c \
	sdk/src/store/commit.c \
	sdk/src/store/compressor.c \
	sdk/src/store/create.c \
	sdk/src/store/export.c \
	sdk/src/store/format.c \
	sdk/src/store/fsck.c \
	sdk/src/store/fsck.h \
	sdk/src/store/generation.c \
	sdk/src/store/generation.h \
	sdk/src/store/import.c \
	sdk/src/store/gradient.c \
	sdk/src/store/info.c \
	sdk/src/store/intake.c \
	sdk/src/store/journal.c \
	sdk/src/store/keep.c \
	sdk/src/store/layout.c \
	sdk/src/store/ledger.c \
	sdk/src/store/links.c \
	sdk/src/store/manifest.c \
	sdk/src/store/measure.c \
	sdk/src/store/mend.c \
	sdk/src/store/onward.c \
	sdk/src/store/open.c \
	sdk/src/store/place.c \
	sdk/src/store/plan.c \
	sdk/src/store/recover.c \
	sdk/src/store/residual.c \
	sdk/src/store/round.c \
	sdk/src/store/round.h \
	sdk/src/store/safetensors.c \
	sdk/src/store/safetensors.h \
	sdk/src/store/store.h \
	sdk/src/store/stream.c \
	sdk/src/store/stream_io.c \
	sdk/src/store/survey.c \
	sdk/src/store/transfer.c \
	sdk/src/store/update.c \
	sdk/src/store/worker.c \
	sdk/src/store/worker.h
gyre_include_HEADERS += sdk/include/gyre/store.h sdk/include/gyre/gyre.h
