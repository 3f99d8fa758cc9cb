/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TURNS_ORDERS_H
#define CUDAW_TURNS_ORDERS_H
/* cudaw turns set, drain and undrain: orders to the daemon, of its user or root. */
#include <stdbool.h>

/* The order that begins at argv[optind]. Returns an exit code. */
int cmd_turns_order(int argc, char **argv, bool json);

#endif
