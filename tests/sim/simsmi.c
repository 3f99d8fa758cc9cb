/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simsmi: what nvidia-smi is to a GPU, for simulated devices that share a CUDAW_SIM_SHARED file.
 *
 *	simsmi FILE
 *
 * prints "DEVICE USED_BYTES TOTAL_BYTES" for each device, then "pid PID USED_BYTES" for each live
 * process (its use on all devices). The file may be named by CUDAW_SIM_SHARED instead.
 */
#include "tests/sim/account.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void print_account(const struct account_file *account, const bool *live)
{
	for (int dev = 0; dev < account->devices && dev < ACCOUNT_DEVICES; dev++) {
		uint64_t used = 0;

		for (int i = 0; i < ACCOUNT_SLOTS; i++)
			used += live[i] ? account->slots[i].used[dev] : 0;
		printf("%d %" PRIu64 " %" PRIu64 "\n", dev, used, account->memory);
	}
	for (int i = 0; i < ACCOUNT_SLOTS; i++) {
		uint64_t used = 0;

		for (int dev = 0; dev < ACCOUNT_DEVICES; dev++)
			used += account->slots[i].used[dev];
		if (live[i])
			printf("pid %" PRId32 " %" PRIu64 "\n", account->slots[i].pid, used);
	}
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : getenv("CUDAW_SIM_SHARED");
	const struct account_file *account;
	bool live[ACCOUNT_SLOTS];
	struct stat st;
	int fd;

	if (!path) {
		fprintf(stderr, "usage: simsmi FILE\n");
		return 2;
	}
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || account_lock(fd, F_WRLCK, 0, F_SETLKW) || fstat(fd, &st)) {
		perror(path);
		return 1;
	}
	account = mmap(NULL, sizeof(*account), PROT_READ, MAP_SHARED, fd, 0);
	if (account == MAP_FAILED || (size_t)st.st_size < sizeof(*account) ||
	    account->magic != ACCOUNT_MAGIC) {
		fprintf(stderr, "%s: not a file of CUDAW_SIM_SHARED\n", path);
		return 1;
	}
	for (int i = 0; i < ACCOUNT_SLOTS; i++)
		live[i] = account_slot_live(fd, i);
	print_account(account, live);
	return 0;
}
