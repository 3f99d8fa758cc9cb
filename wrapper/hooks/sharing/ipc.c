/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/sharing/ipc.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/ledger/driver_memory.h"
#include "checkpoint/ledger/green.h"
#include "checkpoint/sharing/messages.h"
#include "checkpoint/sharing/sharing.h"
#include "common/size.h"
#include "common/system/forks.h"
#include "vmem/context_gone.h"
#include "vmem/legacy.h"
#include "vmem/addresses/translate.h"
#include "wrapper/current.h"
#include "wrapper/hooks/ordered/fence.h"
#include "wrapper/hooks/ordered/memory.h"
#include "wrapper/hooks/ordered/pool_objects.h"
#include "wrapper/hooks/sharing/carried.h"
#include "wrapper/real.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define LOG_PREFIX "ipc: "
#include "common/log.h"

#define LAZY_ACCESS CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
#define IDS         (1ULL << 61) /* above those of allocations */

/* A handle that the program has opened in a context, so many times. */
struct opened {
	struct sharing_handle handle;
	CUcontext ctx;    /* no green one */
	CUdevice user;    /* for which it was opened */
	CUdevice dev;     /* that has the memory; CU_DEVICE_INVALID: not known */
	uint64_t copiers; /* other devices that have access, as bits */
	CUdeviceptr start;
	unsigned long long id;
	unsigned int count;
	struct opened *next;
};

FORKS_LOCK(lock);
static struct opened *list;              /* under lock */
static unsigned long long next_id = IDS; /* under lock */
static bool used;                        /* the list had an entry */

static void forget_in_child(void)
{
	list = NULL;
}
FORKS_CHILD(forget_in_child);

static CUresult get_of_driver(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	CUdeviceptr base = ptr;
	CUresult result = real.cuIpcGetMemHandle(handle, ptr);

	if (!result) {
		real.cuMemGetAddressRange_v2(&base, NULL, ptr);
		driver_memory_add(DRIVER_MEMORY_IPC_EXPORT, base, 0);
	}
	return result;
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct sharing_handle made;
	struct vmem_shared shared;
	struct object_name name;
	struct vmem_info info;
	CUmemoryPool pool;
	CUresult result;

	if (!pHandle || !vmem_lookup(dptr, &info) || pool_handle_of(info.start, &pool))
		return get_of_driver(pHandle, dptr);
	result = current_error();
	if (result)
		return result;
	if (!vmem_can_share(info.dev)) {
		pr_err_once("cuIpcGetMemHandle: memory cannot be shared between processes, as %s",
			    translate_is_on() ? "its addresses are translated"
					      : "the driver does not export it");
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!sharing_name(&name))
		return CUDA_ERROR_OPERATING_SYSTEM;
	result = vmem_share(dptr, name.key, &shared);
	if (result)
		return result;
	memcpy(name.key, shared.key, sizeof(name.key));
	made = sharing_handle_make(&name);
	made.size = shared.size;
	made.offset = shared.offset;
	memcpy(pHandle, &made, sizeof(made));
	return CUDA_SUCCESS;
}

static size_t piece_size(const struct sharing_handle *handle, uint32_t piece)
{
	size_t left = handle->size - piece * VMEM_PIECE;

	return size_min(left, VMEM_PIECE);
}

static uint32_t piece_count(const struct sharing_handle *handle)
{
	return (uint32_t)((handle->size + VMEM_PIECE - 1) / VMEM_PIECE);
}

static void unmap(CUdeviceptr start, size_t size)
{
	CUresult result = objects_unmap(start, size);

	if (!result)
		result = real.cuMemAddressFree(start, size);
	if (result)
		pr_warn("%zu bytes stay mapped at %#llx: driver error %d", size, start, result);
}

static CUresult allow(CUdeviceptr start, size_t size, CUdevice dev)
{
	const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, dev},
				      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	return objects_set_access(start, size, &desc, 1);
}

/* The pieces, side by side, for the device @dev. */
static CUresult map_at(CUdeviceptr start, const struct sharing_handle *handle,
		       const CUmemGenericAllocationHandle *pieces, CUdevice dev)
{
	CUresult result = CUDA_SUCCESS;
	uint32_t n = 0;

	for (; n < piece_count(handle) && !result; n++)
		result =
			objects_map(start + n * VMEM_PIECE, piece_size(handle, n), 0, pieces[n], 0);
	if (!result)
		result = allow(start, handle->size, dev);
	/* Of a part, the first pieces are mapped. */
	for (uint32_t i = 0; i < n && result; i++)
		objects_unmap(start + i * VMEM_PIECE, piece_size(handle, i));
	return result;
}

static CUdevice device_of(CUdeviceptr ptr)
{
	int dev;

	return real.cuPointerGetAttribute(&dev, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr)
		       ? CU_DEVICE_INVALID
		       : dev;
}

static CUresult map(struct opened *made, const CUmemGenericAllocationHandle *pieces)
{
	size_t size = made->handle.size;
	CUresult result = real.cuMemAddressReserve(&made->start, size, VMEM_GRANULE, 0, 0);

	if (result)
		return result;
	result = map_at(made->start, &made->handle, pieces, made->user);
	if (result)
		real.cuMemAddressFree(made->start, size);
	else
		made->dev = device_of(made->start);
	return result;
}

static struct opened *find_locked(const struct sharing_handle *handle, CUcontext ctx)
{
	struct opened *o;

	LL_FOREACH(list, o)
		if (o->ctx == ctx && !memcmp(&o->handle, handle, sizeof(*handle)))
			return o;
	return NULL;
}

/* True: it is open in that context already, now once more. */
static bool open_again(const struct sharing_handle *handle, CUcontext ctx, CUdeviceptr *ptr)
{
	struct opened *o;

	pthread_mutex_lock(&lock);
	o = find_locked(handle, ctx);
	if (o) {
		o->count++;
		*ptr = o->start + handle->offset;
	}
	pthread_mutex_unlock(&lock);
	return o;
}

/* Another thread may have opened it meanwhile. */
static void add(struct opened *made, CUdeviceptr *ptr)
{
	struct opened *o;

	pthread_mutex_lock(&lock);
	o = find_locked(&made->handle, made->ctx);
	if (o) {
		o->count++;
	} else {
		made->id = next_id++;
		LL_PREPEND(list, made);
		__atomic_store_n(&used, true, __ATOMIC_RELEASE);
	}
	*ptr = (o ? o : made)->start + made->handle.offset;
	pthread_mutex_unlock(&lock);
	if (!o)
		return;
	unmap(made->start, made->handle.size);
	free(made);
}

/* Inside the gate: the mapping keeps the memory, and the references go. */
static CUresult finish(struct opened *made, CUmemGenericAllocationHandle *pieces, uint32_t got,
		       CUresult result)
{
	if (!result)
		MEMORY_TRY(result, map(made, pieces));
	while (got)
		objects_release(pieces[--got]);
	return result;
}

/* Outside the gate. */
static CUresult import_pieces(const struct sharing_handle *handle,
			      CUmemGenericAllocationHandle *pieces, uint32_t *got)
{
	struct object_name name = {.pid = handle->pid, .legacy = true};
	CUresult result = CUDA_SUCCESS;

	memcpy(name.instance, handle->instance, sizeof(name.instance));
	memcpy(name.key, handle->key, sizeof(name.key));
	for (*got = 0; *got < piece_count(handle) && !result; *got += !result) {
		legacy_key_piece(name.key, *got);
		result = carried_import(&name, &pieces[*got]);
	}
	return result;
}

static CUresult open_anew(const struct sharing_handle *handle, CUcontext ctx, CUdevice dev,
			  CUdeviceptr *ptr)
{
	CUmemGenericAllocationHandle *pieces = calloc(piece_count(handle), sizeof(*pieces));
	struct opened *made = calloc(1, sizeof(*made));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	uint32_t got = 0;

	if (made && pieces) {
		*made = (struct opened){.handle = *handle, .ctx = ctx, .user = dev, .count = 1};
		result = import_pieces(handle, pieces, &got);
	}
	if (made && gate_enter(GATE_HOLD)) {
		result = finish(made, pieces, got, result);
		if (!result) {
			add(made, ptr);
			made = NULL;
		}
		gate_exit();
	} else if (!result) {
		result = gate_refusal();
	}
	free(made);
	free(pieces);
	return result;
}

static CUresult open_ours(CUdeviceptr *ptr, const struct sharing_handle *handle, unsigned int flags)
{
	struct object_name name = {.pid = handle->pid};
	CUcontext ctx = NULL;
	CUresult result;
	CUdevice dev;

	memcpy(name.instance, handle->instance, sizeof(name.instance));
	if (!ptr || flags != LAZY_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	if (!gate_enter(GATE_HOLD))
		return gate_refusal();
	result = real.cuCtxGetCurrent(&ctx);
	if (!result)
		result = ctx ? real.cuCtxGetDevice(&dev) : CUDA_ERROR_INVALID_CONTEXT;
	gate_exit();
	if (result)
		return result;
	if (sharing_is_own(&name))
		return CUDA_ERROR_INVALID_CONTEXT;
	ctx = green_owner(ctx);
	return open_again(handle, ctx, ptr) ? CUDA_SUCCESS : open_anew(handle, ctx, dev, ptr);
}

typedef CUresult (*open_fn)(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags);

static CUresult open_of_driver(open_fn open, CUdeviceptr *ptr, CUipcMemHandle handle,
			       unsigned int flags)
{
	size_t size = 0;
	CUresult result;

	if (!gate_enter(GATE_HOLD))
		return gate_refusal();
	MEMORY_TRY(result, open(ptr, handle, flags));
	if (!result) {
		real.cuMemGetAddressRange_v2(NULL, &size, *ptr);
		driver_memory_opened(*ptr, size, green_owner(current_context()));
	}
	gate_exit();
	return result;
}

static CUresult open_any(open_fn open, CUdeviceptr *ptr, CUipcMemHandle raw, unsigned int flags)
{
	struct sharing_handle handle;
	int error = sharing_handle_parse(&raw, &handle);

	if (error == -ENOENT)
		return open_of_driver(open, ptr, raw, flags);
	if (!error && carried_is_on())
		return open_ours(ptr, &handle, flags);
	pr_err("memory of another process cannot be opened: %s",
	       error == -ENOTSUP ? "that process runs under another version of cudaw"
	       : error           ? "the handle is damaged"
		       : "this process runs with CUDAW_TO_DRIVER=memory or translated addresses, "
			 "and that one without; start both in the same way");
	return error ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

/* Outside the gate, as it may wait for the exporter. */
CUresult hook_cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return open_any(real.cuIpcOpenMemHandle, pdptr, handle, Flags);
}

CUresult hook_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return open_any(real.cuIpcOpenMemHandle_v2, pdptr, handle, Flags);
}

static struct opened *find_at_locked(CUdeviceptr ptr)
{
	struct opened *o;

	LL_FOREACH(list, o)
		if (o->start + o->handle.offset == ptr)
			return o;
	return NULL;
}

static struct opened *find_in_locked(CUdeviceptr ptr, size_t size)
{
	struct opened *o;

	LL_FOREACH(list, o)
		if (ptr - o->start < o->handle.size || o->start - ptr < size)
			return o;
	return NULL;
}

bool ipc_overlaps(CUdeviceptr ptr, size_t size)
{
	bool found;

	if (!__atomic_load_n(&used, __ATOMIC_ACQUIRE))
		return false;
	pthread_mutex_lock(&lock);
	found = find_in_locked(ptr, size);
	pthread_mutex_unlock(&lock);
	return found;
}

bool ipc_lookup(CUdeviceptr ptr, struct vmem_info *info)
{
	struct opened *o;

	if (!__atomic_load_n(&used, __ATOMIC_ACQUIRE) || vmem_contains(ptr))
		return false;
	pthread_mutex_lock(&lock);
	o = find_in_locked(ptr, 1);
	if (o && info)
		*info = (struct vmem_info){.start = o->start,
					   .size = o->handle.size,
					   .ctx = o->ctx,
					   .dev = o->dev,
					   .id = o->id};
	pthread_mutex_unlock(&lock);
	return o;
}

/* What is on the list is mapped, so the lock is held while the access changes. */
bool ipc_copies_enable(CUdevice dev, CUdevice owner)
{
	const uint64_t copier = UINT64_C(1) << dev;
	bool enabled = false;
	struct opened *o;

	pthread_mutex_lock(&lock);
	LL_FOREACH(list, o) {
		if (o->dev != owner || o->user == dev)
			continue;
		if (!(o->copiers & copier) && !allow(o->start, o->handle.size, dev))
			o->copiers |= copier;
		enabled |= o->copiers & copier;
	}
	pthread_mutex_unlock(&lock);
	return enabled;
}

/* As natively: for all work of the context that has opened the memory. */
static CUresult wait_for_work(CUcontext ctx)
{
	CUstreamCaptureMode mode;
	CUcontext current = NULL;
	CUresult result = real.cuCtxGetCurrent(&current);
	bool pushed;

	if (result || !current)
		return result ? result : CUDA_ERROR_INVALID_CONTEXT;
	mode = fence_relax();
	result = current_enter(ctx, &pushed);
	if (!result)
		result = fence_wait(ctx);
	current_leave(pushed);
	fence_unrelax(mode);
	return result;
}

/* The context that has opened what starts at @ptr; NULL: it is not ours. */
static CUcontext context_of(CUdeviceptr ptr)
{
	const struct opened *o;
	CUcontext ctx;

	pthread_mutex_lock(&lock);
	o = find_at_locked(ptr);
	ctx = o ? o->ctx : NULL;
	pthread_mutex_unlock(&lock);
	return ctx;
}

CUresult hook_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	CUcontext ctx = context_of(dptr);
	CUresult result;
	struct opened *o;

	if (!ctx) {
		result = real.cuIpcCloseMemHandle(dptr);
		if (!result)
			driver_memory_remove(DRIVER_MEMORY_IPC_IMPORT, dptr);
		return result;
	}
	result = wait_for_work(ctx);
	if (result)
		return result;
	pthread_mutex_lock(&lock);
	o = find_at_locked(dptr);
	if (!o)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (--o->count)
		o = NULL;
	else
		LL_DELETE(list, o);
	pthread_mutex_unlock(&lock);
	if (o)
		unmap(o->start, o->handle.size);
	free(o);
	return result;
}

static void close_all_of(CUcontext ctx)
{
	struct opened *o, *next, *gone = NULL;

	pthread_mutex_lock(&lock);
	LL_FOREACH_SAFE(list, o, next)
		if (o->ctx == ctx) {
			LL_DELETE(list, o);
			LL_PREPEND(gone, o);
		}
	pthread_mutex_unlock(&lock);
	LL_FOREACH_SAFE(gone, o, next) {
		unmap(o->start, o->handle.size);
		free(o);
	}
}
CONTEXT_GONE(close_all_of);
