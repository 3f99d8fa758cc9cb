/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/ledger/ranks.h"
#include "common/system/forks.h"
#include "vmem/context_gone.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS    10
#define RANKS_MOST 65536 /* a larger size is not a size */

FORKS_LOCK(lock);
/* All under lock. */
static struct comm {
	struct ranks_comm known;
	bool aimed;
	uint64_t target;
} comms[RANKS_COMMS];
static size_t count;
static uint32_t last_id;
static bool aims, passed;
static bool paired; /* a launch of RANKS_SOME was made */

static pid_t sharing_gpu;

static int changes; /* of the targets; a futex */

/* With lock held. NULL: there is no room for one more. */
static struct comm *find_or_add(const struct ranks_launch *launch)
{
	for (size_t i = 0; i < count; i++)
		if (comms[i].known.made.comm == launch->comm &&
		    comms[i].known.made.kind == launch->kind)
			return &comms[i];
	if (count == RANKS_COMMS)
		return NULL;
	comms[count] = (struct comm){.known = {.made = *launch, .id = ++last_id}};
	comms[count].known.made.count = 0;
	return &comms[count++];
}

/* With lock held. The order of the ids stays. */
static void forget(size_t i)
{
	count--;
	for (; i < count; i++)
		comms[i] = comms[i + 1];
}

static bool arrived(void)
{
	for (size_t i = 0; i < count; i++)
		if (comms[i].aimed && comms[i].known.made.count < comms[i].target)
			return false;
	return true;
}

bool ranks_try(const struct ranks_launch *launches, size_t n, int *seen)
{
	bool may;

	pthread_mutex_lock(&lock);
	*seen = changes;
	may = !aims || !arrived();
	for (size_t i = 0; may && i < n; i++) {
		struct comm *c = find_or_add(&launches[i]);

		paired |= launches[i].kind == RANKS_SOME;
		if (!c)
			continue;
		c->known.made.count += launches[i].count;
		passed |= c->aimed && c->known.made.count > c->target;
	}
	pthread_mutex_unlock(&lock);
	return may;
}

void ranks_wait(int seen)
{
	struct timespec most = {.tv_nsec = WAIT_MS * 1000000L};
	int saved_errno = errno;

	syscall(SYS_futex, &changes, FUTEX_WAIT_PRIVATE, seen, &most, NULL, 0);
	errno = saved_errno;
}

/* With lock held. */
static void tell_change(void)
{
	__atomic_add_fetch(&changes, 1, __ATOMIC_RELAXED);
	syscall(SYS_futex, &changes, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void ranks_aim(const struct ranks_target *targets, size_t n)
{
	pthread_mutex_lock(&lock);
	aims = true;
	passed = false;
	for (size_t i = 0; i < count; i++) {
		comms[i].aimed = false;
		for (size_t k = 0; k < n; k++)
			if (targets[k].id == comms[i].known.id) {
				comms[i].aimed = true;
				comms[i].target = targets[k].count;
			}
		passed |= comms[i].aimed && comms[i].known.made.count > comms[i].target;
	}
	tell_change();
	pthread_mutex_unlock(&lock);
}

bool ranks_arrived(void)
{
	bool have;

	pthread_mutex_lock(&lock);
	have = arrived();
	pthread_mutex_unlock(&lock);
	return have;
}

bool ranks_passed(void)
{
	bool have;

	pthread_mutex_lock(&lock);
	have = passed;
	passed = false;
	pthread_mutex_unlock(&lock);
	return have;
}

bool ranks_paired(void)
{
	bool have;

	pthread_mutex_lock(&lock);
	have = paired;
	paired = false;
	pthread_mutex_unlock(&lock);
	return have;
}

void ranks_let_go(void)
{
	pthread_mutex_lock(&lock);
	if (aims) {
		aims = false;
		tell_change();
	}
	pthread_mutex_unlock(&lock);
}

/* Freed memory of vmem may stay mapped, for a later allocation. */
static bool is_allocated(const struct cuda_driver *drv, CUdeviceptr at)
{
	struct vmem_info info;
	unsigned int type;

	if (vmem_contains(at))
		return vmem_lookup(at, &info);
	return !drv->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
}

/*
 * The first two words at @at, in @ctx, to @words, unless that is NULL. -ENOENT: no memory is there. Any
 * other failure leaves them not known.
 */
static int read_words(const struct cuda_driver *drv, CUcontext ctx, CUdeviceptr at, uint32_t *words)
{
	CUstream stream;
	CUresult error = CUDA_SUCCESS;

	if (drv->cuCtxSetCurrent(ctx))
		return -EIO;
	if (!is_allocated(drv, at)) {
		drv->cuCtxSetCurrent(NULL);
		return -ENOENT;
	}
	if (words)
		error = drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
	if (words && !error) {
		error = drv->cuMemcpyDtoHAsync_v2(words, at, 2 * sizeof(*words), stream);
		if (!error)
			error = drv->cuStreamSynchronize(stream);
		drv->cuStreamDestroy_v2(stream);
	}
	drv->cuCtxSetCurrent(NULL);
	return error ? -EIO : 0;
}

static bool has(const struct context_list *contexts, CUcontext ctx)
{
	for (size_t i = 0; i < contexts->count; i++)
		if (contexts->items[i].ctx == ctx)
			return true;
	return false;
}

/* Put what was read of the communicator with @id into the table. */
static void note(uint32_t id, int error, const uint32_t *words)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < count; i++) {
		struct ranks_comm *c = &comms[i].known;

		if (c->id != id)
			continue;
		if (words) {
			c->rank = words[0];
			c->size = !error && words[0] < words[1] && words[1] <= RANKS_MOST ? words[1]
											  : 0;
			c->read = c->made.count;
		}
		if (error == -ENOENT)
			forget(i);
		break;
	}
	pthread_mutex_unlock(&lock);
}

void ranks_read(const struct cuda_driver *drv, const struct context_list *contexts, bool all)
{
	struct ranks_comm list[RANKS_COMMS];
	size_t n = ranks_list(list);

	for (size_t i = 0; i < n; i++) {
		const struct ranks_launch *made = &list[i].made;
		uint32_t words[2] = {0}, *to = words;

		if (made->kind == RANKS_OTHER || !has(contexts, made->ctx))
			continue;
		if (!all && list[i].size && list[i].read == made->count)
			to = NULL;
		note(list[i].id, read_words(drv, made->ctx, made->comm, to), to);
	}
}

/* How many contexts have communicators of @size ranks. */
static size_t contexts_of(const struct ranks_comm *list, size_t n, uint32_t size)
{
	size_t contexts = 0;

	for (size_t i = 0; i < n; i++) {
		bool fresh = list[i].size == size;

		for (size_t k = 0; fresh && k < i; k++)
			fresh = list[k].size != size || list[k].made.ctx != list[i].made.ctx;
		contexts += fresh;
	}
	return contexts;
}

uint32_t ranks_outside(void)
{
	struct ranks_comm list[RANKS_COMMS];
	size_t n = ranks_list(list);

	for (size_t i = 0; i < n; i++)
		if (list[i].size > 1 && contexts_of(list, n, list[i].size) < list[i].size)
			return list[i].size;
	return 0;
}

/* A communicator whose size could not be read may have ranks anywhere. */
static bool may_be_outside(void)
{
	struct ranks_comm list[RANKS_COMMS];
	size_t n = ranks_list(list);

	for (size_t i = 0; i < n; i++)
		if (!list[i].size)
			return true;
	return ranks_outside();
}

void ranks_share_gpu(pid_t pid)
{
	__atomic_store_n(&sharing_gpu, pid && may_be_outside() ? pid : 0, __ATOMIC_RELAXED);
}

pid_t ranks_sharing_gpu(void)
{
	return __atomic_load_n(&sharing_gpu, __ATOMIC_RELAXED);
}

size_t ranks_list(struct ranks_comm list[static RANKS_COMMS])
{
	size_t n;

	pthread_mutex_lock(&lock);
	n = count;
	for (size_t i = 0; i < n; i++)
		list[i] = comms[i].known;
	pthread_mutex_unlock(&lock);
	return n;
}

static void forget_context(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	for (size_t i = count; i-- > 0;)
		if (comms[i].known.made.ctx == ctx)
			forget(i);
	pthread_mutex_unlock(&lock);
}
CONTEXT_GONE(forget_context);

static void forget_in_child(void)
{
	count = 0;
	aims = passed = paired = false;
}
FORKS_CHILD(forget_in_child);
