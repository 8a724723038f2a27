# SPDX-License-Identifier: Apache-2.0
# The gyre command; one cmd_<name>.c per sub-command.
