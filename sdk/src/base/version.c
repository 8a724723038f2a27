/* SPDX-License-Identifier: Apache-2.0 */
/* What this library is and what it was built with. */
#include "config.h"

#include <gyre/context.h>

const char *gyre_version(void)
{
    return PACKAGE_VERSION;
}

const char *gyre_build_summary(void)
{
    return GYRE_BUILD_SUMMARY;
}
