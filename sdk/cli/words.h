/* SPDX-License-Identifier: Apache-2.0 */
/* Options that may be given more than once. */
#ifndef GYRE_CLI_WORDS_H
#define GYRE_CLI_WORDS_H

/* Collect the values of --name, as "--name VALUE" or "--name=VALUE", in order.
 * Returns how many, or -1 when there are more than `max`.  Call it before
 * cli_parse, which reorders argv and reports mistakes. */
int cli_words(int argc, char **argv, const char *name, const char **list,
              int max);

/* Index of the first word that is no option of `gyre run` itself, nor the
 * value of one in `with_value` (NULL-terminated); argc when there is none. */
int cli_first_word(int argc, char **argv, const char *const *with_value);

#endif
