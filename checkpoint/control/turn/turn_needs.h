/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TURN_NEEDS_H
#define CUDAW_TURN_NEEDS_H
/* How much GPU memory the job has, and needs to run: the lines "need" of protocol.h. */
#include <stdbool.h>

struct client;

/*
 * Tell @c about each GPU with memory of the job. Unless @all, only what has changed. While memory
 * moves nothing is said: the lines of the yield or fill say it. Control thread.
 */
void turn_needs_say(const struct client *c, bool all);

/* The same of what has changed, once memory does not move any more, before that is said. */
void turn_needs_say_at_rest(const struct client *c, bool all);

/*
 * The same in the introduction to a daemon: while memory moves, because the job has lost the one before
 * and takes its memory back by itself, it still needs what it has told that one. Control thread.
 */
void turn_needs_introduce(const struct client *c);

#endif
