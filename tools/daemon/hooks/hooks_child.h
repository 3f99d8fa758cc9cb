/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_CHILD_H
#define CUDAW_HOOKS_CHILD_H
/* The process that runs programs for events (hooks.h). */
#include "common/protocol/journal.h"
#include "common/protocol/rundir.h"
#include "tools/daemon/conf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A message from the daemon, or an event of a journal. Words are cut. */
struct hook_event {
	char kind[16];
	uint64_t unix_ms, bytes;
	pid_t pid;
	uid_t uid;
	char id[RUNDIR_ID_SIZE], name[256], operation[16], text[1024];
	bool asked;
	struct journal_by by;
};

/*
 * In the child: run @hooks for what comes by the socket @channel and for what is added to the journals, until the
 * other end is closed and the last program has ended. Does not return.
 */
void hooks_child_main(int channel, const struct conf_hooks *hooks) __attribute__((noreturn));

#endif
