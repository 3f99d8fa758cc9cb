/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_COMMANDS_H
#define CUDAW_COMMANDS_H
/*
 * The daemon's answers to commands, which connect as members do and send one line:
 *
 *	list		describe the GPUs and the members
 *	events		the last events, oldest first
 *	events follow	the same, and then each one when it comes, until the command disconnects
 *	give WORD	members whose id, name or PID is WORD give their turn to those who wait
 *	set KEY=VALUE...	settings (conf.h), until the daemon ends. If one is wrong, a line
 *			"note TEXT" says why, and none is taken
 *	drain UUID	nobody gets a turn on that GPU any more; undrain UUID: they do again
 *	launch		the program of this process may become a member: the daemon does not end
 *			before the process does
 *
 * set, drain and undrain are for the daemon's user and root. The answer to "list":
 *
 *	daemon PID VERSION
 *	gpu UUID TOTAL USED OTHERS CAPACITY STATE	bytes; TOTAL 0: NVML does not know it;
 *						STATE: open, drained, or excluded by the settings
 *	member NUMBER PID UID STATE		the lines up to the next "member" belong to it. PID: as
 *						the daemon sees it, 0 if it does not; STATE: a word
 *						of the books (turns.h)
 *	id ID, name NAME, command TEXT, class CLASS, weight N
 *	need UUID MAPPED TOTAL			a GPU; bytes that are there, and that it needs
 *	turn WAITS LEFT TURNS NUMBER		milliseconds that it waits, and that its turn lasts at
 *						least, 0: not; how many turns it got; the member
 *						that it waits for, or 0
 *
 * An event is a line "event NUMBER UNIX_MS KIND PID UID ID NAME TEXT"; "-" stands for no NAME.
 * The names and commands of another user's members are left out, except for root. All answers end
 * with a line "end".
 */
#include "tools/daemon/lines.h"
#include "tools/daemon/connections.h"

#include <stdbool.h>

/* Take the first line of a command. False: it is none. */
bool commands_take(struct connection *connection, const struct line *line, double now);

/* Give those who follow the events that are new to them. */
void commands_follow(void);

#endif
