/* SPDX-License-Identifier: Apache-2.0 */
/* Amounts and times as people read them. */
#ifndef GYRE_CLI_AMOUNT_H
#define GYRE_CLI_AMOUNT_H

/* "1.2 GB" of bytes, in powers of 1000 as disks and links are sold. */
const char *cli_bytes(double bytes, char text[16]);
/* "0:07", "1:02:03" of seconds. */
const char *cli_seconds(double seconds, char text[16]);

#endif
