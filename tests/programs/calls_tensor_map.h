/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CALLS_TENSOR_MAP_H
#define CUDAW_CALLS_TENSOR_MAP_H
/*
 * A tensor map that is encoded once, before the first step, and that kernels get as a parameter in
 * every step: it must follow the memory that it describes. See calls.h.
 */
#include "tests/programs/calls.h"

#define TENSOR_WIDTH  128 /* words; with the height they are those of a */
#define TENSOR_HEIGHT (WORDS / TENSOR_WIDTH)
#define TILE_WIDTH    32
#define TILE_HEIGHT   8
#define TILE_WORDS    (TILE_WIDTH * TILE_HEIGHT)

static const char tiles_ptx[] =
	".version 8.0\n"
	".target sm_90\n"
	".address_size 64\n"

	/* load_tile(const __grid_constant__ CUtensorMap map, uint32_t *out, uint32_t x, uint32_t y),
	 * by a block of TILE_WORDS threads: the tile whose first word is at x in row y. x is a
	 * multiple of 16 bytes, or the H200 says error 715 (driver 580.159.04). */
	".visible .entry load_tile(.param .align 128 .b8 map[128], .param .u64 out, .param .u32 x,\n"
	"			   .param .u32 y)\n"
	"{\n"
	"	.shared .align 128 .b8 tile[1024];\n"
	"	.shared .align 8 .b64 full;\n"
	"	.reg .pred others, arrived;\n"
	"	.reg .b32 thread, tile_at, full_at, word_at, left, top, value;\n"
	"	.reg .b64 map_at, state, to, offset;\n"
	"	mov.u32 thread, %tid.x;\n"
	"	mov.u32 tile_at, tile;\n"
	"	mov.u32 full_at, full;\n"
	"	setp.ne.u32 others, thread, 0;\n"
	"	@others bra ready;\n"
	"	mbarrier.init.shared::cta.b64 [full_at], 1;\n"
	"	fence.mbarrier_init.release.cluster;\n"
	"	fence.proxy.async.shared::cta;\n"
	"ready:\n"
	"	bar.sync 0;\n"
	"	@others bra wait;\n"
	"	mov.b64 map_at, map;\n"
	"	cvta.param.u64 map_at, map_at;\n"
	"	ld.param.u32 left, [x];\n"
	"	ld.param.u32 top, [y];\n"
	"	mbarrier.arrive.expect_tx.shared::cta.b64 state, [full_at], 1024;\n"
	"	cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes\n"
	"		[tile_at], [map_at, {left, top}], [full_at];\n"
	"wait:\n"
	"	mbarrier.try_wait.parity.shared::cta.b64 arrived, [full_at], 0;\n"
	"	@!arrived bra wait;\n"
	"	shl.b32 word_at, thread, 2;\n"
	"	add.u32 word_at, tile_at, word_at;\n"
	"	ld.shared.u32 value, [word_at];\n"
	"	ld.param.u64 to, [out];\n"
	"	cvta.to.global.u64 to, to;\n"
	"	mul.wide.u32 offset, thread, 4;\n"
	"	add.u64 to, to, offset;\n"
	"	st.global.u32 [to], value;\n"
	"	ret;\n"
	"}\n";

static CUtensorMap map;
static CUfunction load_tile;
static CUgraphExec captured_tile;

static void launch_tile(CUdeviceptr out, uint32_t x, uint32_t y)
{
	void *args[] = {&map, &out, &x, &y};

	CALL(cuLaunchKernel(load_tile, 1, 1, 1, TILE_WORDS, 1, 1, 0, stream, args, NULL));
}

static void encode_map(void)
{
	const cuuint64_t dims[] = {TENSOR_WIDTH, TENSOR_HEIGHT};
	const cuuint64_t pitch = TENSOR_WIDTH * sizeof(uint32_t);
	const cuuint32_t tile[] = {TILE_WIDTH, TILE_HEIGHT}, each[] = {1, 1};
	CUmodule module;
	CUgraph graph;

	CALL(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, (void *)a, dims,
				    &pitch, tile, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
				    CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
				    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
	CALL(cuModuleLoadData(&module, tiles_ptx));
	CALL(cuModuleGetFunction(&load_tile, module, "load_tile"));
	CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch_tile(b, 4, 2);
	CALL(cuStreamEndCapture(stream, &graph));
	CALL(cuGraphInstantiate(&captured_tile, graph, 0));
	CALL(cuGraphDestroy(graph));
}

/* It is in b; what lies behind it is as it was. */
static void expect_tile(const char *call, uint32_t x, uint32_t y)
{
	for (uint32_t row = 0; row < TILE_HEIGHT; row++)
		expect(call, b + row * TILE_WIDTH * sizeof(uint32_t), TILE_WIDTH,
		       first + (y + row) * TENSOR_WIDTH + x, 1);
	expect(call, b + TILE_WORDS * sizeof(uint32_t), WORDS - TILE_WORDS, CLEARED * 0x01010101U,
	       0);
}

static void load_tiles(uint32_t step)
{
	uint32_t x = step * 4 % (TENSOR_WIDTH - TILE_WIDTH);
	uint32_t y = step % (TENSOR_HEIGHT - TILE_HEIGHT);

	launch_tile(b, x, y);
	expect_tile("a tensor map", x, y);
	clear();
	CALL(cuGraphLaunch(captured_tile, stream));
	expect_tile("a tensor map in a graph", 4, 2);
}

#endif
