/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_KPARAMS_INTERNAL_H
#define CUDAW_KPARAMS_INTERNAL_H
/* Shared by the files of kparams. */
#include "kparams/kparams.h"

#include <string.h>

/* ptxas takes 32,764 bytes of parameters; larger ordinals count as damage. */
#define KP_MAX_PARAMS 4096

/* No image comes near this: the largest in NVIDIA's libraries has 100 MB. */
#define KP_MAX_IMAGE (1UL << 30)

/* The first architecture for which nvcc writes state spaces of pointers (as of CUDA 13.0). */
#define KP_FIRST_ARCH_WITH_SPACES 100

/* Fill @err, if there is one, and return @code. */
int kp_fail(struct kp_error *err, int code, uint64_t offset, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* A list of kernels: filled, then sorted, then searched. */
struct kp_table {
	struct kp_kernel **kernels;
	size_t n, max;
};

/* Add a kernel with a copy of @name (@len bytes) and of @params. NULL if there is no memory. */
struct kp_kernel *kp_table_add(struct kp_table *table, const char *name, size_t len,
			       const struct kp_param *params, uint32_t nparams);

/*
 * Sort by name. Two kernels of one name (PTX may declare before it defines) become one; -EBADMSG if
 * they differ.
 */
int kp_table_sort(struct kp_table *table, struct kp_error *err);
struct kp_kernel *kp_table_find(const struct kp_table *table, const char *name);
void kp_table_free(struct kp_table *table);

enum kp_codec { KP_STORED, KP_LZ4, KP_ZSTD };

struct kp_image {
	struct kp_fatbin *fatbin;
	struct kp_image_info info;
	const uint8_t *data; /* as stored, info.size bytes */
	uint64_t raw_size;   /* after decompression; 0 if stored as it is */
	uint8_t codec;       /* enum kp_codec */
	int unsupported;     /* -ENOTSUP: this entry has an unknown flag, and cannot be read */
	bool indexed;
	struct kp_table table;
	struct kp_error *error; /* why it cannot be read, with this code: */
	int code;
};

/*
 * How many images with spaces may be searched for a kernel of another. Fatbins have few; without a
 * limit, kernels times images could be the square of the input's size.
 */
#define KP_MAX_SIBLINGS 256

struct kp_fatbin {
	struct kp_image *images;
	size_t nimages, max_images;
	struct kp_image **ranked; /* best first, for a device of ranked_arch; or NULL */
	uint32_t ranked_arch;
	struct kp_image *siblings[KP_MAX_SIBLINGS]; /* images with kernels and spaces */
	size_t nsiblings, nseen;                    /* found in the first nseen images */
};

/* Find @name in @image, as kp_fatbin_find() does in all. */
int kp_image_find(struct kp_image *image, const char *name, const struct kp_kernel **kernel,
		  struct kp_error *err);

/* Decompress @image, which is compressed, into a new buffer. */
int kp_unpack(const struct kp_image *image, uint8_t **out, size_t *size, struct kp_error *err);

int kp_cubin_read(const uint8_t *data, size_t size, struct kp_table *table, struct kp_error *err);

/* The architecture of a cubin or a PTX text, from its header. */
int kp_cubin_info(const void *data, size_t size, struct kp_image_info *info, struct kp_error *err);
int kp_ptx_info(const char *text, size_t size, struct kp_image_info *info, struct kp_error *err);
int kp_ptx_read(const char *text, size_t size, struct kp_table *table, struct kp_error *err);

/* A kernel in one block of memory. NULL if there is no memory. */
struct kp_kernel *kp_kernel_make(const char *name, size_t len, const struct kp_param *params,
				 uint32_t nparams);

/* Find out what each parameter of @kernel holds. @image is the kernel's, or NULL if it has none. */
void kp_classify(struct kp_image *image, struct kp_kernel *kernel);

/*
 * Types of the parameters in a mangled C++ name, as enum kp_holds; a struct is KP_ANYTHING. Returns
 * how many there are, or -ENOTSUP if the name is not mangled, or in an unknown way, or has more
 * than @max.
 */
int kp_mangled_params(const char *name, uint8_t *holds, size_t max);

static inline bool kp_is_container(const void *data, size_t size)
{
	return size >= 4 && !memcmp(data, "\x50\xed\x55\xba", 4);
}

static inline bool kp_is_elf(const void *data, size_t size)
{
	return size >= 4 && !memcmp(data, "\177ELF", 4);
}

#endif
