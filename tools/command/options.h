/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OPTIONS_H
#define CUDAW_OPTIONS_H
/* What subcommands have in common in their options and arguments. */
#include <stdbool.h>

/* Refer to the help of subcommand @name on stderr. Returns EXIT_USAGE. */
int usage_error(const char *name);

/*
 * Parse the options of a subcommand @name that has only --json and --help. Returns -1 with *@json
 * set and optind at the arguments, or an exit code if there is nothing more to do.
 */
int json_option(int argc, char **argv, const char *name, const char *help, bool *json);

/*
 * Whether the arguments from optind on are names of a @what (as "file"), and, if @one, only one.
 * False after a message.
 */
bool names_given(int argc, char **argv, const char *what, bool one);

/* Take the value of @option ("--timeout"), in seconds. False after a message. */
bool seconds_given(const char *option, const char *text, double *ms);

#endif
