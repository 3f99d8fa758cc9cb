/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"

#include "common/system/forks.h"
#include "vmem/context_gone.h"

#include <stdlib.h>
#include <utlist.h>

/* A context that has access to the memory of another context. */
struct grant {
	CUcontext ctx, owner;
	CUdevice dev, owner_dev;
	struct grant *next;
};

FORKS_LOCK(lock);
static struct grant *grants; /* under lock */

static struct grant *find(CUcontext ctx, CUcontext owner)
{
	struct grant *p;

	LL_FOREACH(grants, p)
		if (p->ctx == ctx && p->owner == owner)
			break;
	return p;
}

static bool has_access(CUdevice dev, CUdevice owner_dev)
{
	const struct grant *p;

	LL_FOREACH(grants, p)
		if (p->dev == dev && p->owner_dev == owner_dev)
			return true;
	return false;
}

/* Change @user's access to all regions of @dev below @end; *@failed is the first that fails. */
static CUresult set_user(CUdevice dev, CUdevice user, bool on, CUdeviceptr end, CUdeviceptr *failed)
{
	CUdeviceptr pos = VMEM_BASE;
	struct region *r;

	while ((r = region_next(dev, &pos)) && r->start < end) {
		CUresult rc;

		if (!region_is_mapped(r) || r->start != r->run)
			continue;
		rc = mapping_set_user(vm.drv, user, on, r->run, r->run_size);
		if (rc != CUDA_SUCCESS) {
			*failed = r->start;
			return rc;
		}
	}
	return CUDA_SUCCESS;
}

/* Give @user the access to @dev's memory that it should have now. On failure nothing changes. */
static CUresult update(CUdevice dev, CUdevice user)
{
	struct device *d = &vm.devices[dev];
	bool on = d->copiers >> user & 1 || has_access(user, dev);
	CUresult rc = CUDA_SUCCESS;
	CUdeviceptr failed;

	pthread_mutex_lock(&d->lock);
	if ((d->users >> user & 1) != on) {
		rc = set_user(dev, user, on, VMEM_BASE + SPACE_SIZE, &failed);
		if (rc == CUDA_SUCCESS)
			d->users ^= 1UL << user;
		else
			set_user(dev, user, !on, failed, &failed);
	}
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static CUresult enable(CUcontext ctx, CUdevice dev, CUcontext owner, CUdevice owner_dev)
{
	struct grant *p;
	CUresult rc;

	if (find(ctx, owner))
		return CUDA_SUCCESS;
	p = malloc(sizeof(*p));
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*p = (struct grant){.ctx = ctx, .owner = owner, .dev = dev, .owner_dev = owner_dev};
	LL_PREPEND(grants, p);
	rc = update(owner_dev, dev);
	if (rc != CUDA_SUCCESS) {
		LL_DELETE(grants, p);
		free(p);
	}
	return rc;
}

CUresult vmem_access_enable(CUcontext ctx, CUdevice dev, CUcontext owner, CUdevice owner_dev)
{
	CUresult rc;

	if (dev < 0 || dev >= GPU_MAX || owner_dev < 0 || owner_dev >= GPU_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	/* A device has access to its own memory anyway. */
	if (dev == owner_dev)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	rc = enable(ctx, dev, owner, owner_dev);
	pthread_mutex_unlock(&lock);
	return rc;
}

/* Forget @p, which is freed unless the access cannot be changed. */
static CUresult disable(struct grant *p)
{
	CUresult rc;

	LL_DELETE(grants, p);
	rc = update(p->owner_dev, p->dev);
	if (rc == CUDA_SUCCESS)
		free(p);
	else
		LL_PREPEND(grants, p);
	return rc;
}

CUresult vmem_access_disable(CUcontext ctx, CUcontext owner)
{
	CUresult rc = CUDA_SUCCESS;
	struct grant *p;

	pthread_mutex_lock(&lock);
	p = find(ctx, owner);
	if (p)
		rc = disable(p);
	pthread_mutex_unlock(&lock);
	return rc;
}

CUresult vmem_copies_enable(CUdevice dev, CUdevice owner_dev)
{
	struct device *d;
	CUresult rc;

	if (dev < 0 || dev >= GPU_MAX || owner_dev < 0 || owner_dev >= GPU_MAX || dev == owner_dev)
		return CUDA_ERROR_INVALID_VALUE;
	d = &vm.devices[owner_dev];
	pthread_mutex_lock(&lock);
	d->copiers |= 1UL << dev;
	rc = update(owner_dev, dev);
	if (rc != CUDA_SUCCESS)
		d->copiers &= ~(1UL << dev);
	pthread_mutex_unlock(&lock);
	return rc;
}

/* A failure leaves access behind that nobody uses, until the pair of devices changes again. */
static void forget_context(CUcontext ctx)
{
	struct grant *p, *next;

	pthread_mutex_lock(&lock);
	LL_FOREACH_SAFE(grants, p, next) {
		if (p->ctx != ctx && p->owner != ctx)
			continue;
		LL_DELETE(grants, p);
		update(p->owner_dev, p->dev);
		free(p);
	}
	pthread_mutex_unlock(&lock);
}
CONTEXT_GONE(forget_context);
