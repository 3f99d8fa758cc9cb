/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: primary ones, created ones, and each thread's stack of current ones. */
#include "tests/sim/sim.h"

#include <stdlib.h>

/* The context at the top of the thread's stack, destroyed or not; NULL where there is none. */
struct sim_ctx *ctx_current(void)
{
	return sim_thread.depth ? sim_thread.stack[sim_thread.depth - 1] : NULL;
}

struct sim_ctx *ctx_find(CUcontext handle)
{
	return object_known(KIND_CTX, handle) ? (struct sim_ctx *)handle : NULL;
}

/* For a call that uses it: a context that was created, and destroyed, crashes real drivers. */
static struct sim_ctx *ctx_to_use(CUcontext handle)
{
	struct sim_ctx *ctx = ctx_find(handle);

	if (ctx && !ctx->active && !ctx->primary && sim.config.strict)
		object_misused("a context");
	return ctx;
}

struct sim_ctx *ctx_owner(const struct sim_ctx *ctx)
{
	return ctx->whole ? ctx->whole : (struct sim_ctx *)ctx;
}

size_t ctx_bytes(CUdevice dev)
{
	size_t bytes = 0;

	for (struct sim_object *o = sim.objects[KIND_CTX]; o; o = o->next) {
		struct sim_ctx *ctx = (struct sim_ctx *)o;

		if (ctx->active && !ctx->whole && ctx->dev == dev)
			bytes += sim.config.context + blocks_bytes(ctx);
	}
	return bytes;
}

static struct sim_ctx *ctx_new(CUdevice dev)
{
	struct sim_ctx *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	ctx->dev = dev;
	object_add(KIND_CTX, &ctx->obj);
	return ctx;
}

static CUresult ctx_activate(struct sim_ctx *ctx)
{
	size_t bytes = ctx->whole ? 0 : sim.config.context;

	if (!account_charge(ctx->dev, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx->error = CUDA_SUCCESS;
	ctx->id = ++sim.next_id;
	ctx->active = true;
	if (stream_new(ctx, CU_STREAM_DEFAULT, 0)) {
		ctx->streams->legacy = true;
		return CUDA_SUCCESS;
	}
	ctx->active = false;
	account_release(ctx->dev, bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static void peer_remove(struct sim_peer **link)
{
	struct sim_peer *peer = *link;

	*link = peer->next;
	free(peer);
}

/* What runs is waited for, what is queued is dropped, what was allocated is freed. */
static void ctx_deactivate(struct sim_ctx *ctx)
{
	struct sim_stream *next;

	ctx->active = false;
	for (struct sim_stream *s = ctx->streams; s; s = next) {
		next = s->next;
		if (!s->closing)
			stream_close(s);
	}
	while (ctx->streams)
		sim_wait(0);
	while (ctx->peers)
		peer_remove(&ctx->peers);
	memory_release_context(ctx);
	account_release(ctx->dev, ctx->whole ? 0 : sim.config.context);
}

static CUresult ctx_push(struct sim_ctx *ctx)
{
	if (sim_thread.depth == SIM_MAX_STACK)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim_thread.stack[sim_thread.depth++] = ctx;
	return CUDA_SUCCESS;
}

static CUresult ctx_create(CUcontext *handle, unsigned int flags, CUdevice dev)
{
	struct sim_ctx *ctx;
	CUresult result;

	if (dev < 0 || dev >= sim.config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	ctx = ctx_new(dev);
	result = ctx ? ctx_activate(ctx) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS)
		return result;
	ctx->flags = flags;
	*handle = (CUcontext)ctx;
	return ctx_push(ctx);
}

SIM_EXPORT cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	SIM_ENTER(cuCtxCreate_v2, NEED_INIT);
	return ctx_create(ctx, flags, dev);
}

SIM_EXPORT cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags,
			  CUdevice dev)
{
	SIM_ENTER(cuCtxCreate_v4, NEED_INIT);
	if (params && (params->numExecAffinityParams || params->cigParams))
		return CUDA_ERROR_NOT_SUPPORTED;
	return ctx_create(ctx, flags, dev);
}

static CUresult ctx_destroy(CUcontext handle)
{
	struct sim_ctx *ctx = ctx_to_use(handle);

	if (!ctx || !ctx->active || ctx->primary || ctx->whole)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (ctx == ctx_current())
		sim_thread.depth--;
	ctx_deactivate(ctx);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuCtxDestroy_v2(CUcontext handle)
{
	SIM_ENTER(cuCtxDestroy_v2, NEED_INIT);
	return ctx_destroy(handle);
}

SIM_EXPORT cuCtxDestroy(CUcontext handle)
{
	SIM_ENTER(cuCtxDestroy, NEED_INIT);
	return ctx_destroy(handle);
}

/* There is no cuCtxAttach: it ends the context. */
SIM_EXPORT cuCtxDetach(CUcontext handle)
{
	SIM_ENTER(cuCtxDetach, NEED_INIT);
	return ctx_destroy(handle);
}

SIM_EXPORT cuCtxPushCurrent_v2(CUcontext handle)
{
	SIM_ENTER(cuCtxPushCurrent_v2, NEED_INIT);
	return ctx_to_use(handle) ? ctx_push(ctx_find(handle)) : CUDA_ERROR_INVALID_CONTEXT;
}

SIM_EXPORT cuCtxPopCurrent_v2(CUcontext *handle)
{
	SIM_ENTER(cuCtxPopCurrent_v2, NEED_INIT);
	if (!sim_thread.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (handle)
		*handle = (CUcontext)ctx_current();
	sim_thread.depth--;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuCtxSetCurrent(CUcontext handle)
{
	SIM_ENTER(cuCtxSetCurrent, NEED_INIT);
	if (handle && !ctx_to_use(handle))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (sim_thread.depth)
		sim_thread.depth--;
	return handle ? ctx_push((struct sim_ctx *)handle) : CUDA_SUCCESS;
}

SIM_EXPORT cuCtxGetCurrent(CUcontext *handle)
{
	SIM_ENTER(cuCtxGetCurrent, NEED_INIT);
	*handle = (CUcontext)ctx_current();
	return CUDA_SUCCESS;
}

/* @handle, or the current context where it is NULL, if it can be used. */
static CUresult ctx_usable(CUcontext handle, struct sim_ctx **out)
{
	struct sim_ctx *ctx = handle ? ctx_find(handle) : ctx_current();

	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!ctx->active)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*out = ctx;
	return ctx->error;
}

SIM_EXPORT cuCtxGetDevice(CUdevice *dev)
{
	SIM_ENTER(cuCtxGetDevice, NEED_ANY);
	*dev = ctx_current()->dev;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuCtxGetDevice_v2(CUdevice *dev, CUcontext handle)
{
	struct sim_ctx *ctx;
	CUresult result;

	SIM_ENTER(cuCtxGetDevice_v2, NEED_INIT);
	result = ctx_usable(handle, &ctx);
	if (result == CUDA_SUCCESS)
		*dev = ctx->dev;
	return result;
}

SIM_EXPORT cuCtxGetFlags(unsigned int *flags)
{
	SIM_ENTER(cuCtxGetFlags, NEED_CONTEXT);
	*flags = ctx_current()->flags;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
	struct sim_ctx *ctx;
	CUresult result;

	SIM_ENTER(cuCtxGetApiVersion, NEED_INIT);
	result = ctx_usable(handle, &ctx);
	if (result == CUDA_SUCCESS)
		*version = SIM_VERSION;
	return result;
}

SIM_EXPORT cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	struct sim_ctx *ctx;
	CUresult result;

	SIM_ENTER(cuCtxGetId, NEED_INIT);
	result = ctx_usable(handle, &ctx);
	if (result == CUDA_SUCCESS)
		*id = ctx->id;
	return result;
}

SIM_EXPORT cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	SIM_ENTER(cuCtxGetStreamPriorityRange, NEED_CONTEXT);
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuCtxGetLimit(size_t *value, CUlimit limit)
{
	SIM_ENTER(cuCtxGetLimit, NEED_CONTEXT);
	if (limit != CU_LIMIT_STACK_SIZE)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	*value = 1024;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuCtxSetLimit(CUlimit limit, size_t value)
{
	SIM_ENTER(cuCtxSetLimit, NEED_CONTEXT);
	(void)value;
	return limit == CU_LIMIT_STACK_SIZE ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_LIMIT;
}

static CUresult ctx_synchronize(CUcontext handle)
{
	struct sim_ctx *ctx;
	CUresult result = ctx_usable(handle, &ctx);

	if (result == CUDA_SUCCESS)
		result = capture_check_synchronize(ctx);
	return result == CUDA_SUCCESS ? ctx_wait(ctx) : result;
}

SIM_EXPORT cuCtxSynchronize(void)
{
	SIM_ENTER(cuCtxSynchronize, NEED_CONTEXT);
	return ctx_synchronize(NULL);
}

SIM_EXPORT cuCtxSynchronize_v2(CUcontext handle)
{
	SIM_ENTER(cuCtxSynchronize_v2, NEED_INIT);
	return ctx_synchronize(handle);
}

/* The link to @owner among the peers of @ctx, or the end of its list. */
static struct sim_peer **peer_link(struct sim_ctx *ctx, const struct sim_ctx *owner)
{
	struct sim_peer **link = &ctx_owner(ctx)->peers;

	while (*link && ((*link)->ctx != owner || (*link)->id != owner->id))
		link = &(*link)->next;
	return link;
}

bool ctx_accesses(const struct sim_ctx *ctx, const struct sim_ctx *owner)
{
	return *peer_link((struct sim_ctx *)ctx, owner) != NULL;
}

SIM_EXPORT cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
	struct sim_ctx *ctx, *owner;
	struct sim_peer *peer;

	SIM_ENTER(cuCtxEnablePeerAccess, NEED_CONTEXT);
	ctx = ctx_owner(ctx_current());
	owner = ctx_find(handle);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!owner || !owner->active || owner == ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (owner->dev == ctx->dev || sim.config.no_peers)
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (ctx_accesses(ctx, owner))
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	peer = malloc(sizeof(*peer));
	if (!peer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*peer = (struct sim_peer){ctx->peers, owner, owner->id};
	ctx->peers = peer;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuCtxDisablePeerAccess(CUcontext handle)
{
	struct sim_ctx *owner;
	struct sim_peer **link;

	SIM_ENTER(cuCtxDisablePeerAccess, NEED_CONTEXT);
	owner = ctx_find(handle);
	if (!owner || !owner->active)
		return CUDA_ERROR_INVALID_CONTEXT;
	link = peer_link(ctx_current(), owner);
	if (!*link)
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	peer_remove(link);
	return CUDA_SUCCESS;
}

static CUresult primary_retain(CUdevice dev, struct sim_ctx **primary)
{
	struct sim_ctx *ctx;
	CUresult result;

	if (dev < 0 || dev >= sim.config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	ctx = sim.primary[dev];
	if (!ctx)
		ctx = sim.primary[dev] = ctx_new(dev);
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx->primary = true;
	/* Another thread's reset may still wait for the streams. */
	while (!ctx->active && ctx->streams)
		sim_wait(0);
	if (!ctx->active) {
		result = ctx_activate(ctx);
		if (result != CUDA_SUCCESS)
			return result;
	}
	ctx->refs++;
	*primary = ctx;
	return CUDA_SUCCESS;
}

static void primary_release(struct sim_ctx *ctx)
{
	if (--ctx->refs == 0)
		ctx_deactivate(ctx);
}

SIM_EXPORT cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice dev)
{
	struct sim_ctx *ctx;
	CUresult result;

	SIM_ENTER(cuDevicePrimaryCtxRetain, NEED_INIT);
	result = primary_retain(dev, &ctx);
	if (result == CUDA_SUCCESS)
		*handle = (CUcontext)ctx;
	return result;
}

CUresult ctx_new_green(CUdevice dev, struct sim_ctx **out)
{
	struct sim_ctx *ctx, *primary;
	CUresult result = primary_retain(dev, &primary);

	if (result != CUDA_SUCCESS)
		return result;
	ctx = ctx_new(dev);
	if (ctx)
		ctx->whole = primary;
	result = ctx ? ctx_activate(ctx) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		*out = ctx;
	else
		primary_release(primary);
	return result;
}

void ctx_end_green(struct sim_ctx *ctx)
{
	ctx_deactivate(ctx);
	if (ctx->whole->active)
		primary_release(ctx->whole);
}

static struct sim_ctx *primary_active(CUdevice dev)
{
	struct sim_ctx *ctx = dev >= 0 && dev < sim.config.devices ? sim.primary[dev] : NULL;

	return ctx && ctx->active ? ctx : NULL;
}

SIM_EXPORT cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuDevicePrimaryCtxRelease_v2, NEED_INIT);
	ctx = primary_active(dev);
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	primary_release(ctx);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuDevicePrimaryCtxReset_v2, NEED_INIT);
	if (dev < 0 || dev >= sim.config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	ctx = primary_active(dev);
	if (ctx) {
		ctx->refs = 0;
		ctx_deactivate(ctx);
	}
	return CUDA_SUCCESS;
}

SIM_EXPORT cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	SIM_ENTER(cuDevicePrimaryCtxGetState, NEED_INIT);
	if (dev < 0 || dev >= sim.config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = sim.primary[dev] ? sim.primary[dev]->flags : 0;
	*active = primary_active(dev) != NULL;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	SIM_ENTER(cuDevicePrimaryCtxSetFlags_v2, NEED_INIT);
	if (dev < 0 || dev >= sim.config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!sim.primary[dev])
		sim.primary[dev] = ctx_new(dev);
	if (!sim.primary[dev])
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim.primary[dev]->flags = flags;
	return CUDA_SUCCESS;
}
