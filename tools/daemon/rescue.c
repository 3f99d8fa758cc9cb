/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/rescue.h"
#include "common/processes/proc.h"
#include "common/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ANCESTORS 64 /* the most that are looked at */

static bool is_slurmstepd(pid_t pid)
{
	char path[32], name[32];

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	return !host_read_line(path, name, sizeof(name)) && !strcmp(name, "slurmstepd");
}

static long send_signal(const struct connection *connection, int sig)
{
	return syscall(SYS_pidfd_send_signal, connection->pidfd, sig, NULL, 0);
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

const char *rescue_obstacle(const struct connection *connection)
{
	if (connection->pidfd < 0)
		return "the kernel knows no descriptors of processes";
	return send_signal(connection, 0) ? error_text(errno) : NULL;
}

bool rescue_continue(const struct connection *connection)
{
	return !send_signal(connection, SIGCONT);
}
