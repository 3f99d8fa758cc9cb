/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrappers, containers, cubins and PTX: what is found in the fixtures of tests/kparams, and that
 * what is damaged is refused with the place and the reason. Runs in the top directory.
 */
#include "kparams/internal.h"

#include "tests/check_suite.h"

#include <check.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHT_CUDA_INFO 0x70000000

#define FIXTURES "tests/kparams/fixtures/"

/* Where things lie in small-stored.fatbin: the container's header, then the cubin's entry. */
#define ENTRY        16
#define ENTRY_HEADER (ENTRY + 4)
#define ENTRY_SIZE   (ENTRY + 8)
#define ENTRY_PACKED (ENTRY + 0x10)
#define ENTRY_FLAGS  (ENTRY + 0x28)
#define ENTRY_RAW    (ENTRY + 0x38)

static struct kp_error err;

static uint8_t *load(const char *name, size_t *size)
{
	char path[256];
	uint8_t *data;
	FILE *file;

	snprintf(path, sizeof(path), FIXTURES "%s", name);
	file = fopen(path, "rb");
	ck_assert_msg(file != NULL, "%s: run me in the top directory", path);
	fseek(file, 0, SEEK_END);
	*size = ftell(file);
	rewind(file);
	data = malloc(*size);
	ck_assert_uint_eq(fread(data, 1, *size, file), *size);
	fclose(file);
	return data;
}

static struct kp_fatbin *open_good(const void *data, size_t size)
{
	struct kp_fatbin *fatbin = NULL;
	int ret = kp_fatbin_open(data, size, &fatbin, &err);

	ck_assert_msg(ret == 0, "%d: %s", ret, err.text);
	return fatbin;
}

static void put(uint8_t *data, size_t at, uint64_t value, size_t size)
{
	memcpy(data + at, &value, size);
}

/* The kernel "scale" of small.cu: a pointer, a float, an int. */
static void check_scale(const struct kp_kernel *kernel)
{
	static const uint16_t offsets[] = {0, 8, 12}, sizes[] = {8, 4, 4};

	ck_assert_str_eq(kernel->name, "scale");
	ck_assert_uint_eq(kernel->nparams, 3);
	ck_assert_uint_eq(kernel->size, 16);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(kernel->params[i].offset, offsets[i]);
		ck_assert_uint_eq(kernel->params[i].size, sizes[i]);
	}
}

START_TEST(opening_reads_headers)
{
	struct kp_image_info info;
	struct kp_fatbin *fatbin;
	size_t size, n;
	uint8_t *data = load("kernels.fatbin", &size);

	fatbin = open_good(data, size);
	ck_assert_uint_eq(kp_fatbin_nimages(fatbin), 4);
	kp_image_info(kp_fatbin_image(fatbin, 0), &info);
	ck_assert_int_eq(info.kind, KP_CUBIN);
	ck_assert_uint_eq(info.arch, 75);
	kp_image_info(kp_fatbin_image(fatbin, 1), &info);
	ck_assert_int_eq(info.kind, KP_PTX);
	/* An image is read late: one that is damaged after the opening is refused then. */
	memset(data + info.offset, 0xff, 16);
	ck_assert_int_eq(kp_image_kernels(kp_fatbin_image(fatbin, 1), &n, &err), -EBADMSG);
	ck_assert_uint_eq(err.offset, info.offset);
	ck_assert_int_eq(kp_image_kernels(kp_fatbin_image(fatbin, 0), &n, &err), 0);
	ck_assert_uint_eq(n, 30);
	kp_fatbin_close(fatbin);
	free(data);
}
END_TEST

START_TEST(finding_takes_what_the_driver_takes)
{
	static const struct {
		uint32_t arch, want;
		enum kp_kind kind;
	} cases[] =
		{
			{75, 75, KP_CUBIN}, {86, 75, KP_PTX},     {89, 75, KP_PTX},
			{90, 90, KP_CUBIN}, {103, 100, KP_CUBIN}, {120, 75, KP_PTX},
			{50, 75, KP_CUBIN}, /* it does not run there, but any image has the sizes */
		};
	const struct kp_kernel *kernel;
	struct kp_image_info info;
	struct kp_image *image;
	size_t size;
	uint8_t *data = load("kernels.fatbin", &size);
	struct kp_fatbin *fatbin = open_good(data, size);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_int_eq(
			kp_fatbin_find(fatbin, cases[i].arch, "k_pointers", &kernel, &image, &err),
			0);
		kp_image_info(image, &info);
		ck_assert_uint_eq(info.arch, cases[i].want);
		ck_assert_int_eq(info.kind, cases[i].kind);
		ck_assert_uint_eq(kernel->nparams, 5);
		ck_assert_int_eq(kernel->params[0].holds, KP_POINTER);
		ck_assert_int_eq(kernel->params[4].holds, KP_ANYTHING);
	}
	ck_assert_int_eq(kp_fatbin_find(fatbin, 90, "absent", &kernel, NULL, &err), -ENOENT);
	ck_assert_msg(strstr(err.text, "no kernel absent") != NULL, "%s", err.text);
	kp_fatbin_close(fatbin);
	free(data);
}
END_TEST

START_TEST(wrappers)
{
	struct {
		int magic, version;
		const void *data;
		const void *const *more;
	} wrapper = {0x466243b1, 1, NULL, (const void *const *)"ignored in version 1"};
	static const uint8_t empty[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16};
	const void *more[3] = {0};
	const struct kp_kernel *kernel;
	struct kp_fatbin *fatbin;
	size_t size[2];
	uint8_t *data[2] = {load("small-lz4.fatbin", &size[0]), load("kernels.fatbin", &size[1])};

	wrapper.data = data[0];
	ck_assert(kp_is_wrapper(&wrapper));
	ck_assert_ptr_eq(kp_wrapper_container(&wrapper, 0), data[0]);
	ck_assert_ptr_null(kp_wrapper_container(&wrapper, 1));

	/* A device-linked program of PTX alone has its kernels in the array. */
	wrapper.version = 2;
	wrapper.data = empty;
	wrapper.more = more;
	more[0] = data[0];
	more[1] = data[1];
	ck_assert_ptr_eq(kp_wrapper_container(&wrapper, 0), empty);
	ck_assert_ptr_eq(kp_wrapper_container(&wrapper, 1), data[0]);
	ck_assert_ptr_eq(kp_wrapper_container(&wrapper, 2), data[1]);
	ck_assert_ptr_null(kp_wrapper_container(&wrapper, 3));
	wrapper.more = NULL;
	ck_assert_ptr_null(kp_wrapper_container(&wrapper, 1));

	wrapper.version = 3;
	ck_assert_ptr_null(kp_wrapper_container(&wrapper, 0));
	wrapper.magic++;
	ck_assert(!kp_is_wrapper(&wrapper));

	/* All of them are one fatbin. */
	fatbin = open_good(empty, sizeof(empty));
	ck_assert_uint_eq(kp_fatbin_nimages(fatbin), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(kp_fatbin_add(fatbin, data[i], size[i], &err), 0);
	ck_assert_uint_eq(kp_fatbin_nimages(fatbin), 6);
	ck_assert_int_eq(kp_fatbin_find(fatbin, 90, "scale", &kernel, NULL, &err), 0);
	check_scale(kernel);
	ck_assert_int_eq(kp_fatbin_find(fatbin, 90, "k_empty", &kernel, NULL, &err), 0);
	ck_assert_uint_eq(kernel->nparams, 0);
	ck_assert_int_eq(kp_fatbin_add(fatbin, data[0], size[0] - 1, &err), -EBADMSG);
	kp_fatbin_close(fatbin);
	free(data[0]);
	free(data[1]);
}
END_TEST

START_TEST(containers_in_a_file)
{
	size_t size, offset, length, kernels;
	struct kp_fatbin *fatbin;
	uint8_t *data = load("small-zstd.fatbin", &size);
	uint8_t *file = calloc(4, size + 16);
	static const uint8_t magic_in_code[8] = {0x50, 0xed, 0x55, 0xba, 0x90, 0x90, 0x90, 0x90};

	memcpy(file + 64, magic_in_code, 8);
	memcpy(file + 128, data, size);
	memcpy(file + 128 + size, data, size);
	offset = 0;
	ck_assert(kp_container_next(file, 4 * size, &offset, &length));
	ck_assert_uint_eq(offset, 128);
	ck_assert_uint_eq(length, size);
	offset += length;
	ck_assert(kp_container_next(file, 4 * size, &offset, &length));
	ck_assert_uint_eq(offset, 128 + size);
	offset += length;
	ck_assert(!kp_container_next(file, 4 * size, &offset, &length));
	/* One that the file does not have whole is none. */
	offset = 128 + size;
	ck_assert(!kp_container_next(file, 128 + 2 * size - 1, &offset, &length));
	/* In an archive. */
	memmove(file + 130, file + 128, size);
	offset = 0;
	ck_assert(kp_container_next(file, 130 + size, &offset, &length));
	ck_assert_uint_eq(offset, 130);
	ck_assert_int_eq(kp_fatbin_open(file + offset, length, &fatbin, &err), 0);
	ck_assert_int_eq(kp_image_kernels(kp_fatbin_image(fatbin, 0), &kernels, &err), 0);
	kp_fatbin_close(fatbin);
	free(file);
	free(data);
}
END_TEST

START_TEST(sizes_in_memory)
{
	static const char *const names[] = {"kernels.fatbin", "small.cubin", "small.ptx"};
	size_t size, found;

	for (int i = 0; i < 3; i++) {
		uint8_t *data = load(names[i], &size);

		data = realloc(data, size + 1);
		data[size] = '\0';
		ck_assert_int_eq(kp_memory_size(data, &found, &err), 0);
		ck_assert_uint_eq(found, i == 2 ? size + 1 : size);
		free(data);
	}
	ck_assert_int_eq(kp_memory_size("something else", &found, &err), -ENOTSUP);
}
END_TEST

/* Damage to small-stored.fatbin: @value of @size bytes put at @at. */
static const struct {
	size_t at, size;
	uint64_t value;
	int open, read; /* what opening and then reading the first image give */
	uint64_t offset;
	const char *why;
} damages[] = {
	{4, 2, 2, -ENOTSUP, 0, 0, "version 2"},
	{6, 2, 8, -EBADMSG, 0, 0, "header of 8 bytes"},
	{8, 8, UINT64_MAX, -EBADMSG, 0, 0, "0xffffffffffffffff bytes"},
	{8, 8, 70, -EBADMSG, 0, ENTRY, "passes the container's end"},
	{8, 8, 20, -EBADMSG, 0, ENTRY, "passes the container's end"},
	{ENTRY_HEADER, 4, 32, -EBADMSG, 0, ENTRY, "header of 32 bytes"},
	{ENTRY_HEADER, 4, UINT32_MAX, -EBADMSG, 0, ENTRY, "passes the container's end"},
	{ENTRY_SIZE, 8, UINT64_MAX - 64, -EBADMSG, 0, ENTRY, "passes the container's end"},
	{ENTRY, 2, 77, 0, -ENOTSUP, ENTRY + 64, "kind 77"},
	{ENTRY, 2, KP_LTO_IR, 0, -ENOTSUP, ENTRY + 64, "LTO-IR"},
	{ENTRY_FLAGS, 4, 0x1011, 0, -ENOTSUP, ENTRY + 64, "compression"},
	{ENTRY_FLAGS, 4, 0xa011, 0, -ENOTSUP, ENTRY + 64, "compression"},
	{ENTRY_FLAGS, 4, 0x2011, 0, -EBADMSG, ENTRY + 64, "an empty image"},
	{ENTRY_FLAGS, 4, 0x8011, 0, -EBADMSG, ENTRY + 64, "an empty image"},
};

START_TEST(damaged_containers)
{
	struct kp_fatbin *fatbin = NULL;
	size_t size, n;
	uint8_t *data = load("small-stored.fatbin", &size);
	int ret;

	put(data, damages[_i].at, damages[_i].value, damages[_i].size);
	ret = kp_fatbin_open(data, size, &fatbin, &err);
	ck_assert_int_eq(ret, damages[_i].open);
	if (!ret) {
		ret = kp_image_kernels(kp_fatbin_image(fatbin, 0), &n, &err);
		ck_assert_int_eq(ret, damages[_i].read);
		/* It fails in the same way every time, and leaves the other image. */
		memset(&err, 0, sizeof(err));
		ck_assert_int_eq(kp_image_kernels(kp_fatbin_image(fatbin, 0), &n, &err), ret);
		ck_assert_int_eq(kp_image_kernels(kp_fatbin_image(fatbin, 1), &n, NULL), 0);
		ck_assert_uint_eq(n, 2);
	}
	ck_assert_msg(strstr(err.text, damages[_i].why) != NULL, "'%s' is not in '%s'",
		      damages[_i].why, err.text);
	ck_assert_uint_eq(err.offset, damages[_i].offset);
	kp_fatbin_close(fatbin);
	free(data);
}
END_TEST

START_TEST(sizes_that_lie)
{
	struct kp_fatbin *fatbin = NULL;
	size_t size, n;
	uint8_t *data = load("small-zstd.fatbin", &size);
	uint64_t raw;

	put(data, ENTRY_PACKED, UINT32_MAX, 4);
	ck_assert_int_eq(kp_fatbin_open(data, size, &fatbin, &err), -EBADMSG);
	ck_assert_ptr_null(fatbin);
	free(data);

	data = load("small-zstd.fatbin", &size);
	memcpy(&raw, data + ENTRY_RAW, 8);
	for (int i = 0; i < 3; i++) {
		const uint64_t lies[] = {raw - 1, raw + 1, 1UL << 40};

		put(data, ENTRY_RAW, lies[i], 8);
		fatbin = open_good(data, size);
		ck_assert_int_eq(kp_image_kernels(kp_fatbin_image(fatbin, 0), &n, &err),
				 i == 2 ? -ENOTSUP : -EBADMSG);
		kp_fatbin_close(fatbin);
	}
	free(data);
}
END_TEST

/* The same kernels in the ABI of CUDA 12, which keeps the architecture elsewhere. */
START_TEST(both_cubin_abis)
{
	const struct kp_kernel *kernel;
	struct kp_image_info info;
	struct kp_fatbin *fatbin;
	size_t size;
	uint8_t *data = load("small.cubin", &size);

	ck_assert_uint_eq(data[EI_OSABI], 0x41);
	data[EI_OSABI] = 0x33;
	data[EI_ABIVERSION] = 7;
	put(data, offsetof(Elf64_Ehdr, e_flags), 0x005a0d5a, 4);
	fatbin = open_good(data, size);
	kp_image_info(kp_fatbin_image(fatbin, 0), &info);
	ck_assert_uint_eq(info.arch, 90);
	ck_assert_int_eq(info.suffix, 'a');
	ck_assert_int_eq(kp_image_find(kp_fatbin_image(fatbin, 0), "scale", &kernel, &err), 0);
	check_scale(kernel);
	kp_fatbin_close(fatbin);

	data[EI_OSABI] = 0x55;
	ck_assert_int_eq(kp_fatbin_open(data, size, &fatbin, &err), -ENOTSUP);
	free(data);
}
END_TEST

/* Where the KPARAM_INFO record of @ordinal of a kernel is; they have 4 + 12 bytes. */
static size_t find_record(const uint8_t *data, size_t size, uint16_t ordinal)
{
	static const uint8_t head[8] = {4, 0x17, 12, 0, 0, 0, 0, 0};

	for (size_t at = 0; at + 16 <= size; at += 4)
		if (!memcmp(data + at, head, 8) && !memcmp(data + at + 8, &ordinal, 2))
			return at;
	ck_abort_msg("no record of parameter %u", ordinal);
	return 0;
}

/* Damage to the record of the kernel's parameter 1, at an offset into it. */
static const struct {
	size_t at, size;
	uint64_t value;
	int code;
	const char *why;
} records[] = {
	{0, 1, 9, -ENOTSUP, "format 9"},
	{2, 2, 11, -ENOTSUP, "of 11 bytes"},
	{2, 2, 0xffff, -EBADMSG, "passes its section's end"},
	{8, 2, 0, -EBADMSG, "two records describe parameter"},
	{8, 2, 40000, -ENOTSUP, "ordinal 40000"},
	{8, 2, 9, -EBADMSG, "no parameter 1"},
	{10, 2, 4, -EBADMSG, "inside the one before it"},
	{10, 2, 0xffff, -EBADMSG, "at 0xffff"},
	{12, 4, 1024U << 18, -EBADMSG, ""},
	{1, 1, 0x18, -EBADMSG, ""}, /* the parameter is lost: what is left is too small */
};

START_TEST(damaged_records)
{
	struct kp_fatbin *fatbin;
	size_t size, n, at;
	uint8_t *data = load("small.cubin", &size);

	at = find_record(data, size, 1);
	put(data, at + records[_i].at, records[_i].value, records[_i].size);
	fatbin = open_good(data, size);
	ck_assert_int_eq(kp_image_kernels(kp_fatbin_image(fatbin, 0), &n, &err), records[_i].code);
	ck_assert_msg(strstr(err.text, records[_i].why) != NULL, "'%s' is not in '%s'",
		      records[_i].why, err.text);
	ck_assert_uint_gt(err.offset, 0);
	kp_fatbin_close(fatbin);
	free(data);
}
END_TEST

/* Damage to the ELF header, or to the header of a section of a type. */
static const struct {
	uint32_t type; /* SHT_NULL: the ELF header */
	size_t at, size;
	uint64_t value;
	int code;
	const char *why;
} headers[] = {
	{SHT_NULL, offsetof(Elf64_Ehdr, e_shoff), 8, UINT64_MAX, -EBADMSG, "pass the image's end"},
	{SHT_NULL, offsetof(Elf64_Ehdr, e_shnum), 2, 0xffff, -EBADMSG, "pass the image's end"},
	{SHT_NULL, offsetof(Elf64_Ehdr, e_shentsize), 2, 32, -EBADMSG, "pass the image's end"},
	{SHT_NULL, offsetof(Elf64_Ehdr, e_shnum), 2, 0, 0, ""}, /* then section 0 has none either */
	{SHT_SYMTAB, offsetof(Elf64_Shdr, sh_offset), 8, UINT64_MAX, -EBADMSG, "passes the image"},
	{SHT_SYMTAB, offsetof(Elf64_Shdr, sh_size), 8, UINT64_MAX, -EBADMSG, "passes the image"},
	{SHT_SYMTAB, offsetof(Elf64_Shdr, sh_entsize), 8, 0, -EBADMSG, "symbols of 0 bytes"},
	{SHT_SYMTAB, offsetof(Elf64_Shdr, sh_link), 4, 0xffff, -EBADMSG, "in section 65535"},
	{SHT_SYMTAB, offsetof(Elf64_Shdr, sh_link), 4, 0, -EBADMSG, "no name"},
	{SHT_STRTAB, offsetof(Elf64_Shdr, sh_size), 8, 1, -EBADMSG, "no name"},
	{SHT_CUDA_INFO, offsetof(Elf64_Shdr, sh_offset), 8, UINT64_MAX, -EBADMSG, "passes the"},
	{SHT_CUDA_INFO, offsetof(Elf64_Shdr, sh_info), 4, 0xffff, -EBADMSG, "no .nv.info"},
};

/* Where a header of @type is. Of string tables it is the last one: the names of symbols. */
static size_t find_header(const uint8_t *data, uint32_t type)
{
	size_t found = 0;
	Elf64_Ehdr elf;

	memcpy(&elf, data, sizeof(elf));
	for (size_t i = 0; i < elf.e_shnum; i++) {
		size_t at = elf.e_shoff + i * sizeof(Elf64_Shdr);
		Elf64_Shdr section;

		memcpy(&section, data + at, sizeof(section));
		/* The first section of this type is about the image, not about a kernel. */
		if (section.sh_type == type && (type != SHT_CUDA_INFO || section.sh_info))
			found = at;
	}
	ck_assert_uint_gt(found, 0);
	return found;
}

START_TEST(damaged_headers)
{
	struct kp_fatbin *fatbin;
	size_t size, n, at = 0;
	uint8_t *data = load("small.cubin", &size);

	if (headers[_i].type != SHT_NULL)
		at = find_header(data, headers[_i].type);
	put(data, at + headers[_i].at, headers[_i].value, headers[_i].size);
	fatbin = open_good(data, size);
	err.text[0] = '\0';
	ck_assert_int_eq(kp_image_kernels(kp_fatbin_image(fatbin, 0), &n, &err), headers[_i].code);
	ck_assert_msg(strstr(err.text, headers[_i].why) != NULL, "'%s' is not in '%s'",
		      headers[_i].why, err.text);
	kp_fatbin_close(fatbin);
	free(data);
}
END_TEST

/* Symbols that are all of one kernel; what is read and kept for each is bounded together. */
static const struct {
	size_t nsymbols;
	bool params, long_name;
	int code;
} shares[] = {
	{1, true, true, 0},
	{1000, false, false, 0},
	{1000, true, false, -EBADMSG},
	{1000, false, true, -EBADMSG},
};

START_TEST(kernels_that_share)
{
	const size_t name_size = 4000;
	Elf64_Sym symbol = {.st_name = 1, .st_info = STT_FUNC, .st_other = 0x10};
	struct kp_fatbin *fatbin;
	size_t size, n, info, symbols, names;
	uint8_t *data = load("small.cubin", &size);

	info = find_header(data, SHT_CUDA_INFO);
	symbols = find_header(data, SHT_SYMTAB);
	names = find_header(data, SHT_STRTAB);
	memcpy(&symbol.st_shndx, data + info + offsetof(Elf64_Shdr, sh_info), 2);
	data = realloc(data, size + shares[_i].nsymbols * sizeof(symbol) + name_size);
	put(data, symbols + offsetof(Elf64_Shdr, sh_offset), size, 8);
	put(data, symbols + offsetof(Elf64_Shdr, sh_size), shares[_i].nsymbols * sizeof(symbol), 8);
	for (size_t i = 0; i < shares[_i].nsymbols; i++, size += sizeof(symbol))
		memcpy(data + size, &symbol, sizeof(symbol));
	if (!shares[_i].params)
		put(data, info + offsetof(Elf64_Shdr, sh_size), 0, 8);
	if (shares[_i].long_name) {
		memset(data + size, 'x', name_size - 1);
		data[size + name_size - 1] = '\0';
		put(data, names + offsetof(Elf64_Shdr, sh_offset), size, 8);
		put(data, names + offsetof(Elf64_Shdr, sh_size), name_size, 8);
		size += name_size;
	}
	fatbin = open_good(data, size);
	ck_assert_int_eq(kp_image_kernels(kp_fatbin_image(fatbin, 0), &n, &err), shares[_i].code);
	if (!shares[_i].code) {
		ck_assert_uint_eq(n, 1);
	} else {
		ck_assert_msg(strstr(err.text, "kernels share") != NULL, "%s", err.text);
		ck_assert_uint_gt(err.offset, 0);
	}
	kp_fatbin_close(fatbin);
	free(data);
}
END_TEST

static const struct {
	const char *text;
	int code;
	const char *why;
} texts[] = {
	{".entry f(.param .u32 a)", 0, ""},
	{".entry f(.param .u32 a); .entry f(.param .u32 b) { }", 0, ""},
	{".entry f(.param .u32 a); .entry f(.param .u64 b) { }", -EBADMSG,
	 "two different kernels are named f"},
	{"/* .entry", 0, ""},
	{"/** .entry x **/ .entry", 0, ""},
	{"/*/ .entry */ .entry f(.param /**/ .u32 /***/ a) // .entry", 0, ""},
	{"/**/ .entry ", -EBADMSG, "without a name"},
	{"// a * / \n .entry ", -EBADMSG, "without a name"},
	{"\" .entry", 0, ""},
	{".entryf(", 0, ""},
	{".entry", 0, ""},
	{".entry ", -EBADMSG, "without a name"},
	{".entry f(", -EBADMSG, "expected .param"},
	{".entry f(.param", -EBADMSG, "without a type"},
	{".entry f(.param a)", -EBADMSG, "without a type"},
	{".entry f(.param .u32)", -EBADMSG, "without a type or a name"},
	{".entry f(.param .u32 a", -EBADMSG, "without an end"},
	{".entry f(.param .u32 a,)", -EBADMSG, "expected .param"},
	{".entry f(.param .b8 a[])", -EBADMSG, "an array of unknown size"},
	{".entry f(.param .b8 a[9999999999])", -EBADMSG, "an array of unknown size"},
	{".entry f(.param .b64 a[999999999])", -EBADMSG, "65,535"},
	{".entry f(.param .align 3 .b8 a[4])", -EBADMSG, "power of two"},
	{".entry f(.param .align 0 .b8 a[4])", -EBADMSG, "power of two"},
	{".entry f(.param .v4 .f32 a)", -ENOTSUP, "with .v4"},
	{".entry f(.param .u32 .u32 a)", -ENOTSUP, "with .u32"},
};

START_TEST(ptx_texts)
{
	static const char head[] = ".version 9.0\n.target sm_90a\n";
	struct kp_fatbin *fatbin;
	struct kp_image_info info;
	char text[256];
	size_t n;

	snprintf(text, sizeof(text), "%s%s", head, texts[_i].text);
	memset(&err, 0, sizeof(err));
	fatbin = open_good(text, strlen(text));
	kp_image_info(kp_fatbin_image(fatbin, 0), &info);
	ck_assert_uint_eq(info.arch, 90);
	ck_assert_int_eq(info.suffix, 'a');
	ck_assert_int_eq(kp_image_kernels(kp_fatbin_image(fatbin, 0), &n, &err), texts[_i].code);
	ck_assert_msg(strstr(err.text, texts[_i].why) != NULL, "'%s' is not in '%s'", texts[_i].why,
		      err.text);
	if (texts[_i].code && strcmp(texts[_i].why, "two different kernels are named f"))
		ck_assert_uint_gt(err.offset, sizeof(head) - 2);
	kp_fatbin_close(fatbin);
}
END_TEST

START_TEST(what_is_none_of_these)
{
	static const char *const inputs[] = {"",
					     "x",
					     "\177ELF",
					     ".target sm_90",
					     ".version 9.0",
					     ".version 9.0 .target map_f64_to_f32",
					     "\x50\xed\x55\xba"};
	struct kp_fatbin *fatbin = NULL;

	for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
		ck_assert_int_lt(kp_fatbin_open(inputs[i], strlen(inputs[i]), &fatbin, &err), 0);
		ck_assert_ptr_null(fatbin);
	}
	kp_fatbin_close(NULL);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* Kernels of which only the name and the driver's sizes are known: what each parameter holds. */
static const struct {
	const char *name;
	uint16_t sizes[3];
	const char *holds;
	bool untyped;
} alone[] = {
	{"_Z1fPim", {8, 8}, "Pn", false},
	{"_Z1fP1Siff", {8, 4, 4}, ".nn", true}, /* one type too many */
	{"_Z1f1SS_i", {8, 24, 4}, "..n", false},
	{"_Z1f1Si", {24, 4}, ".n", false},
	{"scale", {8, 4}, ".n", true},
	{"scale", {24, 4, 1}, ".nn", false},
	/* A name with other types than the kernel is of another one. */
	{"_Z1fPii", {8, 24}, "..", true},
	{"_Z1fPiS_", {8, 16}, "..", true},
	{"_Z1fPFvvEi", {4, 4}, "nn", false},
	{"_Z1fPin", {8, 16}, "Pn", false},
};

START_TEST(by_name_and_sizes)
{
	struct kp_param params[3] = {0};
	struct kp_kernel *kernel;
	uint32_t n = 0, end = 0;

	for (; n < COUNT(params) && alone[_i].sizes[n]; n++) {
		params[n] = (struct kp_param){.offset = end, .size = alone[_i].sizes[n]};
		end += params[n].size;
	}
	kernel = kp_kernel_new(alone[_i].name, params, n);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_msg(".Pnc"[kernel->params[i].holds] == alone[_i].holds[i],
			      "parameter %u of %s holds %d", i, alone[_i].name,
			      kernel->params[i].holds);
	ck_assert_msg(kernel->untyped == alone[_i].untyped, "%s", alone[_i].name);
	free(kernel);
}
END_TEST

/* An entry with PTX behind the @at bytes of a container. Returns where it ends. */
static size_t put_ptx(uint8_t *data, size_t at, uint32_t arch, const char *text)
{
	size_t size = (strlen(text) + 8) & -8UL;

	put(data, at, KP_PTX, 2);
	put(data, at + 4, 64, 4);
	put(data, at + 8, size, 8);
	put(data, at + 0x1c, arch, 4);
	strcpy((char *)data + at + 64, text);
	put(data, 8, at + 64 + size - 16, 8);
	return at + 64 + size;
}

/* Images that know pointers, behind so many others for the architecture. */
static const struct {
	const char *others;
	size_t nothers;
	enum kp_holds holds;
} siblings[] = {
	{".entry g(.param .u64 .ptr .global p)", 255, KP_POINTER},
	{".entry g(.param .u64 .ptr .global p)", 256, KP_ANYTHING}, /* one too many */
	{".entry", 5000, KP_POINTER},                               /* without a kernel */
	{".entry ", 5000, KP_POINTER},                              /* not readable */
};

START_TEST(siblings_that_are_asked)
{
	static uint8_t data[1 << 19];
	const struct kp_kernel *kernel;
	struct kp_fatbin *fatbin;
	size_t size;

	memcpy(data, "\x50\xed\x55\xba\x01\x00\x10", 8);
	size = put_ptx(data, 16, 75, ".entry f(.param .u64 p)");
	for (size_t i = 0; i < siblings[_i].nothers; i++)
		size = put_ptx(data, size, 100, siblings[_i].others);
	size = put_ptx(data, size, 100, ".entry f(.param .u64 .ptr .global p)");
	ck_assert_uint_le(size, sizeof(data));
	fatbin = open_good(data, size);
	ck_assert_int_eq(kp_fatbin_find(fatbin, 75, "f", &kernel, NULL, &err), 0);
	ck_assert_int_eq(kernel->params[0].holds, siblings[_i].holds);
	kp_fatbin_close(fatbin);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kparams_image");
	TCase *tc = tcase_create("kparams_image");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, opening_reads_headers);
	tcase_add_test(tc, finding_takes_what_the_driver_takes);
	tcase_add_test(tc, wrappers);
	tcase_add_test(tc, containers_in_a_file);
	tcase_add_test(tc, sizes_in_memory);
	tcase_add_loop_test(tc, damaged_containers, 0, COUNT(damages));
	tcase_add_test(tc, sizes_that_lie);
	tcase_add_test(tc, both_cubin_abis);
	tcase_add_loop_test(tc, damaged_records, 0, COUNT(records));
	tcase_add_loop_test(tc, damaged_headers, 0, COUNT(headers));
	tcase_add_loop_test(tc, kernels_that_share, 0, COUNT(shares));
	tcase_add_loop_test(tc, ptx_texts, 0, COUNT(texts));
	tcase_add_test(tc, what_is_none_of_these);
	tcase_add_loop_test(tc, siblings_that_are_asked, 0, COUNT(siblings));
	tcase_add_loop_test(tc, by_name_and_sizes, 0, COUNT(alone));
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
