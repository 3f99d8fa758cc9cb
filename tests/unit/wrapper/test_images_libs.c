/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the first look-up of a kernel costs, in the container of each of the toolkit's libraries
 * that has the largest image: with a driver that knows parameters at most LIMIT_MS for any kernel
 * of it; with an older one the image is read, which is a figure. CPU time, as other tests run as
 * well.
 */
#include "calls.h"
#include "kparams/internal.h"
#include "tests/unit/libraries.h"
#include "wrapper/kernels/images.h"

#include <time.h>

#define ARCH     90
#define LIMIT_MS 2.0
#define TIMES    5
#define LIBRARY  ((void *)0x1000)
#define KERNEL   ((void *)0x2000)

static const char *const libraries[] = {
	"cublas", "cublasLt", "nccl", "cufft", "cudnn_adv", "cudnn_engines_precompiled",
};

/* The kernel that the driver is asked about. */
static const struct kp_kernel *known;

static CUresult param_info(CUkernel kernel, size_t i, size_t *offset, size_t *size)
{
	(void)kernel;
	if (i >= known->nparams)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = known->params[i].offset;
	*size = known->params[i].size;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *dev)
{
	*dev = 0;
	return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	(void)dev;
	*value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? ARCH / 10 : ARCH % 10;
	return CUDA_SUCCESS;
}

static double cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

/* The largest image for ARCH in the containers of @data, and where its container is. */
static struct kp_image *largest_image(const uint8_t *data, size_t size, const uint8_t **container)
{
	size_t offset = 0, length;
	struct kp_fatbin *fatbin;
	struct kp_image *best = NULL;

	while (kp_container_next(data, size, &offset, &length)) {
		struct kp_fatbin *drop = NULL;

		if (kp_fatbin_open(data + offset, length, &fatbin, NULL))
			return NULL;
		for (size_t i = 0; i < fatbin->nimages; i++) {
			struct kp_image *image = &fatbin->images[i];

			if (image->info.kind != KP_CUBIN || image->info.arch != ARCH ||
			    (best && image->raw_size <= best->raw_size))
				continue;
			if (best && best->fatbin != fatbin)
				drop = best->fatbin;
			best = image;
			*container = data + offset;
		}
		kp_fatbin_close(drop);
		if (!best || best->fatbin != fatbin)
			kp_fatbin_close(fatbin);
		offset += length;
	}
	return best;
}

/* How long the first look-up of @kernel takes, whose parameters must be found, in milliseconds. */
static double look_up(const struct kp_kernel *kernel)
{
	const struct kp_kernel *found;
	double start, ms;

	known = kernel;
	images_name(IMAGES_KERNEL, KERNEL, LIBRARY, kernel->name);
	start = cpu_ms();
	found = images_layout(KERNEL);
	ms = cpu_ms() - start;
	for (uint32_t i = 0; i < kernel->nparams; i++)
		if (found->nparams != kernel->nparams ||
		    found->params[i].holds != kernel->params[i].holds) {
			printf("# %s: parameter %u is not found\n", kernel->name, i);
			return 1e9;
		}
	return ms;
}

static bool check_library(const char *name, const uint8_t *data, size_t size)
{
	const uint8_t *container;
	struct kp_image *image = largest_image(data, size, &container);
	double worst = 0, ms;
	size_t n;

	if (!image || kp_image_kernels(image, &n, NULL) || !n) {
		printf("# %s: no image\n", name);
		return false;
	}
	images_load(IMAGES_LIBRARY, LIBRARY, container);
	real.cuKernelGetParamInfo = param_info;
	for (size_t i = 0; i < n; i++) {
		ms = look_up(kp_image_kernel(image, i));
		/* The time may be that of another virtual machine. */
		for (int again = 0; again < TIMES && ms > LIMIT_MS; again++) {
			images_unload(LIBRARY);
			images_load(IMAGES_LIBRARY, LIBRARY, container);
			ms = look_up(kp_image_kernel(image, i));
		}
		if (ms > worst)
			worst = ms;
	}
	real.cuKernelGetParamInfo = NULL;
	ms = look_up(kp_image_kernel(image, 0));
	images_unload(LIBRARY);
	printf("# %s: an image of %zu MiB, %zu kernels\n", name, (size_t)image->raw_size >> 20, n);
	printf("figure first_lookup_%s %.3f ms\n", name, worst);
	printf("figure first_lookup_%s_old_driver %.1f ms\n", name, ms);
	kp_fatbin_close(image->fatbin);
	return worst <= LIMIT_MS;
}

int main(void)
{
	int n = sizeof(libraries) / sizeof(libraries[0]), failed = 0;

	real.cuCtxGetDevice = get_device;
	real.cuDeviceGetAttribute = get_attribute;
	printf("1..%d\n", n);
	for (int i = 0; i < n; i++) {
		size_t size;
		const uint8_t *data = map_library(libraries[i], &size);
		bool good = !data || check_library(libraries[i], data, size);

		failed |= !good;
		printf("%sok %d - %s%s\n", good ? "" : "not ", i + 1, libraries[i],
		       data ? "" : " # SKIP not installed");
		if (data)
			munmap((void *)data, size);
	}
	return failed;
}
