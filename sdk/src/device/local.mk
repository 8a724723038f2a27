# SPDX-License-Identifier: Apache-2.0
device_sources =
