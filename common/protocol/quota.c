/* SPDX-License-Identifier: Apache-2.0 */
#include "common/protocol/quota.h"
#include "common/system/forks.h"
#include "common/system/proc.h"
#include "common/protocol/rundir.h"
#include "common/settings.h"
#include "common/system/shortage.h"
#include "common/system/size_signal.h"
#include "common/size.h"
#include "common/text.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_PREFIX "memory limit: "
#include "common/log.h"

/*
 * For the lock of the file, which is held for some system calls: 0.1 ms to 5 ms between two tries, a second in
 * all. Its holder may have been stopped: then others try once only, until that succeeds.
 */
#define TRIES      205
#define TRY_US     100
#define TRY_MAX_US 5000

#define ROWS 16 /* that are read at once */

/* Zeros are a free one. */
struct row {
	char job[8];
	uint32_t pid, unused;
	uint64_t start; /* clock ticks since boot */
	uint64_t ids;   /* the PID namespace */
	char gpu[48];
	uint64_t quota, bytes;
};

static struct {
	size_t each[GPU_MAX];
	char variable[sizeof(((struct quota_variable *)0)->name)]; /* one that is in effect */
	bool on, is_job_s; /* CUDAW_MEM alone is in effect */
} quotas;
static pthread_once_t once = PTHREAD_ONCE_INIT;

FORKS_LOCK(lock);
/* Under lock: */
static struct row self; /* this process; no PID: it is not known yet */
static struct account {
	char gpu[NVML_UUID_SIZE]; /* "": not known yet */
	size_t own, others;
} accounts[GPU_MAX];

static __thread bool refused __attribute__((tls_model("initial-exec")));

void quota_variable(int number, struct quota_variable *variable)
{
	const char *value;

	*variable = (struct quota_variable){.name = QUOTA_HAMI};
	if (number)
		snprintf(variable->name, sizeof(variable->name), QUOTA_HAMI "_%d", number - 1);
	value = secure_getenv(variable->name);
	variable->value = value ? value : "";
	variable->wrong = *variable->value && !size_parse(value, &variable->quota);
}

static void read_variable(int number, struct quota_variable *variable)
{
	quota_variable(number, variable);
	if (variable->wrong)
		pr_err("%s=%s: " QUOTA_HAMI_WHY, variable->name, variable->value);
}

static void read_quotas(void)
{
	struct quota_variable every, one;
	size_t mem = SIZE_MAX;

	setting_size(SETTING_MEM, &mem);
	read_variable(0, &every);
	for (int dev = 0; dev < GPU_MAX; dev++) {
		read_variable(dev + 1, &one);
		if (!one.quota)
			one = every;
		quotas.each[dev] = one.quota ? size_min(one.quota, mem) : mem;
		if (one.quota && one.quota < mem)
			strcpy(quotas.variable, one.name);
	}
	quotas.is_job_s = !*quotas.variable;
	if (quotas.is_job_s && mem != SIZE_MAX)
		strcpy(quotas.variable, settings[SETTING_MEM].name);
	quotas.on = *quotas.variable;
}

bool quota_is_on(void)
{
	int saved = errno;

	pthread_once(&once, read_quotas);
	errno = saved;
	return quotas.on;
}

size_t quota_of(int dev)
{
	return quota_is_on() && dev >= 0 && dev < GPU_MAX ? quotas.each[dev] : SIZE_MAX;
}

/* Of the last call that has set errno. Returns 0 or a negative errno. */
static int shortage(void)
{
	return is_shortage(-errno) ? -errno : 0;
}

/* The oldest ancestor in a row, or this process, with the same value of the variable. Returns 0 or a shortage. */
static int find_root(pid_t *root)
{
	const char *value = secure_getenv(quotas.variable);
	char other[64];
	pid_t parent;

	errno = 0;
	*root = getpid();
	while (value && host_process(*root, &parent) && parent > 0) {
		host_environment(parent, quotas.variable, other, sizeof(other));
		if (strcmp(value, other) != 0)
			break;
		*root = parent;
	}
	return shortage();
}

static uint64_t ids_here(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) ? 0 : st.st_ino;
}

/* Returns 0 or a shortage: the process is not known yet, and must not get a wrong name for its life. */
static int find_self(void)
{
	struct row found = {.pid = (uint32_t)getpid(), .ids = ids_here()};
	pid_t root;
	int error;

	if (self.pid)
		return 0;
	found.start = rundir_start_time(getpid());
	error = shortage();
	if (!error && !(setting_text(SETTING_JOB) && quotas.is_job_s)) {
		error = find_root(&root);
		rundir_id_of(root, found.job);
	} else {
		rundir_job_id(found.job);
	}
	error = error ? error : shortage();
	if (!error)
		self = found;
	return error;
}

static void say(int error, const char *why)
{
	if (error != -EAGAIN && !is_shortage(error))
		pr_err_once(
			"the account of the job in the runtime directory cannot be used: %s; each "
			"process has the limit for itself",
			why);
}

/* One try. The directory is not open between two: the program may close descriptors that it does not know. */
static int try_file(void)
{
	const char *why;
	int dir = rundir_open_own(&why), fd;

	if (dir < 0) {
		say(dir, why);
		return dir;
	}
	fd = rundir_lock(dir, RUNDIR_QUOTAS);
	close(dir);
	return fd;
}

/* The file, locked, to be written without a signal. Returns a descriptor for close_file(), or a negative errno. */
static int open_file(struct size_signal *before)
{
	static bool late; /* under lock */
	int error = find_self(), fd = error ? error : try_file();
	unsigned int us = TRY_US;

	for (int i = 0; i < TRIES && fd == -EAGAIN && !late; i++) {
		usleep(us);
		us = us < TRY_MAX_US ? 2 * us : TRY_MAX_US;
		fd = try_file();
	}
	late = fd == -EAGAIN;
	if (late)
		pr_err_once(
			"a process has kept the account of the job locked for a second: it may be stopped; "
			"until it goes on, each process adds what it last saw of the others");
	if (fd >= 0)
		size_signal_block(before);
	return fd;
}

static void close_file(int fd, const struct size_signal *before)
{
	rundir_unlock(fd);
	size_signal_unblock(before);
}

/* What one look at the file has found. */
struct look {
	const char *gpu;
	bool sweep;      /* clear the rows of processes that have ended */
	long mine, free; /* numbers of rows; -1: none */
	long end;
	uint64_t mine_bytes, others, quota;
};

static bool is_mine(const struct row *row)
{
	return row->pid == self.pid && row->start == self.start && row->ids == self.ids;
}

static bool has_ended(const struct row *row)
{
	uint64_t start;

	if (row->ids != self.ids || is_mine(row))
		return false;
	start = rundir_start_time((pid_t)row->pid);
	return start != row->start && start != RUNDIR_START_UNKNOWN;
}

static void look_at(int fd, struct look *look, const struct row *row, long number)
{
	static const struct row none;
	bool same = !strncmp(row->gpu, look->gpu, sizeof(row->gpu)) &&
		    !strncmp(row->job, self.job, sizeof(row->job));

	if (row->pid && look->sweep && has_ended(row) &&
	    pwrite(fd, &none, sizeof(none), number * (off_t)sizeof(none)) == sizeof(none))
		row = &none;
	if (!row->pid) {
		look->free = look->free < 0 ? number : look->free;
		return;
	}
	if (!same)
		return;
	look->quota = row->quota;
	if (is_mine(row)) {
		look->mine = number;
		look->mine_bytes = row->bytes;
	} else {
		look->others += row->bytes;
	}
}

/* Returns 0 or a negative errno. */
static int look_through(int fd, const char *gpu, bool sweep, struct look *look)
{
	struct row rows[ROWS];
	long n = ROWS;

	*look = (struct look){.gpu = gpu, .sweep = sweep, .mine = -1, .free = -1};
	for (long at = 0; n == ROWS; at += n) {
		ssize_t len = pread(fd, rows, sizeof(rows), at * (off_t)sizeof(*rows));

		if (len < 0)
			return -errno;
		n = len / (long)sizeof(*rows);
		for (long i = 0; i < n; i++)
			look_at(fd, look, &rows[i], at + i);
		look->end = at + n;
	}
	return 0;
}

/* Returns 0 or a negative errno. */
static int write_row(int fd, const struct look *look, int dev, size_t bytes)
{
	long number = look->mine >= 0 ? look->mine : look->free >= 0 ? look->free : look->end;
	struct row row = self;
	ssize_t len;

	snprintf(row.gpu, sizeof(row.gpu), "%s", look->gpu);
	row.quota = quotas.each[dev];
	row.bytes = bytes;
	len = pwrite(fd, &row, sizeof(row), number * (off_t)sizeof(row));
	return len < 0 ? -errno : len == sizeof(row) ? 0 : -EIO;
}

static bool fits(const struct account *account, int dev, size_t bytes)
{
	size_t sum;

	return !__builtin_add_overflow(bytes, account->others, &sum) && sum <= quotas.each[dev];
}

/*
 * With the file @fd locked: let this process have @bytes of @dev, if they fit or @anyway. Returns 0, or a negative
 * errno: the file does not say so.
 */
static int write_account(int fd, int dev, size_t bytes, bool anyway)
{
	struct account *account = &accounts[dev];
	struct look look;
	int error = look_through(fd, account->gpu, anyway, &look);

	account->others = error ? account->others : look.others;
	if (!error && !anyway && (look.mine < 0 || !fits(account, dev, bytes))) {
		error = look_through(fd, account->gpu, true, &look);
		account->others = error ? account->others : look.others;
	}
	if (error || (!anyway && !fits(account, dev, bytes)) ||
	    (look.mine >= 0 && look.mine_bytes == bytes))
		return error;
	return write_row(fd, &look, dev, bytes);
}

/* With the lock held: let the file say that. */
static void update(int dev, size_t bytes, bool anyway)
{
	struct size_signal before;
	int error, fd = open_file(&before);

	error = fd < 0 ? fd : write_account(fd, dev, bytes, anyway);
	if (fd >= 0)
		close_file(fd, &before);
	if (error)
		say(error, error_text(-error));
}

/* With the lock held: the same. False: they do not fit. */
static bool change(int dev, size_t bytes, bool anyway)
{
	struct account *account = &accounts[dev];

	if (*account->gpu)
		update(dev, bytes, anyway);
	if (!anyway && !fits(account, dev, bytes))
		return false;
	account->own = bytes;
	return true;
}

/* For each call of this module, which the program does not know of. */
static int enter(void)
{
	int saved = errno;

	pthread_mutex_lock(&lock);
	return saved;
}

static void leave(int saved)
{
	pthread_mutex_unlock(&lock);
	errno = saved;
}

bool quota_take(int dev, size_t bytes)
{
	size_t quota = quota_of(dev), sum;
	int saved;

	if (quota == SIZE_MAX || !bytes)
		return true;
	saved = enter();
	refused =
		__builtin_add_overflow(accounts[dev].own, bytes, &sum) || !change(dev, sum, false);
	if (refused)
		pr_info("%zu bytes more of GPU %d are beyond %zu: this process has %zu, others of "
			"the job %zu",
			bytes, dev, quota, accounts[dev].own, accounts[dev].others);
	leave(saved);
	return !refused;
}

void quota_give(int dev, size_t bytes)
{
	int saved;

	if (!bytes || quota_of(dev) == SIZE_MAX)
		return;
	saved = enter();
	change(dev, size_less(accounts[dev].own, bytes), true);
	leave(saved);
}

void quota_begin(void)
{
	refused = false;
}

bool quota_has_refused(void)
{
	return refused;
}

size_t quota_left(int dev)
{
	size_t left = quota_of(dev);
	int saved;

	if (left == SIZE_MAX)
		return left;
	saved = enter();
	change(dev, accounts[dev].own, true);
	left = size_less(left, accounts[dev].own + accounts[dev].others);
	leave(saved);
	return left;
}

bool quota_used_of(const char *uuid, size_t *used, size_t *quota)
{
	struct look look = {0};
	struct size_signal before;
	int saved, fd, error;

	if (!quota_is_on())
		return false;
	saved = enter();
	fd = open_file(&before);
	error = fd < 0 ? fd : look_through(fd, uuid, true, &look);
	if (fd >= 0)
		close_file(fd, &before);
	if (error)
		say(error, error_text(-error));
	leave(saved);
	if (error)
		return false;
	*used = look.mine_bytes + look.others;
	if (look.quota)
		*quota = look.quota;
	return true;
}

static bool is_renamed(int dev, const char *uuid)
{
	return quotas.each[dev] != SIZE_MAX && strcmp(accounts[dev].gpu, uuid) != 0;
}

/* What the process has of @dev counts no longer under its name. */
static void unname(int dev)
{
	struct account *account = &accounts[dev];
	size_t own = account->own;

	if (own)
		change(dev, 0, true);
	account->own = own;
	*account->gpu = '\0';
}

/* GPUs may change places: first all leave their old ones. */
void quota_name_gpus(const struct gpu *gpus, size_t count)
{
	int saved;

	if (!quota_is_on())
		return;
	saved = enter();
	for (int dev = 0; dev < (int)count; dev++)
		if (is_renamed(dev, gpus[dev].uuid))
			unname(dev);
	for (int dev = 0; dev < (int)count; dev++)
		if (is_renamed(dev, gpus[dev].uuid)) {
			snprintf(accounts[dev].gpu, sizeof(accounts[dev].gpu), "%s",
				 gpus[dev].uuid);
			change(dev, accounts[dev].own, true);
		}
	leave(saved);
}

void quota_restored(void)
{
	int saved;

	if (!quota_is_on())
		return;
	saved = enter();
	self.pid = 0;
	for (int dev = 0; dev < GPU_MAX; dev++)
		if (*accounts[dev].gpu && accounts[dev].own)
			change(dev, accounts[dev].own, true);
	leave(saved);
}

/* The child has no memory of a GPU. */
static void forget_in_child(void)
{
	self.pid = 0;
	for (int dev = 0; dev < GPU_MAX; dev++)
		accounts[dev].own = 0;
}
FORKS_CHILD(forget_in_child);
