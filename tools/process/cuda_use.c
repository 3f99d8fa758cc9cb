/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/cuda_use.h"

#include "common/find/find_file.h"
#include "common/processes/maps.h"
#include "common/processes/proc.h"
#include "tools/process/criu/descriptors.h"
#include "tools/process/limited.h"
#include "tools/process/criu/unix_sockets.h"

#include <ctype.h>
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
#include <unistd.h>

#define DRIVER_STEM "libcuda.so"

static bool is_stem(const char *name, const char *stem)
{
	return !strncmp(name, stem, strlen(stem));
}

/*
 * Open the regular file at @path of the process @pid, for its path alone: the file system of another
 * user's process may hold devices and links that root must not open.
 */
static int open_library(pid_t pid, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS |
					  RESOLVE_NO_MAGICLINKS};
	char name[PATH_MAX + 64];
	struct stat st;
	int root, fd;

	snprintf(name, sizeof(name), "/proc/%d/root", pid);
	root = open(name, O_PATH | O_CLOEXEC);
	fd = root < 0 ? -1 : syscall(SYS_openat2, root, path, &how, sizeof(how));
	if (root >= 0)
		close(root);
	/* Linux before 5.6: a link on the way may lead to another regular file, and to no more. */
	if (fd < 0 && root >= 0 && errno == ENOSYS) {
		snprintf(name, sizeof(name), "/proc/%d/root%s", pid, path);
		fd = open(name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
	}
	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* What the library at @path, as the process @pid sees it, tells of the use of CUDA. */
static enum cuda_use use_of_library(pid_t pid, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	enum cuda_use native = is_stem(name, DRIVER_STEM) ? CUDA_USE_NATIVE : CUDA_USE_NONE;
	enum find_state state;
	char opened[64];
	int fd;

	if (native == CUDA_USE_NONE && !find_is_runtime(name))
		return CUDA_USE_NONE;
	fd = open_library(pid, path);
	/*
	 * The file is gone, or cannot be read. NVIDIA's file has the driver's version in its name,
	 * and ours has not.
	 */
	if (fd < 0)
		return is_stem(name, FIND_DRIVER) ? CUDA_USE_CUDAW : native;
	snprintf(opened, sizeof(opened), "/proc/self/fd/%d", fd);
	state = find_file_state(opened, name);
	close(fd);
	return state == FIND_FACE ? CUDA_USE_CUDAW : native;
}

static enum cuda_use look_at(pid_t pid)
{
	enum cuda_use use = CUDA_USE_NONE;
	char last[PATH_MAX] = "";
	struct maps maps;
	int error;

	maps_open(&maps, pid);
	while (use != CUDA_USE_CUDAW && maps_next(&maps)) {
		enum cuda_use found;

		if (!maps.path || !strcmp(maps.path, last))
			continue;
		snprintf(last, sizeof(last), "%s", maps.path);
		found = use_of_library(pid, last);
		if (found != CUDA_USE_NONE)
			use = found;
	}
	error = maps_close(&maps);
	if (use == CUDA_USE_NONE && (error == -EACCES || error == -EPERM))
		use = CUDA_USE_HIDDEN;
	return use;
}

struct looks {
	const pid_t *pids;
	size_t n;
};

/* In the child. */
static void look_and_send(void *arg, int to)
{
	const struct looks *looks = arg;
	enum cuda_use use;

	for (size_t i = 0; i < looks->n; i++) {
		use = look_at(looks->pids[i]);
		if (send(to, &use, sizeof(use), MSG_NOSIGNAL) != sizeof(use))
			break;
	}
}

/* Fill in @uses as far as a child gets. Returns how many; *@slow: it hangs at the next. */
static size_t look_at_some(const pid_t *pids, size_t n, enum cuda_use *uses, bool *slow)
{
	struct looks looks = {pids, n};
	struct limited child;
	size_t done = 0;

	*slow = false;
	if (limited_begin(&child, look_and_send, &looks))
		return 0;
	while (done < n) {
		*slow = limited_wait(&child, NULL) != 0;
		if (*slow || recv(child.fd, &uses[done], sizeof(*uses), 0) != sizeof(*uses))
			break;
		done++;
	}
	limited_end(&child);
	return done;
}

void cuda_use_all(const pid_t *pids, size_t n, enum cuda_use *uses)
{
	int hangs = 0;
	bool slow;

	for (size_t done = 0; done < n; done++) {
		slow = hangs >= CUDA_USE_HANGS;
		if (!slow)
			done += look_at_some(pids + done, n - done, uses + done, &slow);
		hangs += slow;
		if (done < n)
			uses[done] = slow ? CUDA_USE_SLOW : CUDA_USE_HIDDEN;
	}
}

enum cuda_use cuda_use(pid_t pid)
{
	enum cuda_use use;

	cuda_use_all(&pid, 1, &use);
	return use;
}

size_t cuda_use_pids(pid_t *pids, size_t max)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	size_t n = 0;

	while (proc && n < max && (entry = readdir(proc))) {
		pids[n] = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
		n += pids[n] > 0;
	}
	if (proc)
		closedir(proc);
	return n;
}

static bool is_ancestor(pid_t ancestor, pid_t pid)
{
	for (int depth = 0; depth < TREE_MAX && pid > 1; depth++)
		if (!host_process(pid, &pid))
			return false;
		else if (pid == ancestor)
			return true;
	return false;
}

/* A file that a process maps shared and for writing; others cannot serve to agree on anything. */
struct shared_file {
	dev_t device;
	ino_t inode;
	char path[PATH_MAX];
};

struct shared_files {
	struct shared_file *all;
	size_t n;
};

static bool next_shared(struct maps *maps)
{
	while (maps_next(maps))
		if (maps->path && maps->rights[1] == 'w' && maps->rights[3] == 's' && maps->inode &&
		    !is_stem(maps->path, "/dev/nvidia"))
			return true;
	return false;
}

static void shared_files_find(struct shared_files *files, pid_t pid)
{
	struct maps maps;

	maps_open(&maps, pid);
	while (next_shared(&maps)) {
		struct shared_file *all = reallocarray(files->all, files->n + 1, sizeof(*all)),
				   *new;

		if (!all)
			break;
		files->all = all;
		new = &all[files->n++];
		*new = (struct shared_file){.device = maps.device, .inode = maps.inode};
		snprintf(new->path, sizeof(new->path), "%s", maps.path);
	}
	maps_close(&maps);
}

/* The path of one of @files that the process @pid maps too; NULL: it maps none. */
static const char *shared_with(const struct shared_files *files, pid_t pid)
{
	const char *found = NULL;
	struct maps maps;

	if (!files->n)
		return NULL;
	maps_open(&maps, pid);
	while (!found && next_shared(&maps))
		for (size_t i = 0; i < files->n && !found; i++)
			if (files->all[i].inode == maps.inode &&
			    files->all[i].device == maps.device)
				found = files->all[i].path;
	maps_close(&maps);
	return found;
}

/* The sockets at the other ends of those of a process. */
struct far_ends {
	ino_t *inodes;
	size_t n;
};

static void far_ends_add(struct far_ends *ends, ino_t inode)
{
	ino_t *inodes = inode ? reallocarray(ends->inodes, ends->n + 1, sizeof(*inodes)) : NULL;

	if (!inodes)
		return;
	ends->inodes = inodes;
	ends->inodes[ends->n++] = inode;
}

struct connection {
	char local[64], remote[64];
	unsigned long inode;
};

static bool next_connection(FILE *table, struct connection *c)
{
	char line[512];

	while (fgets(line, sizeof(line), table))
		if (sscanf(line, " %*d: %63s %63s %*x %*s %*s %*s %*d %*d %lu", c->local, c->remote,
			   &c->inode) == 3)
			return true;
	return false;
}

/*
 * Add the far ends of the TCP connections among @mine that are in @table of the network namespace
 * of @pid. proc_net_tcp(5) has the format.
 */
static void add_tcp(struct far_ends *ends, const struct descriptors *mine, pid_t pid,
		    const char *table)
{
	struct connection c, other;
	char path[64];
	FILE *file, *again;

	snprintf(path, sizeof(path), "/proc/%d/net/%s", pid, table);
	file = fopen(path, "re");
	again = file ? fopen(path, "re") : NULL;
	while (again && next_connection(file, &c)) {
		if (!descriptors_socket(mine, c.inode))
			continue;
		rewind(again);
		while (next_connection(again, &other))
			if (!strcmp(other.local, c.remote) && !strcmp(other.remote, c.local))
				far_ends_add(ends, other.inode);
	}
	if (again)
		fclose(again);
	if (file)
		fclose(file);
}

static void far_ends_find(struct far_ends *ends, pid_t pid)
{
	struct descriptors mine = {0};
	int netlink = unix_sockets_open();

	descriptors_add_process(&mine, pid);
	for (size_t i = 0; netlink >= 0 && i < mine.n; i++)
		if (mine.all[i].kind == DESCRIPTOR_SOCKET)
			far_ends_add(ends, unix_sockets_peer(netlink, mine.all[i].inode));
	add_tcp(ends, &mine, pid, "tcp");
	add_tcp(ends, &mine, pid, "tcp6");
	if (netlink >= 0)
		close(netlink);
	free(mine.all);
}

static bool is_connected(const struct far_ends *ends, pid_t pid)
{
	struct descriptors its = {0};
	bool found = false;

	if (ends->n)
		descriptors_add_process(&its, pid);
	for (size_t i = 0; i < ends->n && !found; i++)
		found = descriptors_socket(&its, ends->inodes[i]);
	free(its.all);
	return found;
}

/* Whether the process @other may share GPU memory with @pid, and how. */
static bool is_sharer(pid_t pid, pid_t other, const struct shared_files *files,
		      const struct far_ends *ends, char *how, size_t size)
{
	const char *path;

	if (is_ancestor(pid, other))
		snprintf(how, size, "it is a descendant");
	else if (is_ancestor(other, pid))
		snprintf(how, size, "it is an ancestor");
	else if (getpgid(pid) == getpgid(other))
		snprintf(how, size, "both are in one process group");
	else if ((path = shared_with(files, other)))
		snprintf(how, size, "both write to %s", path);
	else if (is_connected(ends, other))
		snprintf(how, size, "a socket connects both");
	else
		return false;
	return true;
}

pid_t cuda_use_sharer(const struct process *process, bool (*uses)(pid_t pid), char *how,
		      size_t size)
{
	pid_t *pids = calloc(CUDA_USE_PIDS, sizeof(*pids)), sharer = 0;
	enum cuda_use *use = calloc(CUDA_USE_PIDS, sizeof(*use));
	size_t n = pids && use ? cuda_use_pids(pids, CUDA_USE_PIDS) : 0;
	struct shared_files files = {0};
	struct far_ends ends = {0};

	cuda_use_all(pids, n, use);
	shared_files_find(&files, process->pid);
	far_ends_find(&ends, process->pid);
	for (size_t i = 0; i < n && !sharer; i++) {
		/* A process that cannot be looked at may use CUDA. */
		bool may = use[i] == CUDA_USE_NATIVE || use[i] == CUDA_USE_CUDAW ||
			   use[i] == CUDA_USE_SLOW;

		if (may && pids[i] != process->pid && pids[i] != getpid() &&
		    is_sharer(process->pid, pids[i], &files, &ends, how, size) && uses(pids[i]))
			sharer = pids[i];
	}
	free(files.all);
	free(ends.inodes);
	free(pids);
	free(use);
	return sharer;
}
