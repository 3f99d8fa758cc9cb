/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/rescue.h"
#include "common/system/proc.h"
#include "common/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOG_PREFIX "rescue: "
#include "common/log.h"

#define ANCESTORS 64 /* the most that are looked at */

static bool is_slurmstepd(pid_t pid)
{
	char path[32], name[32];

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	return !host_read_line(path, name, sizeof(name)) && !strcmp(name, "slurmstepd");
}

bool rescue_is_stopped(const struct connection *connection)
{
	pid_t pid = connection->pid;

	if (pid <= 0 || host_process(pid, &pid) != 'T')
		return false;
	for (int i = 0; i < ANCESTORS && pid > 1; i++) {
		if (is_slurmstepd(pid))
			return true;
		if (!host_process(pid, &pid))
			return false;
	}
	return false;
}

bool rescue_continue(const struct connection *connection)
{
	if (connection->pidfd >= 0 &&
	    !syscall(SYS_pidfd_send_signal, connection->pidfd, SIGCONT, NULL, 0))
		return true;
	pr_warn("process %d is stopped, and cannot be continued: %s", connection->pid,
		connection->pidfd < 0 ? "the kernel knows no descriptors of processes"
				      : error_text(errno));
	return false;
}
