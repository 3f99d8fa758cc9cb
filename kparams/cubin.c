/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels in a cubin, an ELF file (elf.h).
 *
 * A kernel is a function symbol with STO_CUDA_ENTRY. Its code is a section .text.NAME; a section
 * .nv.info.NAME of type SHT_CUDA_INFO, whose sh_info is the code's section, describes it for the
 * driver. Device functions have such sections too, and sm_100 has a second copy of another type, so
 * the reader goes by types and not by names. The section is a row of records:
 *
 *	u8 format, u8 attribute, u16 value		and, for format 4, `value` bytes more
 *
 * These matter (numbers as in the ptxas of CUDA 13.0):
 *
 *	KPARAM_INFO	u32 index, u16 ordinal, u16 offset, u32 bits
 *			bits 0-7 log2 of the pointee's alignment, 8-11 state space, 12-16 constant
 *			bank, 17 shared memory, 18-31 size
 *	KPARAM_INFO_V2	the same, with bits 0-15 size, 16-23 alignment, 24-27 state space; for all
 *			parameters of a kernel that has more than 4,352 bytes of them
 *	CBANK_PARAM_SIZE	value = bytes of all parameters
 *	PARAM_CBANK	u32 symbol, u16 base, u16 bytes of all parameters
 *
 * The order of records differs between tools. The parameters must end at the size in the last two
 * records: a misread record shows there.
 */
#include "kparams/elf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHT_CUDA_INFO  0x70000000
#define STO_CUDA_ENTRY 0x10

/* e_ident[EI_OSABI], and the ABI version from which e_flags has the architecture in bits 8-15. */
#define OSABI_CUDA_OLD 0x33
#define OSABI_CUDA     0x41
#define ABI_NEW_FLAGS  8
#define FLAG_OLD_A     0x800

enum format { EIFMT_NVAL = 1, EIFMT_BVAL = 2, EIFMT_HVAL = 3, EIFMT_SVAL = 4 };

enum attribute {
	EIATTR_PARAM_CBANK = 0x0a,
	EIATTR_KPARAM_INFO = 0x17,
	EIATTR_CBANK_PARAM_SIZE = 0x19,
	EIATTR_KPARAM_INFO_V2 = 0x45,
};

#define KPARAM_RECORD_SIZE 12
#define PARAM_CBANK_SIZE   8
#define NO_SIZE            UINT32_MAX

struct cubin {
	struct kp_elf elf;
	size_t symbols; /* the section of the symbol table, or 0 */
	uint32_t *info; /* by index of the code section: its SHT_CUDA_INFO, or 0 */
	size_t used;    /* bytes of .nv.info and names of the kernels so far */
	struct kp_table *table;
	struct kp_error *err;
	/* The kernel that is being read. */
	struct kp_param params[KP_MAX_PARAMS];
	bool seen[KP_MAX_PARAMS];
	uint32_t nparams;
	uint32_t cbank_size, cbank_size_again;
};

static int set_param(struct cubin *cubin, uint32_t ordinal, const struct kp_param *param,
		     uint64_t at)
{
	if (ordinal >= KP_MAX_PARAMS)
		return kp_fail(cubin->err, -ENOTSUP, at,
			       "a parameter of ordinal %u, expected less than %u", ordinal,
			       KP_MAX_PARAMS);
	if (cubin->seen[ordinal])
		return kp_fail(cubin->err, -EBADMSG, at, "two records describe parameter %u",
			       ordinal);
	if ((param->offset == KP_NO_OFFSET) != !param->size)
		return kp_fail(cubin->err, -EBADMSG, at, "parameter %u has %u bytes at 0x%x",
			       ordinal, param->size, param->offset);
	cubin->seen[ordinal] = true;
	cubin->params[ordinal] = *param;
	if (ordinal >= cubin->nparams)
		cubin->nparams = ordinal + 1;
	return 0;
}

static int read_kparam(struct cubin *cubin, uint8_t attribute, struct kp_reader *r, uint64_t at)
{
	struct kp_param param = {0};
	uint32_t ordinal, bits;

	kp_read_u32(r); /* an index of unknown meaning */
	ordinal = kp_read_u16(r);
	param.offset = kp_read_u16(r);
	bits = kp_read_u32(r);
	if (attribute == EIATTR_KPARAM_INFO) {
		param.size = bits >> 18;
		param.space = bits >> 8 & 0xf;
	} else {
		param.size = bits & 0xffff;
		param.space = bits >> 24 & 0xf;
	}
	return set_param(cubin, ordinal, &param, at);
}

/* Read one record; @base is the section's offset in the image. */
static int read_record(struct cubin *cubin, struct kp_reader *r, uint64_t base)
{
	uint64_t at = base + r->pos;
	uint8_t format = kp_read_u8(r);
	uint8_t attribute = kp_read_u8(r);
	uint16_t value = kp_read_u16(r);
	struct kp_reader payload = *r;

	if (!r->failed && (format < EIFMT_NVAL || format > EIFMT_SVAL))
		return kp_fail(cubin->err, -ENOTSUP, at, "a record of unknown format %u", format);
	if (format == EIFMT_SVAL)
		kp_skip(r, value);
	if (r->failed)
		return kp_fail(cubin->err, -EBADMSG, at, "a record passes its section's end");
	if (attribute == EIATTR_CBANK_PARAM_SIZE && format == EIFMT_HVAL)
		cubin->cbank_size = value;
	if (format != EIFMT_SVAL)
		return 0;
	if (attribute == EIATTR_KPARAM_INFO || attribute == EIATTR_KPARAM_INFO_V2) {
		if (value != KPARAM_RECORD_SIZE)
			return kp_fail(cubin->err, -ENOTSUP, at,
				       "a parameter's record of %u bytes, expected %u", value,
				       KPARAM_RECORD_SIZE);
		return read_kparam(cubin, attribute, &payload, at);
	}
	if (attribute == EIATTR_PARAM_CBANK && value == PARAM_CBANK_SIZE) {
		kp_skip(&payload, 6);
		cubin->cbank_size_again = kp_read_u16(&payload);
	}
	return 0;
}

/* Check that the parameters are complete, in order, and end at the kernel's size. */
static int check_params(const struct cubin *cubin, uint64_t at)
{
	uint32_t size = 0;

	for (uint32_t i = 0; i < cubin->nparams; i++) {
		const struct kp_param *param = &cubin->params[i];

		if (!cubin->seen[i])
			return kp_fail(cubin->err, -EBADMSG, at, "no parameter %u of %u", i,
				       cubin->nparams);
		if (!param->size)
			continue;
		if (param->offset < size)
			return kp_fail(cubin->err, -EBADMSG, at,
				       "parameter %u begins at 0x%x, inside the one before it", i,
				       param->offset);
		size = param->offset + param->size;
	}
	if ((cubin->cbank_size != NO_SIZE && cubin->cbank_size != size) ||
	    (cubin->cbank_size_again != NO_SIZE && cubin->cbank_size_again != size))
		return kp_fail(cubin->err, -EBADMSG, at,
			       "parameters take 0x%x bytes, not 0x%x or 0x%x", size,
			       cubin->cbank_size, cubin->cbank_size_again);
	return 0;
}

/*
 * Each kernel has a section and a name of its own. If kernels shared them, the bytes read and kept
 * could be the square of the image's size.
 */
static int use(struct cubin *cubin, size_t size, uint64_t at)
{
	if (size > cubin->elf.size - cubin->used)
		return kp_fail(cubin->err, -EBADMSG, at,
			       "kernels share .nv.info or names: more than the image's 0x%zx bytes",
			       cubin->elf.size);
	cubin->used += size;
	return 0;
}

static int read_info(struct cubin *cubin, size_t section)
{
	uint64_t base = kp_elf_section(&cubin->elf, section).sh_offset;
	struct kp_reader r;
	int ret = kp_elf_open_section(&cubin->elf, section, &r);

	if (!ret)
		ret = use(cubin, kp_left(&r), base);
	while (!ret && kp_left(&r))
		ret = read_record(cubin, &r, base);
	return ret ? ret : check_params(cubin, base);
}

static int read_kernel(struct cubin *cubin, const char *name, size_t code)
{
	struct kp_kernel *kernel;
	int ret = 0;

	memset(cubin->seen, 0, cubin->nparams * sizeof(cubin->seen[0]));
	cubin->nparams = 0;
	cubin->cbank_size = NO_SIZE;
	cubin->cbank_size_again = NO_SIZE;
	if (code >= cubin->elf.nsections || !cubin->info[code])
		return kp_fail(cubin->err, -EBADMSG, 0, "kernel %s has no .nv.info", name);
	ret = read_info(cubin, cubin->info[code]);
	if (ret)
		return ret;
	kernel = kp_table_add(cubin->table, name, strlen(name), cubin->params, cubin->nparams);
	return kernel ? 0 : kp_fail(cubin->err, -ENOMEM, 0, "no memory");
}

/* Find the symbol table and the sections that describe code. */
static void find_sections(struct cubin *cubin)
{
	for (size_t i = 1; i < cubin->elf.nsections; i++) {
		Elf64_Shdr header = kp_elf_section(&cubin->elf, i);

		if (header.sh_type == SHT_SYMTAB)
			cubin->symbols = i;
		else if (header.sh_type == SHT_CUDA_INFO && header.sh_info < cubin->elf.nsections)
			cubin->info[header.sh_info] = i;
	}
}

static int read_symbols(struct cubin *cubin)
{
	struct kp_elf_symbols symbols;
	struct kp_elf_symbol symbol;
	const char *name;
	uint64_t at;
	int ret;

	if (!cubin->symbols)
		return 0;
	at = kp_elf_section(&cubin->elf, cubin->symbols).sh_offset;
	ret = kp_elf_open_symbols(&cubin->elf, cubin->symbols, &symbols);
	while (!ret && kp_elf_next_symbol(&symbols, &symbol)) {
		if (ELF64_ST_TYPE(symbol.raw.st_info) != STT_FUNC ||
		    !(symbol.raw.st_other & STO_CUDA_ENTRY) || symbol.raw.st_shndx == SHN_UNDEF)
			continue;
		name = kp_elf_symbol_name(&symbols, &symbol);
		if (!name)
			return kp_fail(cubin->err, -EBADMSG, at, "a kernel's symbol has no name");
		ret = use(cubin, strlen(name), at);
		if (!ret)
			ret = read_kernel(cubin, name, symbol.section);
	}
	return ret;
}

int kp_cubin_read(const uint8_t *data, size_t size, struct kp_table *table, struct kp_error *err)
{
	struct kp_image_info info;
	struct cubin *cubin;
	int ret = kp_cubin_info(data, size, &info, err);

	if (ret)
		return ret;
	cubin = calloc(1, sizeof(*cubin));
	if (!cubin)
		return kp_fail(err, -ENOMEM, 0, "no memory");
	cubin->table = table;
	cubin->err = err;
	ret = kp_elf_open(&cubin->elf, data, size, err);
	if (ret)
		goto out;
	cubin->info = calloc(cubin->elf.nsections + 1, sizeof(*cubin->info));
	if (!cubin->info) {
		ret = kp_fail(err, -ENOMEM, 0, "no memory");
		goto out;
	}
	find_sections(cubin);
	ret = read_symbols(cubin);
	free(cubin->info);
out:
	free(cubin);
	return ret;
}

int kp_cubin_info(const void *data, size_t size, struct kp_image_info *info, struct kp_error *err)
{
	Elf64_Ehdr header;
	int ret = kp_elf_header(data, size, &header, err);

	if (ret)
		return ret;
	info->kind = KP_CUBIN;
	info->suffix = 0;
	switch (header.e_ident[EI_OSABI]) {
	case OSABI_CUDA_OLD:
		info->arch = header.e_flags & 0xff;
		if (header.e_flags & FLAG_OLD_A)
			info->suffix = 'a';
		return 0;
	case OSABI_CUDA:
		if (header.e_ident[EI_ABIVERSION] >= ABI_NEW_FLAGS)
			info->arch = header.e_flags >> 8 & 0xff;
		else
			info->arch = header.e_flags & 0xff;
		return 0;
	default:
		return kp_fail(err, -ENOTSUP, EI_OSABI, "a cubin of unknown ABI 0x%x",
			       header.e_ident[EI_OSABI]);
	}
}
