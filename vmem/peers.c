/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"

/* Change @peer's access to all regions of @dev below @end; *@failed is the first that fails. */
static CUresult set_peer(CUdevice dev, CUdevice peer, bool on, CUdeviceptr end, CUdeviceptr *failed)
{
	CUdeviceptr pos = VMEM_BASE;
	struct region *r;

	while ((r = region_next(&pos)) && r->start < end) {
		CUresult rc;

		if (r->dev != dev || !r->mapped)
			continue;
		rc = mapping_set_user(vm.drv, peer, on, r->start, r->size);
		if (rc != CUDA_SUCCESS) {
			*failed = r->start;
			return rc;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult change_peer(CUdevice dev, CUdevice peer, bool on)
{
	CUresult rc = CUDA_SUCCESS;
	CUdeviceptr failed;
	struct device *d;

	if (dev < 0 || dev >= GPU_MAX || peer < 0 || peer >= GPU_MAX || dev == peer)
		return CUDA_ERROR_INVALID_VALUE;
	d = &vm.devices[dev];
	pthread_mutex_lock(&vm.lock);
	if ((d->peers >> peer & 1) != on) {
		rc = set_peer(dev, peer, on, VMEM_BASE + SPACE_SIZE, &failed);
		if (rc == CUDA_SUCCESS)
			d->peers ^= 1UL << peer;
		else
			set_peer(dev, peer, !on, failed, &failed);
	}
	pthread_mutex_unlock(&vm.lock);
	return rc;
}

CUresult vmem_peer_enable(CUdevice dev, CUdevice peer)
{
	return change_peer(dev, peer, true);
}

CUresult vmem_peer_disable(CUdevice dev, CUdevice peer)
{
	return change_peer(dev, peer, false);
}
