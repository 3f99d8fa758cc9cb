/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/kernels/check.h"
#include "vmem/objects/objects.h"
#include "vmem/vmem.h"
#include "wrapper/kernels/images.h"
#include "wrapper/kernels/launch.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_PREFIX "check: "
#include "common/log.h"

#define MAX_LINES 100   /* a program may repeat the same mistake without end */
#define NEAR      65536 /* bytes past an allocation at which the message still names it */

/* Where a pointer was found. */
struct place {
	const char *call;
	const char *param; /* NULL for a kernel's */
	const char *kernel;
	unsigned int ordinal, offset; /* of the parameter, and into it */
};

bool check_is_on;
static enum check_level level;
static char *(*demangle)(const char *text, char *buf, size_t *size, int *status);

void check_start(enum check_level asked)
{
	check_is_on = true;
	level = asked;
}

void check_find_demangler(void)
{
	void *lib, *found;

	if (!check_is_on || __atomic_load_n(&demangle, __ATOMIC_RELAXED))
		return;
	/* Not closed again, so that the function stays. */
	lib = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
	found = lib ? dlsym(lib, "__cxa_demangle") : NULL;
	__atomic_store_n((void **)&demangle, found, __ATOMIC_RELAXED);
}

/* The name as C++ has it, to be freed; NULL: it is not known. */
static char *demangled(const char *name)
{
	int status;

	if (!__atomic_load_n(&demangle, __ATOMIC_RELAXED))
		return NULL;
	return demangle(kp_mangled_part(name), NULL, NULL, &status);
}

static void place_text(const struct place *at, char *buf, size_t size)
{
	if (at->param)
		snprintf(buf, size, "%s: %s", at->call, at->param);
	else if (at->offset)
		snprintf(buf, size, "%s: parameter %u, byte %u,", at->call, at->ordinal,
			 at->offset);
	else
		snprintf(buf, size, "%s: parameter %u", at->call, at->ordinal);
}

/*
 * Report a wrong pointer. @certain: no valid program makes this call. The kernel's name comes last,
 * as it may be too long for a line.
 */
__attribute__((format(printf, 4, 5))) static CUresult wrong(const struct place *at, CUdeviceptr ptr,
							    bool certain, const char *fmt, ...)
{
	CUresult result = level == CHECK_STRICT || (level == CHECK_FAILS && certain)
				  ? CUDA_ERROR_ILLEGAL_ADDRESS
				  : CUDA_SUCCESS;
	static unsigned int lines;
	unsigned int line = __atomic_add_fetch(&lines, 1, __ATOMIC_RELAXED);
	char where[160], what[256], *name;
	va_list ap;

	if (line == MAX_LINES + 1)
		pr_err("%u wrong pointers were reported; there are more", MAX_LINES);
	if (line > MAX_LINES)
		return result;
	place_text(at, where, sizeof(where));
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (at->kernel) {
		name = demangled(at->kernel);
		pr_err("%s is 0x%llx, %s; kernel %s", where, ptr, what, name ? name : at->kernel);
		free(name);
	} else {
		pr_err("%s is 0x%llx, %s", where, ptr, what);
	}
	return result;
}

/* The live allocation that ends before @ptr and not far from it; they begin at multiples of 512. */
static bool live_before(CUdeviceptr ptr, struct vmem_info *info)
{
	CUdeviceptr at = ptr & -512ULL;

	for (int i = 0; i < NEAR / 512; i++, at -= 512)
		if (vmem_lookup(at, info))
			return true;
	return false;
}

/*
 * @ptr lies in vmem's space, but in no live allocation. @used: the call reads or writes there, and
 * otherwise is given a pointer; @is_pointer: that it is one is known.
 */
static CUresult wrong_nowhere(const struct place *at, CUdeviceptr ptr, bool used, bool is_pointer)
{
	struct vmem_info info;

	if (vmem_lookup_freed(ptr, &info))
		return wrong(at, ptr, used || is_pointer,
			     "%llu bytes into allocation %llu (%zu bytes at 0x%llx), which "
			     "was freed",
			     ptr - info.start, info.id, info.size, info.start);
	if (live_before(ptr, &info))
		return wrong(at, ptr, used,
			     "%llu bytes past the end of allocation %llu (%zu bytes at 0x%llx)",
			     ptr - info.start - info.size, info.id, info.size, info.start);
	return wrong(at, ptr, used, "in no allocation that is remembered");
}

/* Memory that the program maps by itself: its allocator's blocks are not known, only the mappings. */
static CUresult check_mapped(const struct place *at, CUdeviceptr ptr, size_t bytes)
{
	size_t left = objects_bytes(ptr);

	if (!left || bytes <= left)
		return CUDA_SUCCESS;
	return wrong(at, ptr, true,
		     "and its %zu bytes run %zu bytes past the memory that the program has mapped "
		     "there",
		     bytes, bytes - left);
}

static CUresult check_bytes(const struct place *at, CUdeviceptr ptr, size_t bytes)
{
	struct vmem_info info;
	size_t left;

	if (!bytes)
		return CUDA_SUCCESS;
	if (!vmem_contains(ptr))
		return check_mapped(at, ptr, bytes);
	if (!vmem_lookup(ptr, &info))
		return wrong_nowhere(at, ptr, true, true);
	left = info.size - (ptr - info.start);
	if (bytes <= left)
		return CUDA_SUCCESS;
	return wrong(at, ptr, true,
		     "and its %zu bytes run %zu bytes past the end of allocation %llu "
		     "(%zu bytes at 0x%llx)",
		     bytes, bytes - left, info.id, info.size, info.start);
}

/* True if @ptr is in a live allocation, or right behind the end of one. */
static bool is_live(CUdeviceptr ptr)
{
	struct vmem_info info;

	return vmem_lookup(ptr, &info) || vmem_lookup(ptr - 1, &info);
}

static CUresult check_word(const struct place *at, CUdeviceptr ptr, bool is_pointer)
{
	struct vmem_info info;

	if (!vmem_contains(ptr) || is_live(ptr) || (!is_pointer && !vmem_lookup_freed(ptr, &info)))
		return CUDA_SUCCESS;
	return wrong_nowhere(at, ptr, false, is_pointer);
}

/* Check the parameter of whose value @size bytes are at @value. */
static CUresult check_param(struct place *at, const struct kp_param *param, const char *value,
			    size_t size)
{
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr word;

	if (param->holds == KP_NO_POINTER || param->holds == KP_CODE)
		return CUDA_SUCCESS;
	for (at->offset = 0; !result && at->offset + sizeof(word) <= size;
	     at->offset += sizeof(word)) {
		memcpy(&word, value + at->offset, sizeof(word));
		result = check_word(at, word, param->holds == KP_POINTER);
	}
	return result;
}

CUresult check_launch(const char *call, CUfunction function, void **params, void **extra)
{
	const struct kp_kernel *kernel = images_layout(function);
	struct place at = {.call = call, .kernel = kernel->name};
	CUresult result = CUDA_SUCCESS;
	size_t size;
	const char *buffer = launch_packed(params ? NULL : extra, &size);

	for (at.ordinal = 0; !result && at.ordinal < kernel->nparams; at.ordinal++) {
		const struct kp_param *param = &kernel->params[at.ordinal];

		if (params)
			result = check_param(&at, param, params[at.ordinal], param->size);
		else if (buffer)
			result = check_param(&at, param, buffer + param->offset,
					     launch_packed_part(param, size));
	}
	return result;
}

CUresult check_launch_each(const char *call, const CUDA_LAUNCH_PARAMS *list, unsigned int count)
{
	CUresult result = CUDA_SUCCESS;

	for (unsigned int i = 0; list && !result && i < count; i++)
		result = check_launch(call, list[i].function, list[i].kernelParams, NULL);
	return result;
}

CUresult check_range(const char *call, const char *param, CUdeviceptr ptr, size_t bytes)
{
	return check_bytes(&(struct place){.call = call, .param = param}, ptr, bytes);
}

/* @n times @each and @more; SIZE_MAX: too large. */
static size_t times_plus(size_t n, size_t each, size_t more)
{
	size_t result;

	if (__builtin_mul_overflow(n, each, &result) ||
	    __builtin_add_overflow(result, more, &result))
		return SIZE_MAX;
	return result;
}

size_t check_extent(size_t pitch, size_t rows, size_t width, size_t height, size_t depth)
{
	size_t plane;

	if (!width || !height || !depth)
		return 0;
	plane = times_plus(height - 1, pitch, width);
	return times_plus(depth - 1, times_plus(rows, pitch, 0), plane);
}

CUresult check_rows(const char *call, const char *param, CUdeviceptr ptr, size_t pitch,
		    size_t width, size_t height)
{
	return check_range(call, param, ptr, check_extent(pitch, 0, width, height, 1));
}

/* One side of a copy of two or three dimensions. */
struct side {
	const char *param;
	CUmemorytype type;
	CUdeviceptr ptr;
	size_t x, y, z, pitch, rows;
};

static bool is_host(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_HOST;
}

static CUresult check_side(const char *call, const struct side *s, size_t width, size_t height,
			   size_t depth)
{
	size_t extent = check_extent(s->pitch, s->rows, width, height, depth);
	size_t before;

	if (s->type == CU_MEMORYTYPE_ARRAY || !extent)
		return CUDA_SUCCESS;
	before = times_plus(times_plus(s->z, s->rows, s->y), s->pitch, s->x);
	return check_range(call, s->param, s->ptr, times_plus(1, before, extent));
}

#define SIDE(copy, of)                                                                        \
	((struct side){.param = is_host((copy)->of##MemoryType) ? #of "Host" : #of "Device",  \
		       .type = (copy)->of##MemoryType,                                        \
		       .ptr = is_host((copy)->of##MemoryType) ? (CUdeviceptr)(copy)->of##Host \
							      : (copy)->of##Device,           \
		       .x = (copy)->of##XInBytes,                                             \
		       .y = (copy)->of##Y,                                                    \
		       .pitch = (copy)->of##Pitch})

CUresult check_copy_2d(const char *call, const CUDA_MEMCPY2D_v2 *copy)
{
	struct side src, dst;
	CUresult result;

	if (!copy)
		return CUDA_SUCCESS;
	src = SIDE(copy, src);
	dst = SIDE(copy, dst);
	result = check_side(call, &dst, copy->WidthInBytes, copy->Height, 1);
	return result ? result : check_side(call, &src, copy->WidthInBytes, copy->Height, 1);
}

CUresult check_copy_3d(const char *call, const CUDA_MEMCPY3D_v2 *copy)
{
	struct side src, dst;
	CUresult result;

	if (!copy)
		return CUDA_SUCCESS;
	src = SIDE(copy, src);
	src.z = copy->srcZ;
	src.rows = copy->srcHeight;
	dst = SIDE(copy, dst);
	dst.z = copy->dstZ;
	dst.rows = copy->dstHeight;
	result = check_side(call, &dst, copy->WidthInBytes, copy->Height, copy->Depth);
	if (!result)
		result = check_side(call, &src, copy->WidthInBytes, copy->Height, copy->Depth);
	return result;
}

CUresult check_copy_3d_peer(const char *call, const CUDA_MEMCPY3D_PEER *copy)
{
	/* The same, with contexts in place of the reserved members. */
	_Static_assert(sizeof(CUDA_MEMCPY3D_PEER) == sizeof(CUDA_MEMCPY3D_v2) &&
			       offsetof(CUDA_MEMCPY3D_PEER, srcDevice) ==
				       offsetof(CUDA_MEMCPY3D_v2, srcDevice) &&
			       offsetof(CUDA_MEMCPY3D_PEER, dstDevice) ==
				       offsetof(CUDA_MEMCPY3D_v2, dstDevice) &&
			       offsetof(CUDA_MEMCPY3D_PEER, Depth) ==
				       offsetof(CUDA_MEMCPY3D_v2, Depth),
		       "the two kinds of copies differ");
	CUDA_MEMCPY3D_v2 same;

	if (!copy)
		return CUDA_SUCCESS;
	memcpy(&same, copy, sizeof(same));
	return check_copy_3d(call, &same);
}

CUresult check_copy_batch(const char *call, const CUdeviceptr *dsts, const CUdeviceptr *srcs,
			  const size_t *sizes, size_t count)
{
	CUresult result = CUDA_SUCCESS;

	if (!dsts || !srcs || !sizes)
		return CUDA_SUCCESS;
	for (size_t i = 0; !result && i < count; i++) {
		result = check_range(call, "dsts[]", dsts[i], sizes[i]);
		if (!result)
			result = check_range(call, "srcs[]", srcs[i], sizes[i]);
	}
	return result;
}

/* Sizes are in elements: bytes, unless the other side is an array, whose element is not known. */
static CUresult check_operand(const char *call, const char *param, const CUmemcpy3DOperand *o,
			      const CUextent3D *extent)
{
	size_t pitch = o->op.ptr.rowLength ? o->op.ptr.rowLength : extent->width;
	size_t rows = o->op.ptr.layerHeight ? o->op.ptr.layerHeight : extent->height;

	if (o->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
		return CUDA_SUCCESS;
	return check_range(call, param, o->op.ptr.ptr,
			   check_extent(pitch, rows, extent->width, extent->height, extent->depth));
}

CUresult check_copy_3d_batch(const char *call, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; ops && !result && i < count; i++) {
		result = check_operand(call, "dst.op.ptr", &ops[i].dst, &ops[i].extent);
		if (!result)
			result = check_operand(call, "src.op.ptr", &ops[i].src, &ops[i].extent);
	}
	return result;
}
