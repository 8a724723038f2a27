/* SPDX-License-Identifier: Apache-2.0 */
/* Gyre's host interface, but for attention: include gyre/attention.h, which
 * brings gyre/plan.h, and for a module of Lua gyre/lua.h. */
#ifndef GYRE_GYRE_H
#define GYRE_GYRE_H

#include <gyre/compress.h>
#include <gyre/context.h>
#include <gyre/dtype.h>
#include <gyre/kernel.h>
#include <gyre/registry.h>
#include <gyre/status.h>
#include <gyre/store.h>
#include <gyre/trace.h>

#endif
