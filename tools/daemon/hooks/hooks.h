/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_H
#define CUDAW_HOOKS_H
/*
 * Programs that the settings name (conf.h, [hooks]), run for events: those of the daemon, and those of the journals
 * (common/protocol/journal.h) of the daemon's user, or for root of all users.
 *
 * A child process does all of that, so that no program and no directory of a user's can delay the daemon. The daemon
 * tells it its events, and never waits for it: what does not get through is lost.
 *
 * A program gets the kind of the event as its argument, and the rest in its environment (hooks_child.c has the names):
 * the words of users, of any bytes. It has nothing else of the daemon's: no descriptor, no variable, no right, and no
 * terminal. HOOKS_AT_ONCE run at a time; others wait, HOOKS_USER of one user and HOOKS_WAIT in all, and more are
 * dropped, which is logged. One that takes too long is killed, with its process group.
 */
#include "tools/daemon/conf.h"

#define HOOKS_AT_ONCE 8
#define HOOKS_WAIT    256
#define HOOKS_USER    64

/* True if programs can be run as @hooks says; else why not, in @why of CONF_WHY bytes. */
bool hooks_check(const struct conf_hooks *hooks, char *why);

/* From now on these are the programs. If they were before, the child stays. */
void hooks_set(const struct conf_hooks *hooks);

/* Tell the child what has happened since the last time, and start it if it has ended. */
void hooks_look(void);

/* It can be read when the child has ended; -1: there is none. */
int hooks_fd(void);

/* How long until hooks_look() is to be called in any case; negative: not at all. */
double hooks_patience(double now);

#endif
