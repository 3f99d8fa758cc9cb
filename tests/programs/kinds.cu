/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kind of memory that a program can have beside cudaMalloc's: globals of a module, constant
 * memory, stream-ordered allocations, arrays read through a texture, and pinned memory.
 * Each is changed in every step and must come through a pause that takes everything off the GPU.
 */
#include "tests/programs/step.h"

#include <cuda_runtime.h>

#define WORDS 65536
#define SIZE  (WORDS * sizeof(uint32_t))
#define SIDE  256

static_assert(SIDE * SIDE == WORDS, "an array holds as much as a buffer");

__device__ static uint32_t global_words[WORDS];
__constant__ static uint32_t constant_words[64];

struct memory {
	uint32_t *plain, *ordered, *pinned, *pinned_ptr;
	cudaArray_t array;
	cudaTextureObject_t texture;
	cudaStream_t stream;
};

/* One step of every word, from its neighbours in the other kinds of memory. */
__global__ static void mix(uint32_t *plain, uint32_t *ordered, uint32_t *pinned,
			   cudaTextureObject_t texture, uint32_t k)
{
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS;
	     i += gridDim.x * blockDim.x) {
		uint32_t texel = tex2D<uint32_t>(texture, (float)(i % SIDE), (float)(i / SIDE));

		global_words[i] = global_words[i] * 1664525u + constant_words[i % 64] + k;
		ordered[i] = ordered[i] * 22695477u + global_words[i] + texel;
		pinned[i] = pinned[i] + (ordered[i] * 69069u ^ k);
		plain[i] = plain[i] * 134775813u + pinned[i];
	}
}

static void setup(struct memory *m)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<uint32_t>();
	cudaResourceDesc resource = {};
	cudaTextureDesc texture = {};

	CALL(cudaStreamCreate(&m->stream));
	CALL(cudaMalloc(&m->plain, SIZE));
	CALL(cudaMallocAsync(&m->ordered, SIZE, m->stream));
	CALL(cudaHostAlloc(&m->pinned, SIZE, cudaHostAllocMapped));
	CALL(cudaHostGetDevicePointer(&m->pinned_ptr, m->pinned, 0));
	CALL(cudaMallocArray(&m->array, &format, SIDE, SIDE));
	CALL(cudaMemset(m->plain, 1, SIZE));
	CALL(cudaMemsetAsync(m->ordered, 2, SIZE, m->stream));
	CALL(cudaStreamSynchronize(m->stream));
	memset(m->pinned, 4, SIZE);
	CALL(cudaMemcpy2DToArray(m->array, 0, 0, m->pinned, SIDE * 4, SIDE * 4, SIDE,
				 cudaMemcpyHostToDevice));
	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = m->array;
	texture.filterMode = cudaFilterModePoint;
	texture.readMode = cudaReadModeElementType;
	CALL(cudaCreateTextureObject(&m->texture, &resource, &texture, NULL));
}

static void step(struct memory *m, uint32_t k)
{
	uint32_t words[64];

	for (uint32_t i = 0; i < 64; i++)
		words[i] = k * 64 + i;
	CALL(cudaMemcpyToSymbol(constant_words, words, sizeof(words)));
	mix<<<64, 256, 0, m->stream>>>(m->plain, m->ordered, m->pinned_ptr, m->texture,
				       k);
	CALL(cudaGetLastError());
	/* The next step's texture is this step's result. */
	CALL(cudaMemcpy2DToArrayAsync(m->array, 0, 0, m->plain, SIDE * 4, SIDE * 4, SIDE,
				      cudaMemcpyDeviceToDevice, m->stream));
	CALL(cudaStreamSynchronize(m->stream));
	m->pinned[k % WORDS] += m->pinned[(k + 1) % WORDS];
	m->pinned[k % WORDS] ^= k;
}

static void report_device(const char *what, const void *data)
{
	void *host = malloc(SIZE);

	if (!host)
		step_die("out of memory");
	CALL(cudaMemcpy(host, data, SIZE, cudaMemcpyDeviceToHost));
	step_print_digest(what, step_digest(STEP_DIGEST_INIT, host, SIZE));
	free(host);
}

int main(int argc, char **argv)
{
	struct memory memory = {};
	void *global_ptr;

	step_parse(argc, argv, NULL, 0);
	setup(&memory);
	for (unsigned long k = 0; step_more(k); k++) {
		step(&memory, (uint32_t)k);
		step_done(k);
	}
	CALL(cudaGetSymbolAddress(&global_ptr, global_words));
	report_device("global", global_ptr);
	report_device("plain", memory.plain);
	report_device("ordered", memory.ordered);
	step_print_digest("pinned", step_digest(STEP_DIGEST_INIT, memory.pinned, SIZE));
	CALL(cudaDestroyTextureObject(memory.texture));
	CALL(cudaFreeArray(memory.array));
	CALL(cudaFreeAsync(memory.ordered, memory.stream));
	CALL(cudaStreamSynchronize(memory.stream));
	return 0;
}
