/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kernel in the libraries of the CUDA toolkit, $CUDA_HOME/lib64: each image is read (to read
 * a cubin checks its parameters against CBANK_PARAM_SIZE) but LTO-IR, and what PTX and cubins of
 * one container say of a kernel agrees. Prints what one architecture costs, as figures. A library
 * that is not installed is skipped.
 */
#include "kparams/internal.h"

#include "tests/unit/libraries.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COST_ARCH 90

/* The least that must be found, so that a reader that finds nothing does not pass. */
static const struct {
	const char *name;
	size_t kernels;
} libraries[] = {
	{"cublas", 4000},
	{"cublasLt", 10000},
	{"cufft", 300},
	{"cusparse", 5000},
	{"cusolver", 2000},
	{"cusolverMg", 1},
	{"curand", 200},
	{"nccl", 100},
	{"cudnn_ops", 2000},
	{"cudnn_adv", 1},
	{"cudnn_cnn", 0},
	{"cudnn_engines_precompiled", 1},
	{"cudnn_engines_runtime_compiled", 1000},
};

struct library {
	const char *name;
	const uint8_t *data;
	size_t size;
	size_t containers, images, lto, kernels, compared, failures;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((format(printf, 2, 3))) static void fault(struct library *lib, const char *fmt, ...)
{
	va_list ap;

	if (lib->failures++ >= 20)
		return;
	printf("# %s: ", lib->name);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

/* Spaces are comparable where both compilers write them. */
static bool same_param(const struct kp_image *ptx_image, const struct kp_image *cubin_image,
		       const struct kp_kernel *ptx, const struct kp_kernel *cubin, uint32_t i)
{
	const struct kp_param *a = &ptx->params[i], *b = &cubin->params[i];

	if (a->size != b->size || (ptx->exact_offsets && a->offset != b->offset))
		return false;
	return ptx_image->info.arch != cubin_image->info.arch || a->space == b->space;
}

static void compare(struct library *lib, struct kp_image *ptx_image, struct kp_image *cubin_image)
{
	for (size_t i = 0; i < ptx_image->table.n; i++) {
		const struct kp_kernel *ptx = ptx_image->table.kernels[i];
		const struct kp_kernel *cubin = kp_table_find(&cubin_image->table, ptx->name);

		if (!cubin)
			continue;
		lib->compared++;
		if (ptx->nparams != cubin->nparams) {
			fault(lib, "%s: %u parameters, sm_%u has %u", ptx->name, ptx->nparams,
			      cubin_image->info.arch, cubin->nparams);
			continue;
		}
		for (uint32_t j = 0; j < ptx->nparams; j++)
			if (!same_param(ptx_image, cubin_image, ptx, cubin, j))
				fault(lib, "%s: parameter %u is not that of sm_%u", ptx->name, j,
				      cubin_image->info.arch);
	}
}

static void read_image(struct library *lib, struct kp_image *image)
{
	struct kp_error err;
	size_t n;

	lib->images++;
	if (image->info.kind == KP_LTO_IR)
		lib->lto++;
	else if (kp_image_kernels(image, &n, &err))
		fault(lib, "image at 0x%zx: %s", (size_t)(image->data - lib->data), err.text);
	else
		lib->kernels += n;
}

static void read_container(struct library *lib, const uint8_t *data, size_t size)
{
	struct kp_fatbin *fatbin;
	struct kp_error err;

	lib->containers++;
	if (kp_fatbin_open(data, size, &fatbin, &err)) {
		fault(lib, "container at 0x%zx: %s", (size_t)(data - lib->data), err.text);
		return;
	}
	for (size_t i = 0; i < fatbin->nimages; i++)
		read_image(lib, &fatbin->images[i]);
	for (size_t i = 0; i < fatbin->nimages; i++)
		for (size_t j = 0; j < fatbin->nimages; j++)
			if (fatbin->images[i].info.kind == KP_PTX &&
			    fatbin->images[j].info.kind == KP_CUBIN)
				compare(lib, &fatbin->images[i], &fatbin->images[j]);
	kp_fatbin_close(fatbin);
}

/*
 * Open all @containers and list one architecture, as a program that uses the whole library would.
 */
static size_t read_one_arch(const struct library *lib, const size_t (*containers)[2])
{
	struct kp_fatbin *fatbin;
	size_t n, total = 0;

	for (size_t c = 0; c < lib->containers; c++) {
		if (kp_fatbin_open(lib->data + containers[c][0], containers[c][1], &fatbin, NULL))
			return 0;
		for (size_t i = 0; i < fatbin->nimages; i++) {
			struct kp_image *image = &fatbin->images[i];

			if (image->info.arch == COST_ARCH && image->info.kind == KP_CUBIN &&
			    !kp_image_kernels(image, &n, NULL))
				total += n;
		}
		/* Left open, as they are in such a program. */
	}
	return total;
}

static long file_pages_mb(void)
{
	char line[128];
	long kb = 0;
	FILE *file = fopen("/proc/self/status", "r");

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "RssFile: %ld", &kb);
	if (file)
		fclose(file);
	return kb >> 10;
}

/*
 * In a process of its own, whose peak of memory is then that of this. The file was read just
 * before, so that the time has no disk in it, nor the search for containers: programs say where
 * they are.
 */
static void print_cost(const struct library *lib)
{
	size_t(*containers)[2] = calloc(lib->containers, sizeof(*containers));
	size_t n, offset = 0, length;
	struct rusage usage;
	double start;

	fflush(stdout);
	if (fork()) {
		free(containers);
		wait(NULL);
		return;
	}
	for (n = 0; kp_container_next(lib->data, lib->size, &offset, &length); n++) {
		containers[n][0] = offset;
		containers[n][1] = length;
		offset += length;
	}
	start = now();
	n = read_one_arch(lib, containers);
	printf("figure kparams_%s_sm_%d %.3f s\n", lib->name, COST_ARCH, now() - start);
	getrusage(RUSAGE_SELF, &usage);
	printf("figure kparams_%s_sm_%d_peak %ld MiB\n", lib->name, COST_ARCH,
	       usage.ru_maxrss >> 10);
	printf("# %s: %zu kernels for sm_%d; of the peak, %ld MiB are pages of the file\n",
	       lib->name, n, COST_ARCH, file_pages_mb());
	fflush(stdout);
	_exit(0);
}

static bool check_library(struct library *lib, size_t least)
{
	size_t offset = 0, length;
	double start = now();

	while (kp_container_next(lib->data, lib->size, &offset, &length)) {
		read_container(lib, lib->data + offset, length);
		offset += length;
	}
	printf("# %s: %zu containers, %zu images (%zu LTO-IR, not read), %zu kernels, %zu compared "
	       "with PTX, %zu faults, %.1f s\n",
	       lib->name, lib->containers, lib->images, lib->lto, lib->kernels, lib->compared,
	       lib->failures, now() - start);
	if (lib->kernels < least)
		fault(lib, "fewer than %zu kernels", least);
	return !lib->failures;
}

int main(void)
{
	int n = sizeof(libraries) / sizeof(libraries[0]), failed = 0;

	printf("1..%d\n", n);
	for (int i = 0; i < n; i++) {
		struct library lib = {.name = libraries[i].name};

		lib.data = map_library(lib.name, &lib.size);
		if (!lib.data) {
			printf("ok %d - %s # SKIP not installed\n", i + 1, lib.name);
			continue;
		}
		if (check_library(&lib, libraries[i].kernels)) {
			printf("ok %d - %s\n", i + 1, lib.name);
		} else {
			printf("not ok %d - %s\n", i + 1, lib.name);
			failed = 1;
		}
		print_cost(&lib);
		munmap((void *)lib.data, lib.size);
	}
	return failed;
}
