/* SPDX-License-Identifier: Apache-2.0 */
/*
 *	capture [--capture-ms N] [--capture-line 1] [--global 1] [--grow-mib N]
 *
 * A stream capture in every step that stays open for --capture-ms, with --capture-line 1 until a
 * line comes on stdin or its end, during which memory is allocated
 * and freed, as frameworks do; then its graph is launched. A pause must wait for the end of the
 * capture, since waiting for the GPU during one would break it. With --global 1 captures are of the
 * global mode, and nothing is freed. With --grow-mib so much more is allocated before each.
 */
#include "tests/programs/kernels.h"

#define WORDS (UINT64_C(1) << 20)

static unsigned long capture_ms = 50, capture_line, global, grow_mib;

static CUgraphExec capture(const struct kernels *kernels, CUstream stream, CUdeviceptr data)
{
	uint64_t words = WORDS;
	CUdeviceptr temporary;
	CUgraphExec exec;
	CUgraph graph;
	void *args[] = {&data, &words};

	CALL(cuMemAlloc_v2(&temporary, grow_mib ? grow_mib << 20 : WORDS));
	CALL(cuStreamBeginCapture_v2(stream, global ? CU_STREAM_CAPTURE_MODE_GLOBAL
						    : CU_STREAM_CAPTURE_MODE_RELAXED));
	printf("capturing\n");
	fflush(stdout);
	CALL(cuLaunchKernel(kernels->increment, 64, 1, 1, 256, 1, 1, 0, stream, args, NULL));
	if (!global)
		CALL(cuMemFree_v2(temporary));
	step_sleep_ms(capture_ms);
	if (capture_line)
		step_wait_byte();
	CALL(cuLaunchKernel(kernels->increment, 64, 1, 1, 256, 1, 1, 0, stream, args, NULL));
	CALL(cuStreamEndCapture(stream, &graph));
	CALL(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CALL(cuGraphDestroy(graph));
	return exec;
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {
		{"capture-ms", &capture_ms},
		{"capture-line", &capture_line},
		{"global", &global},
		{"grow-mib", &grow_mib},
	};
	uint32_t *host = malloc(WORDS * sizeof(uint32_t));
	struct kernels kernels;
	CUdeviceptr data;
	CUstream stream;
	unsigned long k;

	step_parse(argc, argv, options, 4);
	kernels_init(&kernels);
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CALL(cuMemAlloc_v2(&data, WORDS * sizeof(uint32_t)));
	CALL(cuMemsetD32_v2(data, 0, WORDS));
	CALL(cuCtxSynchronize()); /* that was on another stream */
	for (k = 0; step_more(k); k++) {
		CUgraphExec exec = capture(&kernels, stream, data);

		CALL(cuGraphLaunch(exec, stream));
		CALL(cuStreamSynchronize(stream));
		CALL(cuGraphExecDestroy(exec));
		step_done(k);
	}
	CALL(cuMemcpyDtoH_v2(host, data, WORDS * sizeof(uint32_t)));
	for (uint64_t i = 0; i < WORDS; i++)
		if (host[i] != 2 * k)
			step_wrong("capture: word %lu is %u after %lu steps", (unsigned long)i,
				   host[i], k);
	free(host);
	printf("capture: every word right\n");
	return 0;
}
