/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory shared between processes. A legacy IPC handle, and the file of an exported
 * descriptor, have a record of where the bytes are: in which process, in which of its memfds. The
 * importer opens that one; unlike with a GPU, the exporter must be alive then. What was imported cannot be
 * exported again. Bytes that were exported stay when the exporter frees them. What
 * is shared counts as used by the exporter alone. A dma-buf is such a record, which nobody opens.
 * Also here: memory of other APIs, which is plain
 * memory of the device, and multicast objects, which can only be created and released.
 */
#include "tests/sim/sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARE_MAGIC 0x48534d4953u /* "SIMSH" */

struct share {
	uint64_t ignored; /* the driver opens a handle with a wrong first byte */
	uint64_t magic;
	int pid, fd;
	CUdevice dev;
	int unused; /* no padding, so that two handles of an allocation are equal */
	uint64_t offset, size;
};

_Static_assert(sizeof(struct share) <= sizeof(CUipcMemHandle), "a record fits in a handle");

struct sim_external {
	struct sim_object obj;
	struct sim_alloc *alloc;
};

static struct share share_of(const struct sim_alloc *alloc)
{
	return (struct share){
		.magic = SHARE_MAGIC,
		.pid = getpid(),
		.fd = alloc_backing(alloc),
		.dev = alloc->dev,
		.offset = (uint64_t)alloc->offset,
		.size = alloc->size,
	};
}

/* Takes over @fd, in which the bytes are. */
static CUresult share_take(const struct share *share, int fd, struct sim_alloc **out)
{
	struct sim_alloc *alloc = calloc(1, sizeof(*alloc));

	if (!alloc) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	alloc->fd = fd;
	alloc->imported = true;
	alloc->from = share->pid;
	alloc->from_fd = share->fd;
	alloc->dev = share->dev;
	alloc->offset = (off_t)share->offset;
	alloc->size = share->size;
	object_add(KIND_ALLOC, &alloc->obj);
	*out = alloc;
	return CUDA_SUCCESS;
}

static bool share_is_valid(const struct share *share)
{
	return share->magic == SHARE_MAGIC && share->dev >= 0 &&
	       (share->dev < sim.config.devices || share->dev == SIM_HOST);
}

static CUresult share_open(const struct share *share, struct sim_alloc **out)
{
	char path[64];
	int fd;

	if (!share_is_valid(share))
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", share->pid, share->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? CUDA_ERROR_MAP_FAILED : share_take(share, fd, out);
}

SIM_EXPORT cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	struct sim_map *map;
	struct share share;

	SIM_ENTER(cuIpcGetMemHandle, NEED_CONTEXT);
	map = map_find(ptr);
	if (!handle || !map || map->kind != MAP_DEVICE || map->pool)
		return CUDA_ERROR_INVALID_VALUE;
	share = share_of(map->alloc);
	map->alloc->tainted = true;
	memset(handle, 0, sizeof(*handle));
	memcpy(handle, &share, sizeof(share));
	return CUDA_SUCCESS;
}

/* What the current context has opened by the same handle. */
static struct sim_map *find_opened(const struct share *share)
{
	const struct sim_ctx *ctx = ctx_owner(ctx_current());
	struct sim_map *map = NULL;

	while ((map = map_next(map)))
		if (map->kind == MAP_IMPORTED && map->ctx == ctx &&
		    map->alloc->from == share->pid && map->alloc->from_fd == share->fd &&
		    map->alloc->offset == (off_t)share->offset)
			break;
	return map;
}

SIM_EXPORT cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
	struct sim_alloc *alloc;
	struct sim_map *opened;
	struct share share;
	CUresult result;

	SIM_ENTER(cuIpcOpenMemHandle_v2, NEED_CONTEXT);
	if (!ptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&share, &handle, sizeof(share));
	if (!share_is_valid(&share))
		return CUDA_ERROR_INVALID_VALUE;
	if (share.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	opened = find_opened(&share);
	if (opened) {
		opened->opened++;
		*ptr = opened->start;
		return CUDA_SUCCESS;
	}
	result = share_open(&share, &alloc);
	if (result != CUDA_SUCCESS)
		return result;
	result = alloc_map(ctx_current(), alloc, MAP_IMPORTED, ptr);
	if (result == CUDA_SUCCESS)
		map_find(*ptr)->opened = 1;
	else
		alloc_put(alloc);
	return result;
}

SIM_EXPORT cuIpcCloseMemHandle(CUdeviceptr ptr)
{
	struct sim_map *map;
	CUresult result;

	SIM_ENTER(cuIpcCloseMemHandle, NEED_CONTEXT);
	map = map_find(ptr);
	if (!map || map->kind != MAP_IMPORTED || map->start != ptr)
		return CUDA_ERROR_INVALID_VALUE;
	result = ctx_wait(map->ctx);
	map = map_find(ptr);
	if (result == CUDA_SUCCESS && map && map->start == ptr && !--map->opened)
		memory_free(map);
	return result;
}

/* A file with the record of @alloc, or a negative number. */
static int share_file(const struct sim_alloc *alloc)
{
	struct share share = share_of(alloc);
	int fd = memfd_create("simulated-gpu-share", MFD_CLOEXEC);

	if (fd >= 0 && write(fd, &share, sizeof(share)) != sizeof(share)) {
		close(fd);
		return -1;
	}
	return fd;
}

SIM_EXPORT cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
					CUmemAllocationHandleType type, unsigned long long flags)
{
	struct sim_alloc *alloc = (struct sim_alloc *)handle;
	int fd;

	SIM_ENTER(cuMemExportToShareableHandle, NEED_HEALTHY);
	if (!out || flags || !object_known(KIND_ALLOC, alloc) || !alloc->handles ||
	    alloc->imported || !(alloc->prop.requestedHandleTypes & type))
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	fd = share_file(alloc);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	alloc->exported = true;
	*(int *)out = fd;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemGetHandleForAddressRange(void *out, CUdeviceptr ptr, size_t size,
					 CUmemRangeHandleType type, unsigned long long flags)
{
	struct sim_map *map;
	int fd;

	SIM_ENTER(cuMemGetHandleForAddressRange, NEED_CONTEXT);
	map = map_find(ptr);
	if (!out || !size || flags || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD ||
	    ptr % SIM_PAGE || size % SIM_PAGE || !map_covers(ptr, size) || !map->alloc ||
	    map->alloc->dev == SIM_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	fd = share_file(map->alloc);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)out = fd;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
					  CUmemAllocationHandleType type)
{
	int given = (int)(intptr_t)os_handle;
	struct sim_alloc *alloc;
	struct share share;
	struct stat st;
	CUresult result;

	SIM_ENTER(cuMemImportFromShareableHandle, NEED_HEALTHY);
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (fstat(given, &st) || st.st_size != sizeof(share) ||
	    pread(given, &share, sizeof(share), 0) != sizeof(share))
		return CUDA_ERROR_INVALID_VALUE;
	result = share_open(&share, &alloc);
	if (result != CUDA_SUCCESS)
		return result;
	alloc->handles = 1;
	alloc->prop = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		/* An import of host memory has none [H200, driver 580.159]. */
		.requestedHandleTypes = alloc->dev == SIM_HOST ? CU_MEM_HANDLE_TYPE_NONE : type,
		.location = alloc->dev == SIM_HOST
				    ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}
				    : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, alloc->dev},
	};
	*handle = (CUmemGenericAllocationHandle)alloc;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMulticastCreate(CUmemGenericAllocationHandle *handle,
			     const CUmulticastObjectProp *prop)
{
	struct sim_alloc *alloc;

	SIM_ENTER(cuMulticastCreate, NEED_HEALTHY);
	if (!handle || !prop || !prop->size || prop->size % SIM_GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE;
	alloc = calloc(1, sizeof(*alloc));
	if (!alloc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	alloc->fd = -1;
	alloc->size = prop->size;
	alloc->handles = 1;
	object_add(KIND_ALLOC, &alloc->obj);
	*handle = (CUmemGenericAllocationHandle)alloc;
	return CUDA_SUCCESS;
}

/* The descriptor is taken over, and not looked at. */
SIM_EXPORT cuImportExternalMemory(CUexternalMemory *handle,
				  const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
	struct sim_external *e;
	CUresult result;

	SIM_ENTER(cuImportExternalMemory, NEED_CONTEXT);
	if (!handle || !desc || !desc->size)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
		return CUDA_ERROR_NOT_SUPPORTED;
	e = calloc(1, sizeof(*e));
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = alloc_new(ctx_current()->dev, desc->size, &e->alloc);
	if (result != CUDA_SUCCESS) {
		free(e);
		return result;
	}
	e->alloc->handles = 1;
	close(desc->handle.fd);
	object_add(KIND_EXTERNAL, &e->obj);
	*handle = (CUexternalMemory)e;
	return CUDA_SUCCESS;
}

/* The buffer is freed by cuMemFree(), as its contract has it. */
SIM_EXPORT cuExternalMemoryGetMappedBuffer(CUdeviceptr *ptr, CUexternalMemory handle,
					   const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
	struct sim_external *e = (struct sim_external *)handle;

	SIM_ENTER(cuExternalMemoryGetMappedBuffer, NEED_CONTEXT);
	if (!object_known(KIND_EXTERNAL, e))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!ptr || !desc || desc->offset || desc->flags || desc->size != e->alloc->size)
		return CUDA_ERROR_INVALID_VALUE;
	return alloc_map(ctx_current(), e->alloc, MAP_DEVICE, ptr);
}

SIM_EXPORT cuDestroyExternalMemory(CUexternalMemory handle)
{
	struct sim_external *e = (struct sim_external *)handle;

	SIM_ENTER(cuDestroyExternalMemory, NEED_CONTEXT);
	if (!object_known(KIND_EXTERNAL, e))
		return CUDA_ERROR_INVALID_HANDLE;
	object_remove(&e->obj);
	e->alloc->handles--;
	alloc_put(e->alloc);
	free(e);
	return CUDA_SUCCESS;
}
