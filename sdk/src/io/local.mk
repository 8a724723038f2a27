# SPDX-License-Identifier: Apache-2.0
io_sources =
