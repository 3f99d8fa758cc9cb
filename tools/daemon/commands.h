/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_COMMANDS_H
#define CUDAW_COMMANDS_H
/*
 * The daemon's answers to commands, which connect as members do and send one line (common/protocol/protocol.h).
 */
#include "common/protocol/lines.h"
#include "tools/daemon/connections.h"

#include <stdbool.h>

/* Take the first line of a command. False: it is none. */
bool commands_take(struct connection *connection, const struct line *line, double now);

/* Give those who follow the events that are new to them. */
void commands_follow(void);

#endif
