// SPDX-License-Identifier: Apache-2.0
// The two kernels of fixtures/small-*.fatbin.
struct Pair { float *p; long n; };

extern "C" __global__ void scale(float *p, float by, int n)
{
	if (threadIdx.x < n)
		p[threadIdx.x] *= by;
}

__global__ void fill(Pair pair, long value) { pair.p[0] = pair.n + value; }
