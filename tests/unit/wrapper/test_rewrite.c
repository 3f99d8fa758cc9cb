/* SPDX-License-Identifier: Apache-2.0 */
/* Translated addressing: real addresses in what is handed to the driver, and virtual ones back. */
#include "calls.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/ledger/driver_memory.h"
#include "kparams/kparams.h"
#include "tests/unit/translated.h"
#include "wrapper/face/driver.h"
#include "wrapper/kernels/images.h"
#include "wrapper/kernels/launch.h"
#include "wrapper/translated/before.h"
#include "wrapper/translated/graph_node.h"
#include "wrapper/translated/graphs.h"
#include "wrapper/translated/launch_attributes.h"
#include "wrapper/translated/node_readback.h"
#include "wrapper/translated/rewrite.h"
#include "wrapper/translated/symbols.h"
#include "wrapper/translated/tensor_maps.h"
#include "wrapper/translated/windows.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static CUdeviceptr textured; /* 0, or of another thread's texture that is made as one ends */
static CUresult destroyed;

static CUresult texture_create(CUtexObject *texture, const CUDA_RESOURCE_DESC *resource,
			       const CUDA_TEXTURE_DESC *desc, const CUDA_RESOURCE_VIEW_DESC *view)
{
	(void)desc;
	(void)view;
	ck_assert_uint_eq(resource->res.linear.devPtr, 0x7f0000000000);
	*texture = 3;
	return CUDA_SUCCESS;
}

static void create_texture(CUdeviceptr ptr)
{
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR,
				       .res.linear.devPtr = ptr};
	CUtexObject texture;

	ck_assert_int_eq(hook_cuTexObjectCreate(&texture, &resource, NULL, NULL), CUDA_SUCCESS);
	ck_assert_uint_eq(texture, 3);
}

static CUresult texture_destroy(CUtexObject texture)
{
	if (textured)
		create_texture(textured);
	ck_assert_uint_eq(texture, 3);
	return destroyed;
}

static CUresult current_context(CUcontext *ctx)
{
	*ctx = CTX;
	return CUDA_SUCCESS;
}

static CUresult context_destroy(CUcontext ctx)
{
	(void)ctx;
	return CUDA_SUCCESS;
}

/* They are in the way of a pause: those that are there, and no others. */
START_TEST(textures_are_counted)
{
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB);

	real.cuTexObjectCreate = texture_create;
	real.cuTexObjectDestroy = texture_destroy;
	real.cuCtxGetCurrent = current_context;
	real.cuCtxDestroy_v2 = context_destroy;
	create_texture(ptr);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_FIXED_TEXTURE), 1);
	destroyed = CUDA_ERROR_INVALID_CONTEXT;
	ck_assert_int_eq(hook_cuTexObjectDestroy(3), destroyed);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_FIXED_TEXTURE), 1);
	destroyed = CUDA_SUCCESS;
	textured = ptr;
	ck_assert_int_eq(hook_cuTexObjectDestroy(3), CUDA_SUCCESS);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_FIXED_TEXTURE), 1);
	textured = 0;
	ck_assert_int_eq(hook_cuTexObjectDestroy(3), CUDA_SUCCESS);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_FIXED_TEXTURE), 0);
	create_texture(ptr);
	ck_assert_int_eq(hook_cuCtxDestroy_v2((CUcontext)0x2000), CUDA_SUCCESS);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_FIXED_TEXTURE), 1);
	ck_assert_int_eq(hook_cuCtxDestroy_v2(CTX), CUDA_SUCCESS);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_FIXED_TEXTURE), 0);
}
END_TEST

static struct kp_kernel *kernel_of(const char *holds, const uint16_t *sizes, uint32_t n)
{
	struct kp_param params[8] = {0};
	struct kp_kernel *kernel;
	uint16_t offset = 0;

	for (uint32_t i = 0; i < n; i++) {
		params[i] = (struct kp_param){.offset = offset, .size = sizes[i]};
		offset += (sizes[i] + 7) & ~7;
	}
	kernel = kp_kernel_new("k", params, n);
	for (uint32_t i = 0; i < n; i++)
		kernel->params[i].holds = holds[i] == 'P'   ? KP_POINTER
					  : holds[i] == 'n' ? KP_NO_POINTER
							    : KP_ANYTHING;
	return kernel;
}

START_TEST(launches)
{
	static const uint16_t sizes[] = {8, 8, 24, 4};
	struct kp_kernel *kernel = kernel_of("Pn..", sizes, 4);
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB), number = ptr, pointer = ptr + 8;
	struct {
		uint64_t n;
		CUdeviceptr end, gone;
	} pair = {7, ptr + 4 * MB, ptr + 64 * MB}, was = pair;
	uint32_t small = (uint32_t)ptr;
	void *mine[] = {&pointer, &number, &pair, &small}, **params = mine, **extra = NULL;
	size_t room = rewrite_launch_room(kernel, params, extra);

	rewrite_launch(kernel, &params, &extra, alloca(room));
	ck_assert_uint_eq(*(CUdeviceptr *)params[0], 0x7f0000000008);
	ck_assert_ptr_eq(params[1], &number);
	ck_assert_uint_eq(((CUdeviceptr *)params[2])[0], 7);
	ck_assert_uint_eq(((CUdeviceptr *)params[2])[1], 0x7f0000000000 + 4 * MB);
	ck_assert_uint_eq(((CUdeviceptr *)params[2])[2], was.gone);
	ck_assert_uint_eq(*(uint32_t *)params[3], small);
	/* The program's own are as they were. */
	ck_assert_uint_eq(pointer, ptr + 8);
	ck_assert_uint_eq(number, ptr);
	ck_assert_int_eq(memcmp(&pair, &was, sizeof(pair)), 0);
	ck_assert_ptr_eq(mine[0], &pointer);
	free(kernel);
}
END_TEST

START_TEST(packed_launches)
{
	static const uint16_t sizes[] = {8, 8};
	struct kp_kernel *kernel = kernel_of("P.", sizes, 2);
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB), mine[] = {ptr, ptr + 1}, *rewritten;
	size_t size = _i ? sizeof(mine) : 8, found;
	void *pointer_first[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, mine, CU_LAUNCH_PARAM_BUFFER_SIZE,
				 &size, CU_LAUNCH_PARAM_END};
	void *size_first[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER,
			      mine, CU_LAUNCH_PARAM_END};
	void **params = NULL, **extra = _i ? pointer_first : size_first;

	rewrite_launch(kernel, &params, &extra, alloca(rewrite_launch_room(kernel, params, extra)));
	rewritten = (CUdeviceptr *)launch_packed(extra, &found);
	ck_assert_ptr_ne(rewritten, mine);
	ck_assert_uint_eq(found, size);
	ck_assert_uint_eq(rewritten[0], 0x7f0000000000);
	if (_i)
		ck_assert_uint_eq(rewritten[1], 0x7f0000000001);
	ck_assert_uint_eq(mine[0], ptr);
	ck_assert_uint_eq(mine[1], ptr + 1);
	free(kernel);
}
END_TEST

/* What a kernel does not read of a large parameter is left out, and so is the last one. */
START_TEST(packed_launches_that_are_short)
{
	static const uint16_t sizes[] = {8, 64, 8};
	struct kp_kernel *kernel = kernel_of("P.P", sizes, 3);
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB);
	CUdeviceptr mine[] = {ptr, ptr + 1, ptr + 2, ptr + 3, ptr + 4}, *rewritten;
	size_t size = 4 * sizeof(*mine) - _i, found; /* as few as that, or 4 bytes less */
	void *list[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, mine, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			CU_LAUNCH_PARAM_END};
	void **params = NULL, **extra = list;

	rewrite_launch(kernel, &params, &extra, alloca(rewrite_launch_room(kernel, params, extra)));
	rewritten = (CUdeviceptr *)launch_packed(extra, &found);
	ck_assert_uint_eq(found, size);
	for (int i = 0; i < (_i ? 3 : 4); i++)
		ck_assert_uint_eq(rewritten[i], 0x7f0000000000 + i);
	free(kernel);
}
END_TEST

START_TEST(launches_without_pointers)
{
	static const uint16_t sizes[] = {8, 4};
	struct kp_kernel *kernel = kernel_of("nn", sizes, 2);
	void *params[2];

	ck_assert_uint_eq(rewrite_launch_room(kernel, params, NULL), 0);
	ck_assert_uint_eq(rewrite_launch_room(kernel, NULL, NULL), 0);
	free(kernel);
}
END_TEST

/* The hardware's form is not known; here the address is in word 3. */
static CUresult replace_address(CUtensorMap *map, void *address)
{
	memcpy((char *)map + 24, &address, 8);
	return CUDA_SUCCESS;
}

START_TEST(tensor_maps_follow_their_memory)
{
	static const uint16_t sizes[] = {256};
	struct kp_kernel *kernel = kernel_of(".", sizes, 1);
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB), found[2];
	_Alignas(64) char value[256] = "some map", unknown[128];
	void *mine[] = {value}, **params = mine, **extra = NULL;
	CUtensorMap map;

	real.cuTensorMapReplaceAddress = replace_address;
	memcpy(&map, value, sizeof(map));
	replace_address(&map, (void *)translate(ptr));
	memcpy(value + 128, &map, sizeof(map));
	memcpy(unknown, value, 128);
	tensor_maps_add(&map, ptr);
	for (int i = 0; i < 2; i++) {
		CUdeviceptr at = i ? 0x7d0000000000 : 0x7f0000000000;

		params = mine;
		rewrite_launch(kernel, &params, &extra,
			       alloca(rewrite_launch_room(kernel, params, extra)));
		memcpy(&found[i], (char *)params[0] + 128 + 24, 8);
		ck_assert_uint_eq(found[i], at);
		ck_assert_int_eq(memcmp(params[0], unknown, 128), 0);
		ck_assert_int_eq(vmem_region_unmap(ptr), CUDA_SUCCESS);
		next_real = 0x7d0000000000;
		ck_assert_int_eq(vmem_region_map(ptr), CUDA_SUCCESS);
	}
	free(kernel);
}
END_TEST

/* The @i-th of some that differ, as the driver encodes it for @ptr. */
static CUtensorMap encoded_map(uint32_t i, CUdeviceptr ptr)
{
	const uint32_t words[sizeof(CUtensorMap) / 4] = {i};
	CUtensorMap map;

	memcpy(&map, words, sizeof(map));
	replace_address(&map, (void *)translate(ptr));
	tensor_maps_add(&map, ptr);
	return map;
}

/* The address that a kernel is given in @map. */
static CUdeviceptr launched_with(const CUtensorMap *map)
{
	static const uint16_t sizes[] = {sizeof(*map)};
	struct kp_kernel *kernel = kernel_of(".", sizes, 1);
	void *mine[] = {(void *)map}, **params = mine, **extra = NULL;
	CUdeviceptr found;

	rewrite_launch(kernel, &params, &extra, alloca(rewrite_launch_room(kernel, params, extra)));
	memcpy(&found, (char *)params[0] + 24, 8);
	free(kernel);
	return found;
}

static void move(CUdeviceptr ptr, CUdeviceptr to)
{
	ck_assert_int_eq(vmem_region_unmap(ptr), CUDA_SUCCESS);
	next_real = to;
	ck_assert_int_eq(vmem_region_map(ptr), CUDA_SUCCESS);
}

/* Those of other memory take no room, nor does one that is encoded again. */
START_TEST(tensor_maps_that_are_many)
{
	static CUtensorMap maps[TENSOR_MAPS_MAX + 1];
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 64 * MB);

	real.cuTensorMapReplaceAddress = replace_address;
	for (uint32_t i = 0; i <= TENSOR_MAPS_MAX; i++)
		maps[i] = encoded_map(i, ptr + 16 * i);
	for (uint32_t i = 1; i <= TENSOR_MAPS_MAX; i++) {
		encoded_map(i, 0x7e0000000000 + 16 * i);
		encoded_map(i, ptr + 16 * i);
	}
	move(ptr, 0x7d0000000000);
	ck_assert_uint_eq(launched_with(&maps[0]), 0x7f0000000000);
	for (int round = 0; round < 2; round++)
		for (uint32_t i = 1; i <= TENSOR_MAPS_MAX; i++)
			ck_assert_uint_eq(launched_with(&maps[i]), 0x7d0000000000 + 16 * i);
}
END_TEST

/* What looks like the map of the one by then is still that of the other. */
START_TEST(tensor_maps_of_allocations_that_change_places)
{
	const CUdeviceptr at[] = {0x7f0000000000, 0x7e0000000000};
	CUdeviceptr ptrs[] = {alloc_at(at[0], 4 * MB), alloc_at(at[1], 4 * MB)};
	CUtensorMap maps[] = {encoded_map(1, ptrs[0]), encoded_map(1, ptrs[1])};
	struct kp_param param = {.size = sizeof(CUtensorMap), .holds = KP_ANYTHING};
	bool unclear = false;

	real.cuTensorMapReplaceAddress = replace_address;
	move(ptrs[0], at[1]);
	move(ptrs[1], at[0]);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(launched_with(&maps[i % 2]), at[1 - i % 2]);
	for (int i = 0; i < 2; i++) {
		CUtensorMap node = maps[i];

		replace_address(&node, (void *)translate(ptrs[i]));
		ck_assert(rewrite_param_back(&param, (char *)&node, sizeof(node), &unclear));
		ck_assert_int_eq(memcmp(&node, &maps[i], sizeof(node)), 0);
	}
	ck_assert(!unclear);
}
END_TEST

/* The driver may give memory that was freed to others: the map that is there then is theirs. */
START_TEST(tensor_maps_of_memory_that_is_not_ours_any_more)
{
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB);
	CUtensorMap map = encoded_map(1, ptr);

	real.cuTensorMapReplaceAddress = replace_address;
	move(ptr, 0x7d0000000000);
	ck_assert_uint_eq(launched_with(&map), 0x7d0000000000);
	map = encoded_map(1, 0x7f0000000000);
	ck_assert_uint_eq(launched_with(&map), 0x7f0000000000);
}
END_TEST

START_TEST(copies_and_operations)
{
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB);
	CUDA_MEMCPY2D_v2 copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				 .srcDevice = ptr,
				 .dstMemoryType = CU_MEMORYTYPE_HOST,
				 .dstDevice = ptr};
	CUstreamBatchMemOpParams op = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32};

	rewrite_copy_2d(&copy);
	ck_assert_uint_eq(copy.srcDevice, 0x7f0000000000);
	ck_assert_uint_eq(copy.dstDevice, ptr); /* is not looked at */
	op.writeValue.address = ptr + 4;
	rewrite_mem_op(&op);
	ck_assert_uint_eq(op.writeValue.address, 0x7f0000000004);
	op.operation = CU_STREAM_MEM_OP_BARRIER;
	op.writeValue.address = ptr;
	rewrite_mem_op(&op);
	ck_assert_uint_eq(op.writeValue.address, ptr);
	ck_assert(!rewrite_mem_op_back(&op));
}
END_TEST

/* What is compressed may lie in host memory, and how much came of it nobody need want to know. */
START_TEST(decompressions)
{
	struct copies copies;
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB);
	CUmemDecompressParams own[] = {
		{.srcNumBytes = 100,
		 .src = (void *)ptr,
		 .dst = (void *)(ptr + 0x1000),
		 .dstActBytes = (void *)(ptr + 0x2000)},
		{.src = &drv, .dst = (void *)(ptr + 1)},
	};
	CUmemDecompressParams was[2], *ops = own;

	copies_init(&copies);
	memcpy(was, own, sizeof(own));
	ck_assert_int_eq(before_decompressions(&copies, &ops, 2), CUDA_SUCCESS);
	ck_assert_uint_eq(ops[0].srcNumBytes, 100);
	ck_assert_ptr_eq(ops[0].src, (void *)0x7f0000000000);
	ck_assert_ptr_eq(ops[0].dst, (void *)0x7f0000001000);
	ck_assert_ptr_eq(ops[0].dstActBytes, (void *)0x7f0000002000);
	ck_assert_ptr_eq(ops[1].src, &drv);
	ck_assert_ptr_eq(ops[1].dst, (void *)0x7f0000000001);
	ck_assert_ptr_null(ops[1].dstActBytes);
	ck_assert_int_eq(memcmp(own, was, sizeof(own)), 0);
	copies_free(&copies);
}
END_TEST

static CUdeviceptr others; /* begins memory that only the driver knows of */

static CUresult range_start(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	ck_assert_int_eq(attribute, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
	if (ptr != others)
		return CUDA_ERROR_INVALID_VALUE;
	*(CUdeviceptr *)data = others;
	return CUDA_SUCCESS;
}

/* The end of an allocation is the begin of another where the driver has put one there. */
START_TEST(ends_where_the_driver_has_memory)
{
	const CUdeviceptr at = 0x7f0000000000, end = at + 4 * MB;
	struct kp_param param = {.size = sizeof(CUdeviceptr), .holds = KP_POINTER};
	CUstreamBatchMemOpParams op = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32};
	CUDA_MEMCPY3D_v2 copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = end};
	CUdeviceptr ptr = alloc_at(at, 4 * MB), word = end, set = end;
	bool unclear = false;

	real.cuPointerGetAttribute = range_start;
	others = _i ? end : end + 4 * MB;
	translate_given(ptr + 4 * MB);
	ck_assert(rewrite_param_back(&param, (char *)&word, sizeof(word), &unclear));
	ck_assert_uint_eq(word, ptr + 4 * MB);
	ck_assert_int_eq(unclear, _i);
	op.writeValue.address = end;
	ck_assert(!rewrite_mem_op_back(&op) && !rewrite_copy_3d_back(&copy));
	ck_assert(!rewrite_pointer_back(&set));
	ck_assert_uint_eq(set, end);
}
END_TEST

/* A node of a kernel with parameters of 8 and 64 bytes, whose buffer has half of the latter. */
static CUdeviceptr packed[5];

static CUresult short_node(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	static size_t size = sizeof(packed);
	static void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
				&size, CU_LAUNCH_PARAM_END};

	(void)node;
	*params = (CUDA_KERNEL_NODE_PARAMS_v2){.func = (CUfunction)0x2000, .extra = extra};
	return CUDA_SUCCESS;
}

static size_t second_size = 64; /* of the kernel's parameters */

static CUresult param_info(CUfunction function, size_t i, size_t *offset, size_t *size)
{
	(void)function;
	*offset = 8 * i;
	*size = i ? second_size : 8;
	return i < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_name(const char **name, CUfunction function)
{
	(void)function;
	*name = "k";
	return CUDA_SUCCESS;
}

static CUresult no_context(CUcontext *ctx)
{
	(void)ctx;
	return CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult no_device(CUdevice *dev)
{
	(void)dev;
	return CUDA_ERROR_INVALID_CONTEXT;
}

static void fake_kernel_nodes(void)
{
	real.cuGraphKernelNodeGetParams_v2 = short_node;
	real.cuFuncGetParamInfo = param_info;
	real.cuFuncGetName = get_name;
	real.cuCtxGetCurrent = no_context;
	real.cuCtxGetDevice = no_device;
	packed[4] = 0x7f0000000008;
}

START_TEST(nodes_whose_buffer_is_short)
{
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB);
	struct graph_node *read;

	fake_kernel_nodes();
	ck_assert_ptr_null(graph_node_read(NULL, CU_GRAPH_NODE_TYPE_KERNEL, &read));
	ck_assert_ptr_nonnull(read);
	ck_assert_uint_eq(((CUdeviceptr *)read->room)[4], ptr + 8);
	ck_assert_uint_eq(packed[4], 0x7f0000000008);
	graph_node_free(read);
}
END_TEST

static CUmemorytype type_told; /* 0: the driver does not know the address */

static CUresult get_type(unsigned int count, CUpointer_attribute *attributes, void **data,
			 CUdeviceptr ptr)
{
	(void)ptr;
	ck_assert_uint_eq(count, 1);
	ck_assert_int_eq(attributes[0], CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
	*(CUmemorytype *)data[0] = type_told;
	return CUDA_SUCCESS;
}

/* The stack of a thread may be small. */
START_TEST(what_is_large_is_copied_to_the_heap)
{
	static CUdeviceptr words[8192];
	struct copies copies;
	CUdeviceptr variable = 0x7f5000000000, first = alloc_at(0x7f0000000000, 4 * MB);
	void *mine[] = {&first, words}, **params = mine;
	const void *host = words;

	copies_init(&copies);
	real.cuPointerGetAttributes = get_type;
	symbols_add(NULL, CTX, variable, sizeof(words));
	words[8191] = first + 8;
	ck_assert_int_eq(before_host_words(&copies, "a copy", variable, &host, sizeof(words)),
			 CUDA_SUCCESS);
	ck_assert_ptr_eq(host, copies.heap->room);
	ck_assert_ptr_null(copies.heap->next);
	ck_assert_uint_eq(((const CUdeviceptr *)host)[8191], 0x7f0000000008);
	fake_kernel_nodes();
	second_size = 32000;
	words[3999] = first + 16;
	ck_assert_int_eq(before_launch(&copies, (CUfunction)0x2000, &params, NULL), CUDA_SUCCESS);
	ck_assert_ptr_eq(params, copies.heap->room);
	ck_assert_ptr_eq(host, copies.heap->next->room);
	ck_assert_uint_eq(*(CUdeviceptr *)params[0], 0x7f0000000000);
	ck_assert_uint_eq(((CUdeviceptr *)params[1])[3999], 0x7f0000000010);
	ck_assert_uint_eq(words[3999], first + 16);
	copies_free(&copies);
}
END_TEST

/* As memory of a pool or managed memory may be, in a call that copies from the host. */
START_TEST(what_is_not_host_memory_is_not_touched)
{
	struct copies copies;
	CUdeviceptr variable = 0x7f5000000000, first = alloc_at(0x7f0000000000, 4 * MB);
	CUdeviceptr pinned[] = {first}, src = (CUdeviceptr)pinned;
	void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const void *host = page;

	copies_init(&copies);
	ck_assert_ptr_ne(page, MAP_FAILED);
	real.cuPointerGetAttributes = get_type;
	symbols_add(NULL, CTX, variable, 4096);
	type_told = CU_MEMORYTYPE_HOST;
	ck_assert_int_eq(before_any(&copies, "a copy", variable, &src, sizeof(pinned)),
			 CUDA_SUCCESS);
	ck_assert_uint_ne(src, (CUdeviceptr)pinned);
	type_told = CU_MEMORYTYPE_DEVICE;
	ck_assert_int_eq(before_host_words(&copies, "a copy", first, &host, 4096), CUDA_SUCCESS);
	ck_assert_ptr_eq(host, page);
	src = (CUdeviceptr)page;
	ck_assert_int_eq(before_any(&copies, "a copy", variable, &src, 4096), CUDA_SUCCESS);
	ck_assert_uint_eq(src, (CUdeviceptr)page);
	munmap(page, 4096);
	copies_free(&copies);
}
END_TEST

#define CHILD  ((CUgraphNode)0x4000)
#define INSIDE ((CUgraphNode)0x4008)
#define INNER  ((CUgraph)0x5000)

static CUresult node_type(CUgraphNode node, CUgraphNodeType *type)
{
	*type = node == CHILD ? CU_GRAPH_NODE_TYPE_GRAPH : CU_GRAPH_NODE_TYPE_KERNEL;
	return CUDA_SUCCESS;
}

static CUresult child_graph(CUgraphNode node, CUgraph *graph)
{
	ck_assert_ptr_eq(node, CHILD);
	*graph = INNER;
	return CUDA_SUCCESS;
}

static CUresult graph_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	ck_assert_ptr_eq(graph, INNER);
	if (nodes)
		*nodes = INSIDE;
	*count = 1;
	return CUDA_SUCCESS;
}

/*
 * Or the node or graph that they are inside of; not where the driver refuses to destroy it. A new node may have
 * the handle before the end of the old one is noted.
 */
START_TEST(nodes_that_are_shown_stay_until_they_go)
{
	CUgraphNode leaving = _i == 2 ? INSIDE : CHILD;
	struct graph_node *read;

	alloc_at(0x7f0000000000, 4 * MB);
	fake_kernel_nodes();
	real.cuGraphNodeGetType = node_type;
	real.cuGraphChildGraphNodeGetGraph = child_graph;
	real.cuGraphGetNodes = graph_nodes;
	read = (struct graph_node *)node_readback_node(INSIDE, CU_GRAPH_NODE_TYPE_KERNEL);
	ck_assert_ptr_nonnull(read);
	read->unclear = true; /* tells it from one that is read anew */
	node_readback_leaving_node(leaving);
	ck_assert(node_readback_node(INSIDE, CU_GRAPH_NODE_TYPE_KERNEL)->unclear);
	node_readback_forget_node(leaving);
	ck_assert(node_readback_node(INSIDE, CU_GRAPH_NODE_TYPE_KERNEL)->unclear);
	node_readback_leaving_node(leaving);
	if (_i == 1)
		node_readback_forget_graph(INNER);
	else
		node_readback_forget_node(leaving);
	ck_assert(!node_readback_node(INSIDE, CU_GRAPH_NODE_TYPE_KERNEL)->unclear);
}
END_TEST

#define MODULE ((CUmodule)0x6000)
#define OTHER  ((CUmodule)0x6008)
#define EXEC   ((CUgraphExec)0x7000)

static CUresult graph_clone(CUgraph *clone, CUgraph graph)
{
	*clone = graph;
	return CUDA_SUCCESS;
}

static CUresult graph_destroy(CUgraph graph)
{
	(void)graph;
	return CUDA_SUCCESS;
}

static CUresult any_context(CUcontext ctx)
{
	(void)ctx;
	return CUDA_SUCCESS;
}

static CUresult module_unload(CUmodule module)
{
	(void)module;
	return CUDA_SUCCESS;
}

static void pause_and_resume(void)
{
	char text[256] = "";

	ck_assert_msg(!graphs_moves.leaving(text, sizeof(text)), "%s", text);
	graphs_moves.back(text, sizeof(text));
	ck_assert_str_eq(text, "");
}

/* What the driver has at the place of a kernel that is gone nobody may ask. */
START_TEST(graphs_that_lost_a_kernel)
{
	fake_kernel_nodes();
	real.cuGraphNodeGetType = node_type;
	real.cuGraphGetNodes = graph_nodes;
	real.cuGraphClone = graph_clone;
	real.cuGraphDestroy = graph_destroy;
	real.cuCtxSetCurrent = any_context;
	real.cuModuleUnload = module_unload;
	images_load(IMAGES_MODULE, MODULE, NULL);
	images_load(IMAGES_MODULE, OTHER, NULL);
	images_name(IMAGES_FUNCTION, (void *)0x2000, MODULE, "k");
	graphs_add(INNER);
	graphs_instantiated(EXEC, INNER, 0);

	ck_assert_int_eq(hook_cuModuleUnload(OTHER), CUDA_SUCCESS);
	pause_and_resume();
	ck_assert_int_eq(graphs_usable(INNER), CUDA_SUCCESS);
	ck_assert_int_eq(graphs_usable(EXEC), CUDA_SUCCESS);
	ck_assert_int_eq(hook_cuModuleUnload(MODULE), CUDA_SUCCESS);
	real.cuGraphKernelNodeGetParams_v2 = NULL;
	pause_and_resume();
	ck_assert_int_ne(graphs_usable(INNER), CUDA_SUCCESS);
	ck_assert_int_ne(graphs_usable(EXEC), CUDA_SUCCESS);
	/* It may be given others. */
	fake_kernel_nodes();
	graphs_updated(EXEC, INNER);
	pause_and_resume();
	ck_assert_int_eq(graphs_usable(EXEC), CUDA_SUCCESS);
}
END_TEST

/* The program's own is not changed, and what the driver fills in reaches it. */
START_TEST(nodes)
{
	struct copies copies;
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB);
	CUstreamBatchMemOpParams op = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32};
	CUgraphNodeParams own = {.type = CU_GRAPH_NODE_TYPE_MEMSET}, *node = &own;

	copies_init(&copies);
	own.memset.dst = ptr;
	ck_assert_int_eq(before_node(&copies, &node), CUDA_SUCCESS);
	ck_assert_uint_eq(node->memset.dst, 0x7f0000000000);
	ck_assert_uint_eq(own.memset.dst, ptr);

	own.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	own.memOp = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){.count = 1, .paramArray = &op};
	op.writeValue.address = ptr + 4;
	node = &own;
	ck_assert_int_eq(before_node(&copies, &node), CUDA_SUCCESS);
	ck_assert_uint_eq(node->memOp.paramArray[0].writeValue.address, 0x7f0000000004);
	ck_assert_uint_eq(op.writeValue.address, ptr + 4);
	ck_assert(rewrite_mem_op_back(&node->memOp.paramArray[0]));
	ck_assert_uint_eq(node->memOp.paramArray[0].writeValue.address, ptr + 4);

	own.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	node = &own;
	ck_assert_int_eq(before_node(&copies, &node), CUDA_SUCCESS);
	ck_assert_ptr_eq(node, &own);
	copies_free(&copies);
}
END_TEST

START_TEST(windows)
{
	struct copies copies;
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB);
	CUlaunchAttribute own[2] = {
		{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY},
		{.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
		 .value.accessPolicyWindow.base_ptr = (void *)ptr},
	};
	const CUlaunchConfig launch = {.attrs = own, .numAttrs = 2}, *config = &launch;
	CUlaunchAttributeValue value;

	copies_init(&copies);
	ck_assert_int_eq(launch_attributes_before(&copies, &config), CUDA_SUCCESS);
	value = config->attrs[1].value;
	ck_assert_ptr_eq(value.accessPolicyWindow.base_ptr, (void *)0x7f0000000000);
	ck_assert_ptr_eq(own[1].value.accessPolicyWindow.base_ptr, (void *)ptr);
	ck_assert(rewrite_access_policy_back(&value));
	ck_assert_ptr_eq(value.accessPolicyWindow.base_ptr, (void *)ptr);
	/* Nothing to rewrite: nothing is copied. */
	own[1].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
	config = &launch;
	ck_assert_int_eq(launch_attributes_before(&copies, &config), CUDA_SUCCESS);
	ck_assert_ptr_eq(config, &launch);
	copies_free(&copies);
}
END_TEST

/* What is bound for the function whose real one is at @function. */
static void *translated_of(const void *function)
{
	size_t i = 0;

	while (driver_calls[i].real != function)
		i++;
	return mode_calls[i].translated;
}

static CUresult launch_updatable(const CUlaunchConfig *config, CUfunction f, void **params,
				 void **extra)
{
	(void)f;
	(void)params;
	(void)extra;
	ck_assert_ptr_eq(config->attrs[1].value.accessPolicyWindow.base_ptr, (void *)next_real);
	config->attrs[0].value.deviceUpdatableKernelNode.devNode = (CUgraphDeviceNode)0x8000;
	return CUDA_SUCCESS;
}

/* The driver writes into the attributes of a launch: into our copy, where one is a window. */
START_TEST(nodes_for_the_gpu_are_told)
{
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB);
	CUlaunchAttribute own[2] = {
		{.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE},
		{.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
		 .value.accessPolicyWindow.base_ptr = (void *)ptr},
	};
	const CUlaunchConfig config = {.attrs = own, .numAttrs = 2};
	__typeof__(real.cuLaunchKernelEx) launch = translated_of(&real.cuLaunchKernelEx);

	fake_kernel_nodes();
	real.cuLaunchKernelEx = launch_updatable;
	ck_assert_int_eq(launch(&config, (CUfunction)0x2000, NULL, NULL), CUDA_SUCCESS);
	ck_assert_ptr_eq(own[0].value.deviceUpdatableKernelNode.devNode, (void *)0x8000);
	ck_assert_ptr_eq(own[1].value.accessPolicyWindow.base_ptr, (void *)ptr);
}
END_TEST

/* Before the call has returned, another thread has a reference with the handle, and memory in it. */
static CUresult texture_ref_destroy(CUtexref ref)
{
	driver_memory_add_texture((uintptr_t)ref, CTX);
	return CUDA_SUCCESS;
}

static CUresult texture_ref_lives(CUtexref ref)
{
	(void)ref;
	return CUDA_ERROR_INVALID_CONTEXT;
}

START_TEST(a_texture_reference_ends)
{
	__typeof__(real.cuTexRefDestroy) destroy = translated_of(&real.cuTexRefDestroy);

	driver_memory_add_texture(0x9000, CTX);
	real.cuTexRefDestroy = texture_ref_destroy;
	real.cuCtxGetCurrent = current_context;
	ck_assert_int_eq(destroy((CUtexref)0x9000), CUDA_SUCCESS);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_FIXED_TEXTURE), 1);
	real.cuTexRefDestroy = texture_ref_lives;
	ck_assert_int_eq(destroy((CUtexref)0x9000), CUDA_ERROR_INVALID_CONTEXT);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_FIXED_TEXTURE), 1);
}
END_TEST

static CUstream stream_set;
static unsigned int nset;

static CUresult set_attribute(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	ck_assert_int_eq(id, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW);
	ck_assert_ptr_eq(value->accessPolicyWindow.base_ptr, (void *)next_real);
	stream_set = stream;
	nset++;
	return CUDA_SUCCESS;
}

static CUresult set_context(CUcontext ctx)
{
	ck_assert_ptr_eq(ctx, CTX);
	return CUDA_SUCCESS;
}

/* Stream 0 is the legacy stream, or the per-thread one, which only its thread can change. */
START_TEST(windows_of_streams)
{
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB);
	CUstreamAttrValue value = {.accessPolicyWindow.base_ptr = (void *)ptr};
	__typeof__(real.cuStreamSetAttribute) set =
		translated_of(_i ? &real.cuStreamSetAttribute : &real.cuStreamSetAttribute_ptsz);

	real.cuStreamSetAttribute = real.cuStreamSetAttribute_ptsz = set_attribute;
	real.cuCtxGetCurrent = current_context;
	real.cuCtxSetCurrent = set_context;
	ck_assert_int_eq(set(NULL, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value), CUDA_SUCCESS);
	stream_set = (CUstream)0x3000;
	move(ptr, 0x7d0000000000);
	windows_move();
	ck_assert_uint_eq(nset, 1 + _i);
	ck_assert_ptr_eq(stream_set, _i ? NULL : (CUstream)0x3000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rewrite");
	TCase *tc = tcase_create("rewrite");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, textures_are_counted);
	tcase_add_test(tc, launches);
	tcase_add_loop_test(tc, packed_launches, 0, 2);
	tcase_add_loop_test(tc, packed_launches_that_are_short, 0, 5);
	tcase_add_test(tc, launches_without_pointers);
	tcase_add_test(tc, tensor_maps_follow_their_memory);
	tcase_add_test(tc, tensor_maps_that_are_many);
	tcase_add_test(tc, tensor_maps_of_allocations_that_change_places);
	tcase_add_test(tc, tensor_maps_of_memory_that_is_not_ours_any_more);
	tcase_add_test(tc, copies_and_operations);
	tcase_add_test(tc, decompressions);
	tcase_add_loop_test(tc, ends_where_the_driver_has_memory, 0, 2);
	tcase_add_test(tc, nodes_whose_buffer_is_short);
	tcase_add_test(tc, what_is_large_is_copied_to_the_heap);
	tcase_add_test(tc, what_is_not_host_memory_is_not_touched);
	tcase_add_loop_test(tc, nodes_that_are_shown_stay_until_they_go, 0, 3);
	tcase_add_test(tc, graphs_that_lost_a_kernel);
	tcase_add_test(tc, nodes);
	tcase_add_test(tc, windows);
	tcase_add_test(tc, nodes_for_the_gpu_are_told);
	tcase_add_test(tc, a_texture_reference_ends);
	tcase_add_loop_test(tc, windows_of_streams, 0, 2);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
