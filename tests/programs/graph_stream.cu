/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What orders and wraps work: two streams and the events between them, a captured graph, pitched
 * two-dimensional copies, host callbacks, and pointers kept inside device memory. All of it must
 * go on after a pause as if nothing had been moved.
 *
 * --capture-ms N captures in every step, and holds the capture open for so long: a pause then
 * comes while a capture is open. stdout says when one is. --nested 0 leaves out the pointers that only
 * the GPU reads.
 */
#include "tests/programs/step.h"

#include <cuda_runtime.h>

#define NODES  16
#define WORDS  (1 << 18)
#define SIZE   (WORDS * sizeof(uint32_t))
#define FIRST  ((size_t)24 << 20)
#define WIDTH  1000
#define HEIGHT 300

static unsigned long capture_ms;
static unsigned long nested = 1;
static unsigned long callbacks;

__global__ static void mix(uint32_t *data, size_t n, uint32_t salt)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		data[i] = data[i] * 1664525u + 1013904223u + salt + (uint32_t)i;
}

/*
 * Each block works on the list's buffer of its number, through pointers that only the GPU reads.
 * Word 0 is the neighbour's to read, and so is not written here.
 */
__global__ static void mix_nested(uint32_t **list, size_t n)
{
	uint32_t *own = list[blockIdx.x];
	const uint32_t *next = list[(blockIdx.x + 1) % NODES];

	for (size_t i = threadIdx.x + 1; i < n; i += blockDim.x)
		own[i] = own[i] * 22695477u + next[0];
}

__global__ static void mix_rows(char *data, size_t pitch, uint32_t salt)
{
	uint32_t *row = (uint32_t *)(data + blockIdx.x * pitch);

	for (size_t i = threadIdx.x; i < WIDTH; i += blockDim.x)
		row[i] = row[i] * 69069u + salt + blockIdx.x;
}

struct state {
	cudaStream_t first, second;
	cudaEvent_t first_done, second_done;
	cudaGraphExec_t graph;
	uint32_t *a, *b;
	uint32_t **list;
	uint32_t *nodes[NODES];
	char *rows;
	size_t pitch;
	uint32_t *picture;
};

static void CUDART_CB count_callback(void *data)
{
	++*(unsigned long *)data;
}

static void setup(struct state *s)
{
	void *first;

	CALL(cudaStreamCreate(&s->first));
	CALL(cudaStreamCreateWithFlags(&s->second, cudaStreamNonBlocking));
	CALL(cudaEventCreate(&s->first_done));
	CALL(cudaEventCreateWithFlags(&s->second_done, cudaEventDisableTiming));
	CALL(cudaMalloc(&first, FIRST));
	CALL(cudaMalloc(&s->a, SIZE));
	CALL(cudaMalloc(&s->b, SIZE));
	CALL(cudaFree(first)); /* what a pause takes has another place to come back to */
	CALL(cudaMemset(s->a, 1, SIZE));
	CALL(cudaMemset(s->b, 2, SIZE));
	for (int i = 0; i < NODES; i++) {
		CALL(cudaMalloc(&s->nodes[i], 4096));
		CALL(cudaMemset(s->nodes[i], i, 4096));
	}
	if (nested) {
		CALL(cudaMalloc(&s->list, sizeof(s->nodes)));
		CALL(cudaMemcpy(s->list, s->nodes, sizeof(s->nodes), cudaMemcpyHostToDevice));
	}
	CALL(cudaMallocPitch(&s->rows, &s->pitch, WIDTH * sizeof(uint32_t), HEIGHT));
	CALL(cudaMemset2D(s->rows, s->pitch, 3, WIDTH * sizeof(uint32_t), HEIGHT));
	CALL(cudaHostAlloc(&s->picture, WIDTH * sizeof(uint32_t) * HEIGHT, cudaHostAllocDefault));
	CALL(cudaDeviceSynchronize());
}

/* A graph with both a kernel and copies; it holds the addresses of a and b. */
static void capture(struct state *s, unsigned long hold_ms)
{
	cudaGraph_t graph;

	CALL(cudaStreamBeginCapture(s->first, cudaStreamCaptureModeGlobal));
	mix<<<64, 256, 0, s->first>>>(s->a, WORDS, 5);
	CALL(cudaMemcpyAsync(s->b, s->a, SIZE / 2, cudaMemcpyDeviceToDevice, s->first));
	if (hold_ms) {
		printf("capturing\n");
		fflush(stdout);
		step_sleep_ms(hold_ms);
	}
	CALL(cudaMemsetAsync(s->a, 7, 4096, s->first));
	mix<<<64, 256, 0, s->first>>>(s->b, WORDS, 6);
	CALL(cudaStreamEndCapture(s->first, &graph));
	CALL(cudaGraphInstantiate(&s->graph, graph, 0));
	CALL(cudaGraphDestroy(graph));
}

static void step(struct state *s, uint32_t k)
{
	const size_t width = WIDTH * sizeof(uint32_t);

	if (!s->graph)
		capture(s, capture_ms);
	CALL(cudaGraphLaunch(s->graph, s->first));
	mix<<<64, 256, 0, s->first>>>(s->a, WORDS, k);
	CALL(cudaEventRecord(s->first_done, s->first));
	CALL(cudaStreamWaitEvent(s->second, s->first_done, 0));
	if (nested)
		mix_nested<<<NODES, 128, 0, s->second>>>(s->list, 1024);
	CALL(cudaMemcpyAsync(s->nodes[k % NODES], s->a, 4096, cudaMemcpyDeviceToDevice, s->second));
	CALL(cudaLaunchHostFunc(s->second, count_callback, &callbacks));
	CALL(cudaEventRecord(s->second_done, s->second));
	CALL(cudaStreamWaitEvent(s->first, s->second_done, 0));
	mix_rows<<<HEIGHT, 128, 0, s->first>>>(s->rows, s->pitch, k);
	CALL(cudaGetLastError());
	CALL(cudaMemcpy2DAsync(s->picture, width, s->rows, s->pitch, width, HEIGHT,
			       cudaMemcpyDeviceToHost, s->first));
	CALL(cudaStreamSynchronize(s->first));
	s->picture[k % (WIDTH * HEIGHT)] ^= k;
	CALL(cudaMemcpy2DAsync(s->rows, s->pitch, s->picture, width, width, HEIGHT,
			       cudaMemcpyHostToDevice, s->first));
	CALL(cudaDeviceSynchronize());
	if (capture_ms) {
		CALL(cudaGraphExecDestroy(s->graph));
		s->graph = NULL;
	}
}

static void report(struct state *s)
{
	uint32_t *host = (uint32_t *)malloc(SIZE);
	uint64_t digest = STEP_DIGEST_INIT;

	if (!host)
		step_die("out of memory");
	CALL(cudaMemcpy(host, s->a, SIZE, cudaMemcpyDeviceToHost));
	step_print_digest("a", step_digest(STEP_DIGEST_INIT, host, SIZE));
	CALL(cudaMemcpy(host, s->b, SIZE, cudaMemcpyDeviceToHost));
	step_print_digest("b", step_digest(STEP_DIGEST_INIT, host, SIZE));
	for (int i = 0; i < NODES; i++) {
		CALL(cudaMemcpy(host, s->nodes[i], 4096, cudaMemcpyDeviceToHost));
		digest = step_digest(digest, host, 4096);
	}
	step_print_digest("nested", digest);
	step_print_digest("picture", step_digest(STEP_DIGEST_INIT, s->picture,
						 WIDTH * sizeof(uint32_t) * HEIGHT));
	printf("callbacks %lu\n", callbacks);
	free(host);
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"capture-ms", &capture_ms}, {"nested", &nested}};
	struct state state = {};

	step_parse(argc, argv, options, 2);
	setup(&state);
	for (unsigned long k = 0; step_more(k); k++) {
		step(&state, (uint32_t)k);
		step_done(k);
	}
	report(&state);
	return 0;
}
