/* SPDX-License-Identifier: Apache-2.0 */
#include "common/processes/proc.h"

#include "common/protocol/rundir.h"
#include "common/system/shortage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_MS 10 /* between checks of a process that is about to end */

int host_read_line(const char *path, char *buf, size_t size)
{
	FILE *file = fopen(path, "re");
	int err = 0;

	if (!file)
		return -errno;
	if (fgets(buf, size, file))
		buf[strcspn(buf, "\n")] = '\0';
	else
		err = -EIO;
	fclose(file);
	return err;
}

char host_process(pid_t pid, pid_t *parent)
{
	struct rundir_process process;

	if (!rundir_process(pid, &process))
		return 0;
	*parent = process.parent;
	return process.state;
}

void host_environment(pid_t pid, const char *name, char *buf, size_t size)
{
	size_t len = strlen(name), room = 0;
	char path[64], *line = NULL;
	FILE *file;

	buf[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	file = fopen(path, "re");
	while (file && getdelim(&line, &room, '\0', file) > 0)
		if (!strncmp(line, name, len) && line[len] == '=') {
			snprintf(buf, size, "%s", line + len + 1);
			break;
		}
	free(line);
	if (file)
		fclose(file);
}

void host_command(pid_t pid, char *buf, size_t size)
{
	char path[64];
	ssize_t len;
	int fd;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	else
		snprintf(path, sizeof(path), "/proc/thread-self/cmdline");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = fd < 0 ? 0 : read(fd, buf, size - 1);
	if (fd >= 0)
		close(fd);
	while (len > 0 && !buf[len - 1])
		len--;
	for (ssize_t i = 0; i < len; i++)
		if (!buf[i])
			buf[i] = ' ';
	buf[len > 0 ? len : 0] = '\0';
}

bool host_same_ids(pid_t pid)
{
	struct stat ours, its;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
	return !stat("/proc/thread-self/ns/pid", &ours) && !stat(path, &its) &&
	       ours.st_ino == its.st_ino;
}

bool host_id_is_free(pid_t pid)
{
	return kill(pid, 0) && errno == ESRCH;
}

static bool has_ended(pid_t pid)
{
	char path[64], state = 0;
	struct dirent *entry;
	DIR *threads;
	pid_t parent;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	threads = opendir(path);
	if (!threads)
		return errno == ENOENT || host_id_is_free(pid);
	/* The first thread may end long before the others do. */
	while ((!state || state == 'Z' || state == 'X') && (entry = readdir(threads))) {
		errno = 0;
		state = host_process(atoi(entry->d_name), &parent);
		if (!state && is_shortage(-errno))
			state = '?';
	}
	closedir(threads);
	return !state || state == 'Z' || state == 'X' || (state == '?' && host_id_is_free(pid));
}

bool host_await_end(pid_t pid, double ms)
{
	for (; !has_ended(pid); ms -= LOOK_MS) {
		if (ms <= 0)
			return false;
		usleep(LOOK_MS * 1000);
	}
	return true;
}

bool host_has_membarrier(void)
{
	long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0);

	return commands > 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

bool host_is_filtered(const char *task)
{
	char path[64], line[128];
	FILE *status;
	int mode = 0;

	snprintf(path, sizeof(path), "%s/status", task);
	status = fopen(path, "re");
	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "Seccomp: %d", &mode) == 1)
			break;
	if (status)
		fclose(status);
	return mode != 0;
}

void host_huge_pages(char *buf, size_t size)
{
	char line[128], *word;

	*buf = '\0';
	if (host_read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line)))
		return;
	word = strchr(line, '[');
	if (!word)
		return;
	word[strcspn(word, "]")] = '\0';
	snprintf(buf, size, "%s", word + 1);
}
