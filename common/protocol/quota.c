/* SPDX-License-Identifier: Apache-2.0 */
#include "common/protocol/quota.h"
#include "common/environment.h"
#include "common/system/forks.h"
#include "common/processes/proc.h"
#include "common/protocol/quota_file.h"
#include "common/protocol/rundir.h"
#include "common/settings.h"
#include "common/system/shortage.h"
#include "common/size.h"
#include "common/text.h"

#include <errno.h>
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
 * For the lock of the account, which is held for some system calls: 0.1 ms to 5 ms between two tries, a second in
 * all. Its holder may have been stopped: then others try once only, until that succeeds.
 */
#define TRIES      205
#define TRY_US     100
#define TRY_MAX_US 5000

#define START_TICKS 8192 /* of 10 ms: 82 s */

static struct {
	size_t each[GPU_MAX];
	char variable[QUOTA_NAME_SIZE]; /* one that is in effect */
	bool on, is_job_s;              /* CUDAW_MEM alone is in effect */
} quotas;
static pthread_once_t once = PTHREAD_ONCE_INIT;

FORKS_LOCK(lock);
/* Under lock: */
static char job[RUNDIR_ID_SIZE]; /* "": not known yet */
static bool away;                /* an image of the process is made, or it ends */
static struct account {
	char gpu[NVML_UUID_SIZE]; /* "": not known yet */
	size_t own, others;
} accounts[GPU_MAX];

static __thread bool refused __attribute__((tls_model("initial-exec")));

void quota_variable(int number, struct quota_variable *variable)
{
	const char *value;

	*variable = (struct quota_variable){0};
	value = environment_get(quota_variable_name(number, variable->name));
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
	const char *value = environment_get(quotas.variable);
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

/*
 * The name that all processes below @root find. They may see its start time one tick apart if their time namespaces
 * differ (rundir_common_start()). So it counts in whole START_TICKS: that leaves one case of 8,192 with two names. The
 * PID namespace tells containers apart that have the same PID and were started at the same time.
 */
static void name_of(pid_t root, char id[RUNDIR_ID_SIZE])
{
	uint64_t start = rundir_common_start(root) / START_TICKS, space = 0;
	struct stat st;

	if (!stat("/proc/thread-self/ns/pid", &st))
		space = st.st_ino;
	rundir_make_id((space << 32) ^ (start << 22) ^ (uint64_t)root, id);
}

/* Returns 0 or a shortage: the job is not known yet, and must not get a wrong name for the process's life. */
static int find_job(void)
{
	char found[RUNDIR_ID_SIZE];
	pid_t root;
	int error = 0;

	if (*job)
		return 0;
	if (setting_text(SETTING_JOB) && quotas.is_job_s) {
		errno = 0;
		rundir_job_id(found);
	} else {
		error = find_root(&root);
		name_of(root, found);
	}
	error = error ? error : shortage();
	if (!error)
		strcpy(job, found);
	return error;
}

static void say(int error, const char *why)
{
	if (error && error != -EAGAIN && error != -ESTALE && !is_shortage(error))
		pr_err_once(
			"the account of the job in the runtime directory cannot be used: %s; each "
			"process has the limit for itself",
			why);
}

/* Returns 0, -EAGAIN if the account is open and not locked, or another negative errno. */
static int try_lock(const char **why)
{
	int error = find_job();

	if (!error)
		error = quota_file_open(job, why);
	if (error)
		return error;
	error = quota_file_lock();
	*why = error_text(-error);
	return error;
}

/* The same, in a second at most, but never -ESTALE. Others have the lock of this module while it waits. */
static int lock_account(const char **why)
{
	static bool late; /* under lock */
	unsigned int us = TRY_US;
	int error = 0;

	for (int i = 0; i < TRIES; i++) {
		error = try_lock(why);
		if (error != -ESTALE && (error != -EAGAIN || late))
			break;
		pthread_mutex_unlock(&lock);
		usleep(us);
		us = us < TRY_MAX_US ? 2 * us : TRY_MAX_US;
		pthread_mutex_lock(&lock);
	}
	late = error == -EAGAIN;
	if (late)
		pr_err_once(
			"a process has kept the account of the job locked for a second: it may be stopped; "
			"until it goes on, allocations of several processes at once may all be refused");
	if (error != -ESTALE)
		return error;
	*why = "its file is removed again and again";
	return -EIO;
}

/* Let the account, which is open, say that the process has @bytes of @dev. */
static void put(int dev, size_t bytes)
{
	int error = quota_file_write(dev, accounts[dev].gpu, quotas.each[dev], bytes);

	say(error, error_text(-error));
}

/* Add up what the account says of the GPU named @gpu. Returns 0 or a negative errno with @why. */
static int look(const char *gpu, struct quota_sum *sum, const char **why)
{
	int error = find_job();

	return error ? error : quota_file_sum(job, gpu, sum, why);
}

/* The others keep what they had if that cannot be seen now. */
static void see_others(int dev)
{
	struct quota_sum sum;
	const char *why = "";
	int error;

	if (!*accounts[dev].gpu)
		return;
	error = look(accounts[dev].gpu, &sum, &why);
	say(error, why);
	if (!error)
		accounts[dev].others = sum.others;
}

static bool fits(int dev, size_t bytes)
{
	size_t sum;

	return !__builtin_add_overflow(bytes, accounts[dev].own, &sum) &&
	       !__builtin_add_overflow(sum, accounts[dev].others, &sum) && sum <= quotas.each[dev];
}

static bool is_missing(int dev)
{
	return *accounts[dev].gpu && accounts[dev].own && !quota_file_has(dev);
}

/* Its place in the account, which is open, was lost for all GPUs at once. */
static void put_missing(void)
{
	for (int dev = 0; dev < GPU_MAX; dev++)
		if (is_missing(dev))
			put(dev, accounts[dev].own);
}

/* With the lock held: if the process has no place in the account, let it have one, as far as that does not wait. */
static void place(void)
{
	const char *why = "";
	int dev = 0, error;

	while (dev < GPU_MAX && !is_missing(dev))
		dev++;
	if (away || dev == GPU_MAX)
		return;
	error = try_lock(&why);
	say(error, why);
	if (!error || error == -EAGAIN)
		put_missing();
	if (!error)
		quota_file_unlock();
}

/*
 * With the lock held: have @bytes more, if they fit. The account says so before this looks at the others, so that of
 * two processes that do so at once, without its lock, none misses the other.
 */
static bool take(int dev, size_t bytes)
{
	struct account *account = &accounts[dev];
	const char *why = "";
	int locked = *account->gpu ? lock_account(&why) : -ENOENT;
	bool usable = !locked || locked == -EAGAIN;

	if (*account->gpu)
		say(locked, why);
	if (usable)
		put_missing();
	if (usable && bytes <= quotas.each[dev]) {
		put(dev, account->own + bytes);
		see_others(dev);
		if (!fits(dev, bytes))
			put(dev, account->own);
	}
	if (!locked)
		quota_file_unlock();
	if (!fits(dev, bytes))
		return false;
	account->own += bytes;
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
	size_t quota = quota_of(dev);
	int saved;

	if (quota == SIZE_MAX || !bytes)
		return true;
	saved = enter();
	refused = !take(dev, bytes);
	if (refused)
		pr_info("%zu bytes more of GPU %d are beyond %zu: this process has %zu, others of "
			"the job %zu",
			bytes, dev, quota, accounts[dev].own, accounts[dev].others);
	leave(saved);
	return !refused;
}

/* It is the process's own row, which needs no lock of the file: nobody who frees memory waits. */
void quota_give(int dev, size_t bytes)
{
	int saved;

	if (!bytes || quota_of(dev) == SIZE_MAX)
		return;
	saved = enter();
	accounts[dev].own = size_less(accounts[dev].own, bytes);
	if (quota_file_has(dev))
		put(dev, accounts[dev].own);
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
	place();
	see_others(dev);
	left = size_less(left, accounts[dev].own + accounts[dev].others);
	leave(saved);
	return left;
}

/* The quotas are not read: an error about them is for a program that asks. */
void quota_find(void)
{
	int saved = enter();
	const char *why;

	quota_file_find(&why);
	leave(saved);
}

bool quota_used_of(const char *uuid, size_t *used, size_t *quota)
{
	struct quota_sum sum;
	const char *why = "";
	int saved, error;

	if (!quota_is_on())
		return false;
	saved = enter();
	error = look(uuid, &sum, &why);
	if (error && !is_shortage(error))
		pr_err_once("the account of the job in the runtime directory cannot be read: %s; "
			    "NVML's own figures are shown",
			    why);
	leave(saved);
	if (error)
		return false;
	*used = sum.own + sum.others;
	if (sum.quota)
		*quota = sum.quota;
	return true;
}

static bool is_renamed(int dev, const char *uuid)
{
	return quotas.each[dev] != SIZE_MAX && strcmp(accounts[dev].gpu, uuid) != 0;
}

/* GPUs may change places: first all leave their old ones. */
void quota_name_gpus(const struct gpu *gpus, size_t count)
{
	int saved;

	if (!quota_is_on())
		return;
	saved = enter();
	for (int dev = 0; dev < (int)count; dev++)
		if (is_renamed(dev, gpus[dev].uuid)) {
			quota_file_leave(dev);
			*accounts[dev].gpu = '\0';
		}
	for (int dev = 0; dev < (int)count; dev++)
		if (is_renamed(dev, gpus[dev].uuid))
			snprintf(accounts[dev].gpu, sizeof(accounts[dev].gpu), "%s",
				 gpus[dev].uuid);
	place();
	leave(saved);
}

void quota_look(void)
{
	int saved;

	if (!quota_is_on())
		return;
	saved = enter();
	place();
	leave(saved);
}

void quota_restored(void)
{
	int saved;

	if (!quota_is_on())
		return;
	saved = enter();
	*job = '\0';
	away = false;
	quota_file_close();
	place();
	leave(saved);
}

void quota_imaged(bool is)
{
	int saved;

	if (!quota_is_on())
		return;
	saved = enter();
	away = is;
	if (is)
		quota_file_close();
	else
		place();
	leave(saved);
}

void quota_end(void)
{
	int saved = enter();

	away = true;
	quota_file_end();
	leave(saved);
}

/* The child has no memory of a GPU. */
static void forget_in_child(void)
{
	*job = '\0';
	away = false;
	for (int dev = 0; dev < GPU_MAX; dev++)
		accounts[dev].own = 0;
	quota_file_close();
}
FORKS_CHILD(forget_in_child);
