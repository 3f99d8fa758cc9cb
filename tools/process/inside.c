/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/inside.h"

#include "common/protocol/rundir.h"
#include "common/processes/maps.h"
#include "common/processes/proc.h"
#include "common/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTENS 0x10000 /* __SO_ACCEPTCON, in the flags of /proc/net/unix */

/* What the file @path is, by its name alone: the file system is the user's. */
static enum inside_face face_of(char *path)
{
	char *name = strrchr(path, '/'), *directory;
	bool driver;

	if (!name)
		return INSIDE_NONE;
	*name++ = '\0';
	directory = strrchr(path, '/');
	driver = !strcmp(name, "libcuda.so.1");
	if (directory && !strncmp(directory, "/cudaw-", strlen("/cudaw-")) &&
	    (driver || !strncmp(name, "libcudart.so.", strlen("libcudart.so."))))
		return INSIDE_FACE;
	return driver ? INSIDE_LIKELY : INSIDE_NONE;
}

/* By its name. The driver of WSL is two files, of which the first loads libcuda.so.1.1. */
static bool is_driver(const char *path)
{
	const char *name = strrchr(path, '/');

	return name && !strncmp(name, "/libcuda.so", strlen("/libcuda.so")) &&
	       strcmp(name, "/libcuda.so.1.1") != 0;
}

/* Whether our control thread runs in the process. */
static bool has_core(pid_t pid)
{
	char path[PATH_MAX], name[32];
	struct dirent *entry;
	bool found = false;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && !found && (entry = readdir(tasks))) {
		FILE *comm;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", pid, entry->d_name);
		comm = fopen(path, "re");
		found = comm && fgets(name, sizeof(name), comm) && !strcmp(name, "cudaw\n");
		if (comm)
			fclose(comm);
	}
	if (tasks)
		closedir(tasks);
	return found;
}

enum inside_face inside_face(pid_t pid, struct inside_drivers *drivers)
{
	enum inside_face found = INSIDE_NONE;
	char first[PATH_MAX] = "", other[PATH_MAX] = "";
	struct maps maps;
	int n = 0;

	*drivers = (struct inside_drivers){0};
	maps_open(&maps, pid);
	while (maps_next(&maps)) {
		char *deleted = maps.path ? strstr(maps.path, MAPS_FORMER) : NULL, whole[PATH_MAX];
		enum inside_face face;

		if (!maps.path)
			continue;
		if (deleted)
			*deleted = '\0';
		snprintf(whole, sizeof(whole), "%s", maps.path);
		face = face_of(maps.path);
		/* Each time that a library is loaded, its beginning is mapped once. */
		if (face != INSIDE_FACE && !maps.offset && is_driver(whole)) {
			strcpy(n++ && strcmp(whole, first) != 0 ? other : first, whole);
			drivers->where += maps.begin;
		}
		found = face > found ? face : found;
	}
	maps_close(&maps);
	if (found == INSIDE_FACE && n && n > has_core(pid)) {
		char past[2 * PATH_MAX + 8];

		snprintf(past, sizeof(past), "%s%s%s", first, *other ? " or " : "", other);
		format_copy(drivers->past, sizeof(drivers->past), past);
	}
	return found;
}

void inside_command(pid_t pid, char *buf, size_t size)
{
	char text[256];

	host_command(pid, text, sizeof(text));
	format_copy(buf, size, text);
}

static bool is_among(char (*directories)[INSIDE_PATH], size_t n, const char *directory)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(directories[i], directory))
			return true;
	return false;
}

/* As a socket is bound if its path is too long for an address. */
static bool is_by_descriptor(const char *path)
{
	static const char *const ways[] = {"/proc/thread-self/fd/", "/proc/self/fd/"};

	return !strncmp(path, ways[0], strlen(ways[0])) || !strncmp(path, ways[1], strlen(ways[1]));
}

size_t inside_listens(const struct process *process, char (*directories)[INSIDE_PATH], size_t max)
{
	char path[64], wanted[32], *line = NULL;
	size_t room = 0, n = 0;
	FILE *sockets;

	snprintf(wanted, sizeof(wanted), "/%d" RUNDIR_SUFFIX, process->own_pid);
	snprintf(path, sizeof(path), "/proc/%d/net/unix", process->pid);
	sockets = fopen(path, "re");
	while (sockets && n < max && getline(&line, &room, sockets) > 0) {
		unsigned int flags, type;
		char *name, *end;
		int at = 0;

		/* Num: RefCount Protocol Flags Type St Inode Path */
		if (sscanf(line, "%*s %*s %*s %x %x %*s %*s %n", &flags, &type, &at) != 2 || !at ||
		    !(flags & LISTENS) || type != SOCK_STREAM)
			continue;
		name = line + at;
		name[strcspn(name, "\n")] = '\0';
		end = strrchr(name, '/');
		if (*name != '/' || strcmp(end, wanted) != 0 || end - name >= INSIDE_PATH)
			continue;
		*end = '\0';
		if (is_by_descriptor(name))
			*name = '\0';
		if (!is_among(directories, n, name))
			strcpy(directories[n++], name);
	}
	free(line);
	if (sockets)
		fclose(sockets);
	return n;
}

static int open_in(int dir, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC | flags,
			       .resolve = resolve | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	int fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

/* The directory @path as @process sees it, if it is a runtime directory of its user. */
static int open_directory(const struct process *process, const char *path)
{
	char name[64];
	struct stat st;
	int root, dir;

	snprintf(name, sizeof(name), "/proc/%d/root", process->pid);
	root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	dir = process_is_there(process) ? open_in(root, path, O_DIRECTORY, RESOLVE_IN_ROOT)
					: -ENOENT;
	close(root);
	if (dir < 0)
		return dir;
	if (!fstat(dir, &st) && st.st_uid == process->uid && !(st.st_mode & (S_IRWXG | S_IRWXO)))
		return dir;
	close(dir);
	return -EACCES;
}

/* Connect to the socket that is open as @file, an O_PATH descriptor. */
static int connect_to(int file)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (fd < 0)
		return -errno;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d", file);
	if (!connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return fd;
	err = errno;
	close(fd);
	return -err;
}

int inside_connect(const struct process *process, const char *path)
{
	int dir = open_directory(process, path), file, fd = -ENOTSOCK;
	uid_t user = geteuid();
	char name[32];
	struct stat st;

	if (dir < 0)
		return dir;
	snprintf(name, sizeof(name), "%d" RUNDIR_SUFFIX, process->own_pid);
	file = open_in(dir, name, 0, RESOLVE_BENEATH);
	close(dir);
	if (file < 0)
		return file;
	/*
	 * In a user namespace the job does not know root. And as its user, the command can connect
	 * to no more than that user can.
	 */
	if (!fstat(file, &st) && S_ISSOCK(st.st_mode) && st.st_uid == process->uid &&
	    !seteuid(process->uid)) {
		fd = connect_to(file);
		if (seteuid(user))
			_exit(1);
	}
	close(file);
	return fd;
}
