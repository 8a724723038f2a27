# SPDX-License-Identifier: Apache-2.0
# Example programs, one folder each.

include examples/gpt/local.mk

EXTRA_DIST += examples/quickstart examples/embed/embed.c \
	examples/plugin/signum.c examples/plugin/signum.kernel \
	examples/plan/striped_qring.lua examples/plugin/try.lua
