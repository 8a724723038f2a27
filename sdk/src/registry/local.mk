# SPDX-License-Identifier: Apache-2.0
registry_sources =
