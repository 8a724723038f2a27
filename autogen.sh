#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make ./configure from configure.ac; run once after a clone.
set -e
cd "$(dirname "$0")"
for tool in autoreconf automake libtoolize pkg-config; do
    command -v "$tool" >/dev/null 2>&1 || {
        echo "autogen.sh: '$tool' is missing; on Debian and Ubuntu:" \
            "apt-get install autoconf automake libtool pkg-config" >&2
        exit 1
    }
done
exec autoreconf -fi
