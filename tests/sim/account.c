/* SPDX-License-Identifier: Apache-2.0 */
/* How much of each device's memory is used: by this process, or by all that share a file. */
#include "tests/sim/sim.h"
#include "tests/sim/account.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

_Static_assert(ACCOUNT_DEVICES == SIM_MAX_DEVICES, "one count for each device");

static struct account_file private_account;
static struct account_file *account = &private_account;
static struct account_slot *own = &private_account.slots[0];
static int account_fd = -1;

static void lock_file(void)
{
	while (account_fd >= 0 && account_lock(account_fd, F_WRLCK, 0, F_SETLKW) && errno == EINTR)
		;
}

static void unlock_file(void)
{
	if (account_fd >= 0)
		account_lock(account_fd, F_UNLCK, 0, F_SETLK);
}

/* Take the first slot that no live process owns; the file is locked. */
static int claim_slot(void)
{
	for (int i = 0; i < ACCOUNT_SLOTS; i++) {
		if (account_lock(account_fd, F_WRLCK, 1 + i, F_SETLK))
			continue;
		own = &account->slots[i];
		*own = (struct account_slot){.pid = (int32_t)getpid()};
		return 0;
	}
	return -EBUSY;
}

int account_init(const struct sim_config *config)
{
	struct stat st;
	void *map;
	int err;

	if (!config->shared) {
		private_account.devices = config->gpus;
		private_account.memory = config->memory;
		return 0;
	}
	account_fd = open(config->shared, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (account_fd < 0)
		return -errno;
	lock_file();
	if (fstat(account_fd, &st) || (!st.st_size && ftruncate(account_fd, sizeof(*account)))) {
		err = -errno;
		goto err_close;
	}
	map = mmap(NULL, sizeof(*account), PROT_READ | PROT_WRITE, MAP_SHARED, account_fd, 0);
	if (map == MAP_FAILED) {
		err = -errno;
		goto err_close;
	}
	account = map;
	if (account->magic != ACCOUNT_MAGIC || (config->told_memory && !account->told)) {
		account->memory = config->memory;
		account->told = config->told_memory;
	}
	if (account->magic != ACCOUNT_MAGIC) {
		account->devices = config->gpus;
		account->magic = ACCOUNT_MAGIC;
	}
	err = claim_slot();
	if (err)
		goto err_unmap;
	unlock_file();
	return 0;

err_unmap:
	account = &private_account;
	munmap(map, sizeof(*account));
err_close:
	close(account_fd);
	account_fd = -1;
	return err;
}

static size_t sum_used(int gpu)
{
	size_t sum = own->used[gpu];

	for (int i = 0; account_fd >= 0 && i < ACCOUNT_SLOTS; i++)
		if (&account->slots[i] != own && account->slots[i].used[gpu] &&
		    account_slot_live(account_fd, i))
			sum += account->slots[i].used[gpu];
	return sum;
}

bool account_charge(CUdevice dev, size_t bytes)
{
	size_t used;
	bool ok;

	lock_file();
	used = sum_used(sim.gpu[dev]);
	ok = used <= sim.config.memory && bytes <= sim.config.memory - used;
	if (ok)
		own->used[sim.gpu[dev]] += bytes;
	unlock_file();
	return ok;
}

void account_release(CUdevice dev, size_t bytes)
{
	lock_file();
	own->used[sim.gpu[dev]] -= bytes;
	unlock_file();
}

size_t account_used(CUdevice dev)
{
	size_t used;

	lock_file();
	used = sum_used(sim.gpu[dev]);
	unlock_file();
	return used;
}
