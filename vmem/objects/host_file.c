/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/objects/host_file.h"
#include "common/system/hostmem.h"
#include "common/system/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAME  "cudaw-host-memory-"
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define PIECE (8UL << 20) /* a signal that comes within a piece lets it begin anew */
#define NODES 1024
#define WORD  (8 * sizeof(unsigned long))

/* A file has the policy that a mapping of it was given. A kernel without NUMA, or a container, may refuse it. */
static void prefer_node(int fd, size_t size, int node)
{
	unsigned long nodes[NODES / WORD] = {0};
	void *at;

	if (node < 0 || node >= NODES)
		return;
	at = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return;
	nodes[(size_t)node / WORD] = 1UL << (size_t)node % WORD;
	syscall(SYS_mbind, at, size, MPOL_PREFERRED, nodes, NODES + 1L, 0L);
	munmap(at, size);
}

/* The kernel would give more than there is, page by page, and then end a process. */
static bool is_there(size_t size)
{
	return size <= hostmem_machine_available() && size <= hostmem_cgroup_available();
}

static int fill(int fd, size_t size)
{
	size_t done = 0, piece;

	while (done < size) {
		piece = size - done < PIECE ? size - done : PIECE;
		if (!fallocate(fd, 0, (off_t)done, (off_t)piece))
			done += piece;
		else if (errno != EINTR)
			return -errno;
	}
	return fcntl(fd, F_ADD_SEALS, SEALS) ? -errno : 0;
}

/* A file beyond the limit would raise SIGXFSZ, which ends the program. */
static bool is_within_limit(size_t size)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_FSIZE, &limit) && size <= limit.rlim_cur;
}

int host_file_make(size_t size, int node)
{
	char name[sizeof(NAME) + 16];
	int fd, result;

	if (!is_within_limit(size))
		return -EFBIG;
	snprintf(name, sizeof(name), NAME "%d", node);
	fd = memfd_make(name);
	if (fd < 0)
		return -errno;
	result = ftruncate(fd, (off_t)size) ? -errno : is_there(size) ? 0 : -ENOMEM;
	if (!result) {
		prefer_node(fd, size, node);
		result = fill(fd, size);
	}
	if (!result)
		return fd;
	close(fd);
	return result;
}

bool host_file_read(int fd, size_t *size, int *node)
{
	char path[64], name[64];
	int seals = fcntl(fd, F_GET_SEALS), end = 0;
	struct stat st;
	ssize_t len;

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) || st.st_size <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	len = readlink(path, name, sizeof(name) - 1);
	if (len < 0)
		return false;
	name[len] = '\0';
	if (sscanf(name, "/memfd:" NAME "%d (deleted)%n", node, &end) != 1 || end != len)
		return false;
	*size = (size_t)st.st_size;
	return true;
}
