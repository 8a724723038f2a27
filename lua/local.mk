# SPDX-License-Identifier: Apache-2.0
# The Lua module and `gyre run`; built when configure found Lua (HAVE_LUA).
