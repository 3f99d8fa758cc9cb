/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SHARE_ORDERS_H
#define CUDAW_SHARE_ORDERS_H
/* cudaw share set, drain and undrain: orders to the daemon, of its user or root. */
#include <stdbool.h>

/* The order that begins at argv[optind]. Returns an exit code. */
int share_order(int argc, char **argv, bool json);

#endif
