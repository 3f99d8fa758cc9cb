/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed memory as programs use it through the CUDA runtime: what the runtime says about it, and
 * that kernels, copies, sets and the host find in it what was written last. No line differs from run
 * to run, so that a native run and one with CUDAW_MANAGED=host can be compared.
 */
#include "tests/programs/step.h"

#define WORDS (1U << 20)

__global__ static void add(unsigned int *words, unsigned int value)
{
	for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS;
	     i += gridDim.x * blockDim.x)
		words[i] += value;
}

static void say(const char *question, cudaError_t error)
{
	printf("%s: %s\n", question, cudaGetErrorName(error));
	cudaGetLastError();
}

static void say_words(const char *question, const unsigned int *words, unsigned int value)
{
	unsigned int i = 0;

	CALL(cudaDeviceSynchronize());
	while (i < WORDS && words[i] == value)
		i++;
	printf("%s: %s\n", question, i == WORDS ? "right" : "wrong");
}

static void say_attributes(const char *question, unsigned int *ptr)
{
	cudaPointerAttributes attributes;

	say(question, cudaPointerGetAttributes(&attributes, ptr));
	printf("  its type: %d, device: %d\n", (int)attributes.type, attributes.device);
	printf("  its pointers: %s, %s\n", attributes.devicePointer == ptr ? "the same" : "another",
	       attributes.hostPointer == ptr ? "the same" : "another");
}

int main(void)
{
	cudaMemLocation gpu = {cudaMemLocationTypeDevice, 0}, host = {cudaMemLocationTypeHost, 0};
	size_t bytes = WORDS * sizeof(unsigned int);
	unsigned int *words, *other, *local = (unsigned int *)malloc(bytes);
	cudaStream_t stream;
	int value = 0;

	CALL(cudaMallocManaged(&words, bytes));
	CALL(cudaMalloc(&other, bytes));
	CALL(cudaStreamCreate(&stream));
	say_attributes("the start", words);
	say_attributes("the middle", words + WORDS / 2);
	say_words("fresh", words, 0);
	say("prefetch to the GPU", cudaMemPrefetchAsync(words, bytes, gpu, 0, stream));
	say("read mostly", cudaMemAdvise(words, bytes, cudaMemAdviseSetReadMostly, gpu));
	say("attached", cudaStreamAttachMemAsync(stream, words));
	add<<<64, 256, 0, stream>>>(words, 3);
	say_words("a kernel", words, 3);
	say("prefetch to the host", cudaMemPrefetchAsync(words, bytes, host, 0, stream));
	say("the last prefetch", cudaMemRangeGetAttribute(&value, sizeof(value),
							  cudaMemRangeAttributeLastPrefetchLocation,
							  words, bytes));
	printf("it went to: %d\n", value);
	for (unsigned int i = 0; i < WORDS; i++)
		words[i] += 2;
	add<<<64, 256, 0, stream>>>(words, 1);
	say_words("the host, then a kernel", words, 6);
	say("cudaMemset", cudaMemset(words, 1, bytes));
	say_words("set", words, 0x01010101);
	say("cudaMemcpy, default, to the device", cudaMemcpy(other, words, bytes, cudaMemcpyDefault));
	say("cudaMemcpy, to the host", cudaMemcpy(local, other, bytes, cudaMemcpyDeviceToHost));
	say_words("copied, 1", local, 0x01010101);
	memset(local, 2, bytes);
	say("cudaMemcpy, host to device", cudaMemcpy(words, local, bytes, cudaMemcpyHostToDevice));
	say_words("copied, 2", words, 0x02020202);
	memset(local, 3, bytes);
	say("cudaMemcpy, host to host", cudaMemcpy(words, local, bytes, cudaMemcpyHostToHost));
	say_words("copied, 3", words, 0x03030303);
	memset(local, 4, bytes);
	say("cudaMemcpy, default, from the host", cudaMemcpy(words, local, bytes, cudaMemcpyDefault));
	say_words("copied, 4", words, 0x04040404);
	say("cudaMemcpy, device to device",
	    cudaMemcpy(other, words, bytes, cudaMemcpyDeviceToDevice));
	say("cudaMemcpyAsync, to managed memory as the host",
	    cudaMemcpyAsync(words, other, bytes, cudaMemcpyDeviceToHost, stream));
	say_words("copied, 5", words, 0x04040404);
	say("cudaMemcpy2D", cudaMemcpy2D(words, 4096, other, 4096, 4096, bytes / 4096,
					 cudaMemcpyDefault));
	say_words("copied, 6", words, 0x04040404);
	say("cudaFreeHost", cudaFreeHost(words));
	say("cudaFree", cudaFree(words));
	say("cudaFree again", cudaFree(words));
	free(local);
	return 0;
}
