/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_KPARAMS_H
#define CUDAW_KPARAMS_H
/*
 * kparams: what parameters a kernel takes, read from what the compiler left in fatbins, cubins and
 * PTX: for each parameter its offset and size, and whether it holds a pointer.
 *
 * A program carries its GPU code in containers. A container has images: the same code for several
 * architectures, as cubin (an ELF file of its own) or PTX (text), compressed or not:
 *
 *	kp_fatbin	a container; or the containers of one fatbin wrapper; or a lone cubin or PTX
 *	  kp_image	one image, for one architecture
 *	    kp_kernel	one __global__ function: its name and its parameters
 *
 * Opening a fatbin reads only the headers of its images. The first request for a kernel of an image
 * decompresses it and lists its kernels; after that only the list is kept. The first request for a
 * kernel finds out which of its parameters are pointers.
 *
 *	fatbin.c	wrapper, container, entries		image.c		lists and look-ups
 *	unpack.c	LZ4 and ZSTD				pointers.c	who holds a pointer
 *	cubin.c		cubins					mangled*.c	types in C++ names
 *	elf.c		the ELF structures of cubins		table.c		a list of kernels
 *	ptx.c		PTX
 *
 * The input is not trusted: every read is bounded, and nothing is written to it. It is borrowed: it
 * must not change until kp_fatbin_close(). There is no global state and no CUDA call. The caller
 * serialises the calls on one fatbin and its images; different fatbins are independent.
 *
 * Functions return 0 or a negative errno: -EBADMSG for malformed input, -ENOTSUP for input that
 * looks well formed but is of an unknown kind, -ENOENT for a kernel that is not there, -ENOMEM.
 * Outputs are untouched on failure. @err, which may be NULL, gets the place and the reason.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kp_fatbin;
struct kp_image;

struct kp_error {
	uint64_t offset; /* into the input, or into the image after decompression */
	char text[160];  /* begins with that offset */
};

/* Kinds of images, numbered as the entries of a container are. */
enum kp_kind {
	KP_PTX = 1,
	KP_CUBIN = 2,
	KP_LTO_IR = 8, /* for the device linker; never read */
};

/* What a parameter holds. */
enum kp_holds {
	KP_ANYTHING = 0, /* a struct, or not known: any aligned word may be a pointer */
	KP_POINTER,      /* to data */
	KP_NO_POINTER,
	KP_CODE, /* a pointer to a function */
};

/* The source of that knowledge. */
enum kp_source {
	KP_FROM_NOBODY = 0,
	KP_FROM_SIZE,    /* too small for a pointer */
	KP_FROM_IMAGE,   /* the state space in the image's own records */
	KP_FROM_NAME,    /* the mangled name */
	KP_FROM_SIBLING, /* the state space in another image of the same fatbin */
};

#define KP_NO_OFFSET 0xffff

struct kp_param {
	uint16_t
		offset; /* into the parameter buffer; KP_NO_OFFSET: a texture or surface reference */
	uint16_t size;  /* bytes; 0 for these references, which no launch passes */
	uint8_t space; /* as the image says: 0 none, 1 local, 2 shared, 3 const, 4 global, 5 generic */
	uint8_t holds;  /* enum kp_holds */
	uint8_t source; /* enum kp_source */
};

struct kp_kernel {
	const char *name; /* as in the image: mangled if it is a C++ name */
	uint32_t size;    /* of the parameter buffer */
	uint32_t nparams;
	/*
	 * Whether the offsets hold on each device that runs the image. Those computed from PTX do
	 * not if a parameter is aligned to more than 16 bytes: then they depend on the
	 * architecture.
	 */
	bool exact_offsets;
	bool classified;
	bool untyped;             /* a parameter may be a pointer, and the name has no types */
	struct kp_param params[]; /* by ordinal */
};

struct kp_image_info {
	enum kp_kind kind; /* or an unknown number */
	uint32_t arch;     /* 90 for sm_90 and compute_90 */
	char suffix;       /* 'a' or 'f' as in sm_90a, or 0 */
	uint64_t offset;   /* of the stored image in the input */
	uint64_t size;     /* as stored */
};

/*
 * Open a container, a cubin or PTX text of @size bytes. -ENOTSUP if @data is something else.
 */
int kp_fatbin_open(const void *data, size_t size, struct kp_fatbin **out, struct kp_error *err);

/*
 * Add the images of a further container to a fatbin that was just opened, before any request for an
 * image. On failure some of them may have been added.
 */
int kp_fatbin_add(struct kp_fatbin *fatbin, const void *data, size_t size, struct kp_error *err);

/*
 * A wrapper is the argument of __cudaRegisterFatBinary(): a struct of magic, version, a pointer to
 * a container and, in version 2, a pointer to a NULL-terminated array of further containers. All
 * are one fatbin. kp_wrapper_container() returns the @i-th of them; NULL behind the last, and for
 * an unknown version. The pointers are trusted.
 */
bool kp_is_wrapper(const void *data);
const void *kp_wrapper_container(const void *wrapper, size_t i);

void kp_fatbin_close(struct kp_fatbin *fatbin);

size_t kp_fatbin_nimages(const struct kp_fatbin *fatbin);
struct kp_image *kp_fatbin_image(struct kp_fatbin *fatbin, size_t i);

/*
 * Find @name for a device of architecture @arch (90 for compute capability 9.0): in the image that
 * the driver would load or, if that has no such kernel, in the next best one. *@image, if @image is
 * not NULL, becomes that image.
 */
int kp_fatbin_find(struct kp_fatbin *fatbin, uint32_t arch, const char *name,
		   const struct kp_kernel **kernel, struct kp_image **image, struct kp_error *err);

void kp_image_info(const struct kp_image *image, struct kp_image_info *info);

/*
 * List the kernels of @image, by name. The first call of this, or the first kp_fatbin_find() that
 * comes to the image, reads it; an image that cannot be read fails in the same way every time.
 */
int kp_image_kernels(struct kp_image *image, size_t *n, struct kp_error *err);

/* The @i-th kernel by name, after kp_image_kernels(). Valid until the fatbin closes. */
const struct kp_kernel *kp_image_kernel(struct kp_image *image, size_t i);

/*
 * Find the next container in a file's contents at or after *@offset, at an even offset, as those in
 * archives (ar) are. True with its *@offset and *@length (headers included), false if there are no
 * more. Contents of containers are skipped, not searched.
 */
bool kp_container_next(const void *data, size_t size, size_t *offset, size_t *length);

/*
 * The size of a container, cubin or NUL-terminated PTX text in memory, for callers with only a
 * pointer, such as cuModuleLoadData(). The headers are trusted, as the driver trusts them.
 */
int kp_memory_size(const void *data, size_t *size, struct kp_error *err);

/*
 * Make a kernel that no image describes from the offsets and sizes in @params; only its name can
 * tell what they hold. The caller frees it with free(). NULL if there is no memory.
 */
struct kp_kernel *kp_kernel_new(const char *name, const struct kp_param *params, uint32_t nparams);

/* The C++ name, without the prefix that nvcc gives a static kernel. */
const char *kp_mangled_part(const char *name);

#endif
