/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/rescue.h"
#include "common/system/proc.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ANCESTORS 64       /* the most that are looked at */
#define STEP      "/step_" /* before its number: the control group of a step of Slurm's */

#define FREEZER_SIZE (PATH_MAX + 64)

static bool is_slurmstepd(pid_t pid)
{
	char path[32], name[32];

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	return !host_read_line(path, name, sizeof(name)) && !strcmp(name, "slurmstepd");
}

/* The control group of the process in the hierarchy of version 2. */
static bool find_group(pid_t pid, char *group, size_t size)
{
	char path[32], line[PATH_MAX];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	file = fopen(path, "re");
	while (file && !found && fgets(line, sizeof(line), file))
		found = !strncmp(line, "0::", 3);
	if (file)
		fclose(file);
	if (!found || strstr(line, "/../"))
		return false;
	line[strcspn(line, "\n")] = '\0';
	return snprintf(group, size, "%s", line + 3) < (int)size;
}

/* The file by which the process is frozen, in its group or above, within its step. */
static bool find_freezer(pid_t pid, char *path, size_t size)
{
	static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
	char group[PATH_MAX], value[8];

	if (!find_group(pid, group, sizeof(group)))
		return false;
	for (; strstr(group, STEP); *strrchr(group, '/') = '\0')
		for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
			snprintf(path, size, "%s%s/cgroup.freeze", mounts[i], group);
			if (!host_read_line(path, value, sizeof(value)) && *value == '1')
				return true;
		}
	return false;
}

static long send_signal(const struct connection *connection, int sig)
{
	return syscall(SYS_pidfd_send_signal, connection->pidfd, sig, NULL, 0);
}

bool rescue_is_stopped(const struct connection *connection)
{
	pid_t pid = connection->pid;
	char freezer[FREEZER_SIZE];

	if (pid <= 0 || (host_process(connection->pid, &pid) != 'T' &&
			 !find_freezer(connection->pid, freezer, sizeof(freezer))))
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
	char freezer[FREEZER_SIZE];

	if (connection->pidfd < 0)
		return "the kernel knows no descriptors of processes";
	if (send_signal(connection, 0) ||
	    (find_freezer(connection->pid, freezer, sizeof(freezer)) && access(freezer, W_OK)))
		return error_text(errno);
	return NULL;
}

bool rescue_continue(struct connection *connection)
{
	char freezer[FREEZER_SIZE];

	if (send_signal(connection, SIGCONT))
		return false;
	if (connection->freezer >= 0)
		close(connection->freezer);
	connection->freezer = -1;
	if (!find_freezer(connection->pid, freezer, sizeof(freezer)))
		return true;
	connection->freezer = open(freezer, O_WRONLY | O_CLOEXEC);
	return write(connection->freezer, "0", 1) == 1;
}

bool rescue_freeze_again(const struct connection *connection)
{
	return connection->freezer >= 0 && write(connection->freezer, "1", 1) == 1;
}
