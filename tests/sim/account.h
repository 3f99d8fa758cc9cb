/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIM_ACCOUNT_H
#define CUDAW_SIM_ACCOUNT_H
/*
 * The file of CUDAW_SIM_SHARED: how many bytes each process uses on each simulated device.
 *
 * Byte 0 of the file is locked (fcntl) while anything is read or written. A process holds a lock
 * on byte 1 + N for as long as it owns slot N, so the kernel says which slots are live: a process
 * that was killed, or that has exec'd another program, holds none and its use counts no more.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#define ACCOUNT_MAGIC   0x314d4953u /* "SIM1" */
#define ACCOUNT_SLOTS   128
#define ACCOUNT_DEVICES 16

struct account_slot {
	int32_t pid;
	uint64_t used[ACCOUNT_DEVICES];
};

struct account_file {
	uint32_t magic;
	int32_t devices;
	uint64_t memory; /* bytes per device: of the first process that was told, or of the first */
	bool told;
	struct account_slot slots[ACCOUNT_SLOTS];
};

static inline int account_lock(int fd, short type, off_t byte, int command)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, command, &lock);
}

/* True where a process other than the caller owns the slot. */
static inline bool account_slot_live(int fd, int slot)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + slot, .l_len = 1};

	return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

#endif
