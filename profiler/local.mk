# SPDX-License-Identifier: Apache-2.0
# `gyre profile` and `gyre bench`.
