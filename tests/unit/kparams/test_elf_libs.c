/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our readers of ELF files beside libelf (tests/elf_oracle.h), over the libraries of the CUDA
 * toolkit, $CUDA_HOME/lib64: each cubin in them, and the notes of the library itself. A library
 * that is not installed is skipped.
 */
#include "kparams/internal.h"

#include "tests/elf_oracle.h"
#include "tests/unit/libraries.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static const char *const libraries[] = {
	"cublas",
	"cublasLt",
	"cufft",
	"cusparse",
	"cusolver",
	"cusolverMg",
	"curand",
	"nccl",
	"cudnn_ops",
	"cudnn_adv",
	"cudnn_cnn",
	"cudnn_engines_precompiled",
	"cudnn_engines_runtime_compiled",
};

/* False if the two readers differ in the cubin @image, which counts in *@cubins. */
static bool check_image(const struct kp_image *image, size_t *cubins, char why[ELF_ORACLE_WHY])
{
	const uint8_t *data = image->data;
	size_t size = image->info.size;
	uint8_t *unpacked = NULL;
	bool same;

	if (image->info.kind != KP_CUBIN)
		return true;
	if (image->codec != KP_STORED) {
		if (kp_unpack(image, &unpacked, &size, NULL)) {
			snprintf(why, ELF_ORACLE_WHY, "an image cannot be unpacked");
			return false;
		}
		data = unpacked;
	}
	++*cubins;
	same = elf_oracle_cubin(data, size, why) && elf_oracle_extent(data, size, why);
	free(unpacked);
	return same;
}

static bool check_library(const char *name, const uint8_t *data, size_t size)
{
	size_t offset = 0, length, cubins = 0, failures = 0;
	char path[512], why[ELF_ORACLE_WHY];
	struct kp_fatbin *fatbin;

	library_path(name, path, sizeof(path));
	if (!elf_oracle_notes(path, why)) {
		printf("# %s: %s\n", path, why);
		failures++;
	}
	while (kp_container_next(data, size, &offset, &length)) {
		if (kp_fatbin_open(data + offset, length, &fatbin, NULL))
			return false;
		for (size_t i = 0; i < fatbin->nimages; i++)
			if (!check_image(&fatbin->images[i], &cubins, why) && failures++ < 20)
				printf("# %s: image %zu of the container at 0x%zx: %s\n", name, i,
				       offset, why);
		kp_fatbin_close(fatbin);
		offset += length;
	}
	printf("# %s: %zu cubins, %zu differences\n", name, cubins, failures);
	return !failures;
}

int main(void)
{
	int n = sizeof(libraries) / sizeof(libraries[0]), failed = 0;

	printf("1..%d\n", n);
	for (int i = 0; i < n; i++) {
		size_t size;
		const uint8_t *data = map_library(libraries[i], &size);

		if (!data) {
			printf("ok %d - %s # SKIP not installed\n", i + 1, libraries[i]);
		} else if (check_library(libraries[i], data, size)) {
			printf("ok %d - %s\n", i + 1, libraries[i]);
		} else {
			printf("not ok %d - %s\n", i + 1, libraries[i]);
			failed = 1;
		}
		if (data)
			munmap((void *)data, size);
	}
	return failed;
}
