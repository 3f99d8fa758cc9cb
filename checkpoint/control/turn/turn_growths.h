/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TURN_GROWTHS_H
#define CUDAW_TURN_GROWTHS_H
/* Allocations that wait (growth.h), as the daemon is told of them, and as it answers. */
#include <stdbool.h>

struct client;

/* Tell it of new ones, and of those that it knows and that wait no more. */
void turn_growths_tell(const struct client *c);

/* Its answer. */
void turn_growths_answer(unsigned int serial, bool room);

/* Its connection has ended: another one is told anew. */
void turn_growths_untold(void);

#endif
