/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FUZZ_H
#define CUDAW_FUZZ_H
/*
 * Fuzz targets for the readers of kparams, of snapshots, and of tickets. Each file beside this one has one:
 * "make fuzz" links it with libFuzzer, "make check" with replay.c, which runs the committed corpus
 * through it.
 */
#include "kparams/internal.h"

/* The directory of this target's corpus. */
extern const char fuzz_corpus[];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Use all that a fatbin offers, and close it. */
static inline void fuzz_fatbin(struct kp_fatbin *fatbin)
{
	const struct kp_kernel *kernel;
	struct kp_error err;
	size_t n;

	for (size_t i = 0; i < kp_fatbin_nimages(fatbin); i++) {
		struct kp_image *image = kp_fatbin_image(fatbin, i);

		if (kp_image_kernels(image, &n, &err))
			continue;
		for (size_t j = 0; j < n; j++) {
			kernel = kp_image_kernel(image, j);
			/* What is listed is found, and what a launch is told fits its buffer. */
			if (kp_image_find(image, kernel->name, &kernel, &err))
				__builtin_trap();
			for (uint32_t k = 0; k < kernel->nparams; k++)
				if (kernel->params[k].size &&
				    (uint32_t)kernel->params[k].offset + kernel->params[k].size >
					    kernel->size)
					__builtin_trap();
		}
	}
	kp_fatbin_find(fatbin, 90, "scale", &kernel, NULL, &err);
	kp_fatbin_close(fatbin);
}

#endif
