/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/host/claims.h"
#include "common/system/hostmem.h"
#include "common/system/ownfd.h"
#include "checkpoint/host/promises.h"
#include "common/protocol/rundir.h"
#include "common/system/shortage.h"
#include "common/size.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define LOG_PREFIX "claims: "
#include "common/log.h"

static struct ownfd file = OWNFD_NONE; /* open while something is claimed */
static struct promise claim;

static int open_once(void)
{
	const char *why;
	int dir = rundir_open_own(&why), fd;

	if (dir < 0)
		return dir;
	fd = rundir_open_lock(dir, RUNDIR_CLAIMS);
	close(dir);
	return fd;
}

static int open_file(void)
{
	int tries = 0, fd;

	do
		fd = open_once();
	while (shortage_wait(fd, &tries));
	return fd;
}

static int lock_first_byte(int fd, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

	return fcntl(fd, F_SETLK, &lock) ? -errno : 0;
}

static void lock_file(int fd)
{
	int error = lock_first_byte(fd, F_WRLCK);

	for (int i = 0; i < SHORTAGE_TRIES && (error == -EAGAIN || error == -EACCES); i++) {
		usleep(SHORTAGE_TRY_US);
		error = lock_first_byte(fd, F_WRLCK);
	}
	if (error)
		pr_debug("the file of claims is not locked: %s; claims are made without the lock",
			 error_text(-error));
}

/*
 * The bytes available beyond the claims of others. The claims are counted first: a process lowers
 * its claim after it has taken the memory, so the other order could miss memory in both counts.
 */
static size_t find_available(int fd, uint64_t group)
{
	uint64_t in_group = 0, in_all = 0;
	int error = fd < 0 ? 0 : promise_others(fd, group, &in_group, &in_all);

	if (error)
		pr_debug("the claims of other processes cannot be read: %s", error_text(-error));
	return size_min(size_less(hostmem_machine_available(), in_all),
			size_less(hostmem_cgroup_available(), in_group));
}

size_t claims_make(size_t wanted, size_t reserve)
{
	size_t available, bytes;
	uint64_t group;
	int error, fd;

	claims_drop();
	fd = open_file();
	ownfd_set(&file, fd);
	error = is_shortage(fd) ? fd : hostmem_group(&group);
	if (error) {
		pr_err("cannot read the claims of others: %s; no host memory counts as available",
		       error_text(-error));
		claims_drop();
		return 0;
	}
	/*
	 * The claim is made before the others' claims are counted, so that of two processes at
	 * least one sees the other.
	 */
	if (fd >= 0) {
		lock_file(fd);
		error = promise_make(&claim, fd, group, wanted);
		if (error)
			pr_debug("other processes do not see the claim: %s", error_text(-error));
	}
	available = find_available(fd, group);
	bytes = size_min(wanted, size_less(available, reserve));
	promise_lower(&claim, size_less(claim.left, bytes));
	if (!bytes)
		claims_drop();
	else if (fd >= 0)
		lock_first_byte(fd, F_UNLCK);
	return available;
}

void claims_take(size_t bytes)
{
	promise_lower(&claim, bytes);
}

void claims_drop(void)
{
	claims_take(SIZE_MAX);
	ownfd_close(&file);
}
