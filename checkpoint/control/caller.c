/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/caller.h"
#include "common/processes/pidfd.h"
#include "common/protocol/rundir.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

void caller_find(int fd, struct caller *caller)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
	caller->pid = peer.pid;
	caller->start = peer.pid ? rundir_start_time(peer.pid) : 0;
	/* Another process may have its PID by then. */
	if (!pidfd_peer_runs(fd))
		caller->start = 0;
	caller->own_start = rundir_start_time(getpid());
}

bool caller_is_gone(struct caller *caller)
{
	uint64_t start;

	if (!caller->pid)
		return false;
	/* Without a start time it ended before caller_find() was done, or /proc does not show it. */
	if (kill(caller->pid, 0) < 0 && errno == ESRCH)
		return true;
	if (++caller->looks % CALLER_LOOKS)
		return false;
	start = rundir_start_time(caller->pid);
	if (start == RUNDIR_START_UNKNOWN)
		return false;
	if (start && caller->start == RUNDIR_START_UNKNOWN)
		caller->start = start;
	return start != caller->start;
}

bool caller_is_same(const struct caller *a, const struct caller *b)
{
	return a->pid == b->pid && (a->start == b->start || a->start == RUNDIR_START_UNKNOWN ||
				    b->start == RUNDIR_START_UNKNOWN);
}

bool caller_is_ours(const struct caller *caller)
{
	uint64_t start = rundir_start_time(getpid());

	return start == caller->own_start || start == RUNDIR_START_UNKNOWN ||
	       caller->own_start == RUNDIR_START_UNKNOWN;
}
