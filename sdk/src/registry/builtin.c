/* SPDX-License-Identifier: Apache-2.0 */
/* The plugins linked into the library (--enable-builtin-plugins). */
#include "config.h"

#include "registry/registry.h"

#ifdef GYRE_BUILTIN_PLUGINS
#define BUILTIN_MAP(X) \
    X(adagrad)         \
    X(adam)            \
    X(adamw)           \
    X(lion)            \
    X(sgd)             \
    X(fp8)             \
    X(quantize)        \
    X(sign)            \
    X(topk)            \
    X(allgather)       \
    X(burst)           \
    X(double_ring)     \
    X(multi_ring)      \
    X(ring)            \
    X(tile)            \
    X(tokenring)       \
    X(two_d)           \
    X(ulysses)
#else
#define BUILTIN_MAP(X)
#endif

#define DECLARE(name) const gyre_module *gyre_module_entry_##name(void);
BUILTIN_MAP(DECLARE)

#define ENTRY(name) gyre_module_entry_##name,
const gyre_module_entry_function gyre_builtin_modules[] = {BUILTIN_MAP(ENTRY)
                                                               NULL};
