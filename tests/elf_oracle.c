/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/elf_oracle.h"

#include "common/find/buildid.h"
#include "kparams/elf.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHT_CUDA_INFO   0x70000000
#define STO_CUDA_ENTRY  0x10
#define NO_SIZE         UINT32_MAX
#define BUILDID_HEADERS 128   /* buildid.c reads no file with more program headers */
#define BUILDID_NOTES   16384 /* and so many bytes of a segment */

struct oracle {
	Elf *elf;
	struct kp_elf ours;
	size_t *info;          /* by section of code: the one that describes it, or 0 */
	struct kp_table table; /* our kernels, in the order of their symbols */
	int code;              /* how our reading of them ended */
	size_t kernels;        /* so many of them have been compared */
	size_t used;           /* bytes of names and .nv.info, as our reader counts them */
	char *why;
};

__attribute__((format(printf, 2, 3))) static bool differ(char *why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, ELF_ORACLE_WHY, fmt, ap);
	va_end(ap);
	return false;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* The bytes of section @i as libelf has them; false if they pass the file's end. */
static bool section_bytes(struct oracle *o, size_t i, GElf_Shdr *header, Elf_Data **data,
			  Elf_Type type)
{
	size_t entry = type == ELF_T_BYTE ? 1 : gelf_fsize(o->elf, type, 1, EV_CURRENT);
	uint64_t size;

	gelf_getshdr(elf_getscn(o->elf, i), header);
	if (header->sh_type == SHT_NOBITS)
		header->sh_offset = header->sh_size = 0;
	size = header->sh_size;
	*data = elf_getdata_rawchunk(o->elf, header->sh_offset, size - size % entry, type);
	return *data && elf_getdata_rawchunk(o->elf, header->sh_offset, size, ELF_T_BYTE);
}

static bool compare_sections(struct oracle *o)
{
	for (size_t i = 0; i < o->ours.nsections; i++) {
		Elf64_Shdr ours = kp_elf_section(&o->ours, i);
		struct kp_reader r;
		GElf_Shdr theirs;
		Elf_Data *data;
		bool readable = section_bytes(o, i, &theirs, &data, ELF_T_BYTE);

		gelf_getshdr(elf_getscn(o->elf, i), &theirs);
		if (memcmp(&ours, &theirs, sizeof(ours)))
			return differ(o->why, "the header of section %zu", i);
		if (kp_elf_open_section(&o->ours, i, &r) != (readable ? 0 : -EBADMSG))
			return differ(o->why, "section %zu is %sreadable", i,
				      readable ? "" : "not ");
		if (readable && (data->d_size != kp_left(&r) ||
				 (data->d_size && memcmp(data->d_buf, r.data, data->d_size))))
			return differ(o->why, "the bytes of section %zu", i);
	}
	return true;
}

/*
 * The name of a symbol. elf_strptr() takes names from string tables only, and not from compressed
 * ones; for us a section is the string table because the symbols say so.
 */
static bool compare_name(struct oracle *o, size_t strings, size_t offset, const char *ours)
{
	const char *theirs = elf_strptr(o->elf, strings, offset);
	GElf_Shdr header;

	gelf_getshdr(elf_getscn(o->elf, strings), &header);
	if (header.sh_type != SHT_STRTAB || header.sh_flags & SHF_COMPRESSED)
		return true;
	if (!ours)
		return !theirs || !*theirs;
	return theirs && !strcmp(ours, theirs);
}

/* The first section of that type and link, or 0. */
static size_t section_of_type(const struct oracle *o, uint32_t type, uint32_t link)
{
	GElf_Shdr header;

	for (size_t i = 1; i < o->ours.nsections; i++)
		if (gelf_getshdr(elf_getscn(o->elf, i), &header) && header.sh_type == type &&
		    header.sh_link == link)
			return i;
	return 0;
}

/* A symbol of both: false if they differ. */
static bool compare_symbol(struct oracle *o, size_t table, size_t i, size_t strings,
			   const struct kp_elf_symbols *symbols, const struct kp_elf_symbol *ours,
			   const GElf_Sym *theirs, uint32_t large)
{
	if (memcmp(&ours->raw, theirs, sizeof(ours->raw)))
		return differ(o->why, "symbol %zu of section %zu", i, table);
	if (ours->section != (theirs->st_shndx == SHN_XINDEX ? large : theirs->st_shndx))
		return differ(o->why, "the section of symbol %zu of section %zu", i, table);
	if (!compare_name(o, strings, theirs->st_name, kp_elf_symbol_name(symbols, ours)))
		return differ(o->why, "the name of symbol %zu of section %zu", i, table);
	return true;
}

/* The contents of one section .nv.info. */
struct kernel_info {
	struct kp_param params[KP_MAX_PARAMS];
	uint8_t count[KP_MAX_PARAMS];
	uint32_t nparams, cbank[2];
	bool damaged;
};

static uint32_t number(const uint8_t *at, size_t bytes)
{
	uint32_t value = 0;

	while (bytes--)
		value = value << 8 | at[bytes];
	return value;
}

static void take_param(struct kernel_info *info, const uint8_t *record, bool second_form)
{
	uint32_t ordinal = number(record + 4, 2), bits = number(record + 8, 4);
	struct kp_param param = {
		.offset = number(record + 6, 2),
		.size = second_form ? bits & 0xffff : bits >> 18,
		.space = second_form ? bits >> 24 & 15 : bits >> 8 & 15,
	};

	if (ordinal >= KP_MAX_PARAMS || info->count[ordinal] ||
	    (param.offset == KP_NO_OFFSET) != !param.size) {
		info->damaged = true;
		return;
	}
	info->count[ordinal] = 1;
	info->params[ordinal] = param;
	if (ordinal >= info->nparams)
		info->nparams = ordinal + 1;
}

static void take_records(struct kernel_info *info, const uint8_t *at, const uint8_t *end)
{
	while (at < end && !info->damaged) {
		size_t value = end - at >= 4 ? number(at + 2, 2) : 0;
		size_t size = end - at >= 4 && at[0] == 4 ? 4 + value : 4;

		if (end - at < 4 || !at[0] || at[0] > 4 || (size_t)(end - at) < size) {
			info->damaged = true;
			return;
		}
		if (at[0] == 3 && at[1] == 0x19)
			info->cbank[0] = value;
		else if (at[0] == 4 && at[1] == 0x0a && value == 8)
			info->cbank[1] = number(at + 10, 2);
		else if (at[0] == 4 && (at[1] == 0x17 || at[1] == 0x45) && value != 12)
			info->damaged = true;
		else if (at[0] == 4 && (at[1] == 0x17 || at[1] == 0x45))
			take_param(info, at + 4, at[1] == 0x45);
		at += size;
	}
}

static void take_sum(struct kernel_info *info)
{
	uint32_t size = 0;

	for (uint32_t i = 0; i < info->nparams; i++) {
		const struct kp_param *param = &info->params[i];

		if (!info->count[i] || (param->size && param->offset < size))
			info->damaged = true;
		if (param->size)
			size = param->offset + param->size;
	}
	for (int i = 0; i < 2; i++)
		if (info->cbank[i] != NO_SIZE && info->cbank[i] != size)
			info->damaged = true;
}

/* True if libelf's kernel @name, of code in section @code, is the next of ours. */
static bool compare_kernel(struct oracle *o, const char *name, size_t code, bool *damaged)
{
	struct kernel_info *info = calloc(1, sizeof(*info));
	size_t section = code < o->ours.nsections ? o->info[code] : 0;
	const struct kp_kernel *ours = NULL;
	GElf_Shdr header;
	Elf_Data *data;
	bool same;

	if (!info)
		return differ(o->why, "no memory");
	info->cbank[0] = info->cbank[1] = NO_SIZE;
	info->damaged = !section || !section_bytes(o, section, &header, &data, ELF_T_BYTE);
	if (!info->damaged)
		o->used += strlen(name) + data->d_size;
	info->damaged |= o->used > o->ours.size;
	if (!info->damaged) {
		take_records(info, data->d_buf, (uint8_t *)data->d_buf + data->d_size);
		take_sum(info);
	}
	*damaged = info->damaged;
	if (o->kernels < o->table.n)
		ours = o->table.kernels[o->kernels++];
	if (info->damaged || !ours) {
		same = info->damaged == !ours;
	} else {
		same = !strcmp(ours->name, name) && ours->nparams == info->nparams;
		for (uint32_t i = 0; same && i < info->nparams; i++)
			same = ours->params[i].offset == info->params[i].offset &&
			       ours->params[i].size == info->params[i].size &&
			       ours->params[i].space == info->params[i].space;
	}
	free(info);
	return same ? true : differ(o->why, "kernel %.200s", name);
}

/* A function that is there and is a kernel. */
static bool is_kernel(const GElf_Sym *symbol)
{
	return GELF_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_other & STO_CUDA_ENTRY &&
	       symbol->st_shndx != SHN_UNDEF;
}

/* Compare the symbols of section @table, and their kernels if those are @with_kernels. */
static bool compare_symbols(struct oracle *o, size_t table, bool with_kernels, bool *damaged)
{
	size_t large_section = section_of_type(o, SHT_SYMTAB_SHNDX, table);
	struct kp_elf_symbols symbols;
	struct kp_elf_symbol ours;
	Elf_Data *data, *large = NULL, *strings;
	GElf_Shdr header, other;
	GElf_Sym theirs;
	bool readable =
		section_bytes(o, table, &header, &data, ELF_T_SYM) &&
		header.sh_entsize == sizeof(Elf64_Sym) && header.sh_link < o->ours.nsections &&
		section_bytes(o, header.sh_link, &other, &strings, ELF_T_BYTE) &&
		(!large_section || section_bytes(o, large_section, &other, &large, ELF_T_WORD));

	if (kp_elf_open_symbols(&o->ours, table, &symbols) != (readable ? 0 : -EBADMSG))
		return differ(o->why, "symbols in section %zu are %sreadable", table,
			      readable ? "" : "not ");
	*damaged |= with_kernels && !readable;
	for (size_t i = 0; readable && i < data->d_size / sizeof(Elf64_Sym); i++) {
		bool has_large = large && i < large->d_size / sizeof(Elf64_Word);
		Elf32_Word index = 0;
		const char *name;

		if (!kp_elf_next_symbol(&symbols, &ours) ||
		    !gelf_getsymshndx(data, has_large ? large : NULL, i, &theirs, &index))
			return differ(o->why, "no symbol %zu in section %zu", i, table);
		if (!compare_symbol(o, table, i, header.sh_link, &symbols, &ours, &theirs, index))
			return false;
		if (!with_kernels || *damaged || !is_kernel(&theirs))
			continue;
		name = kp_elf_symbol_name(&symbols, &ours);
		if (!name)
			*damaged = true;
		else if (!compare_kernel(o, name, ours.section, damaged))
			return false;
	}
	return !readable || !kp_elf_next_symbol(&symbols, &ours) ||
	       differ(o->why, "more symbols in section %zu", table);
}

/* Compare the symbols of all tables; kernels are in the last. */
static bool compare_all_symbols(struct oracle *o)
{
	bool damaged = false;
	size_t last = 0;
	GElf_Shdr header;

	for (size_t i = 1; i < o->ours.nsections; i++) {
		gelf_getshdr(elf_getscn(o->elf, i), &header);
		if (header.sh_type == SHT_SYMTAB)
			last = i;
		else if (header.sh_type == SHT_CUDA_INFO && header.sh_info < o->ours.nsections)
			o->info[header.sh_info] = i;
	}
	for (size_t i = 1; i < o->ours.nsections; i++) {
		gelf_getshdr(elf_getscn(o->elf, i), &header);
		if (header.sh_type == SHT_SYMTAB && !compare_symbols(o, i, i == last, &damaged))
			return false;
	}
	if (damaged != (o->code != 0))
		return differ(o->why, "the kernels are %sdamaged", damaged ? "" : "not ");
	return o->kernels == o->table.n ||
	       differ(o->why, "%zu kernels, not %zu", o->table.n, o->kernels);
}

/*
 * Both open the file or both refuse it, except that libelf also refuses files of an unknown
 * EI_VERSION, sees no sections if their headers pass the end, and does not check e_shentsize.
 */
static bool compare_opened(struct oracle *o, const uint8_t *data, int opened)
{
	GElf_Ehdr header;
	size_t n = 0;
	bool theirs = o->elf && elf_kind(o->elf) == ELF_K_ELF && gelf_getehdr(o->elf, &header) &&
		      !elf_getshdrnum(o->elf, &n);

	if (!opened && theirs)
		return n == o->ours.nsections ||
		       differ(o->why, "%zu sections, not %zu", o->ours.nsections, n);
	if (!opened)
		return data[EI_VERSION] != EV_CURRENT ||
		       differ(o->why, "libelf: %s", elf_errmsg(-1));
	return !theirs || !n || header.e_machine != EM_CUDA ||
	       header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
	       header.e_shentsize != sizeof(Elf64_Shdr) ||
	       differ(o->why, "libelf opens what we do not, with %zu sections", n);
}

bool elf_oracle_cubin(const void *data, size_t size, char why[ELF_ORACLE_WHY])
{
	struct oracle o = {.why = why};
	struct kp_image_info info;
	int opened;
	bool same;

	elf_version(EV_CURRENT);
	o.elf = elf_memory((char *)data, size);
	opened = kp_elf_open(&o.ours, data, size, NULL);
	same = compare_opened(&o, data, opened);
	if (same && !opened && o.elf && elf_kind(o.elf) == ELF_K_ELF) {
		o.info = calloc(o.ours.nsections + 1, sizeof(*o.info));
		o.code = kp_cubin_read(data, size, &o.table, NULL);
		/* An unknown ABI is a matter of the header, which libelf has nothing to say of. */
		same = o.info && compare_sections(&o) &&
		       (kp_cubin_info(data, size, &info, NULL) || compare_all_symbols(&o));
		kp_table_free(&o.table);
		free(o.info);
	}
	elf_end(o.elf);
	return same;
}

/* The build-id in the notes of segment @header, as libelf reads them. */
static bool segment_buildid(Elf *elf, const GElf_Phdr *header, char text[BUILDID_TEXT_SIZE])
{
	size_t size = header->p_filesz < BUILDID_NOTES ? header->p_filesz : BUILDID_NOTES;
	size_t whole, name, desc, at = 0, next;
	Elf_Data *data;
	GElf_Nhdr note;

	elf_rawfile(elf, &whole);
	if (header->p_offset >= whole)
		return false;
	if (size > whole - header->p_offset)
		size = whole - header->p_offset;
	data = elf_getdata_rawchunk(elf, header->p_offset, size, ELF_T_NHDR);
	while (data && (next = gelf_getnote(data, at, &note, &name, &desc))) {
		const uint8_t *bytes = (const uint8_t *)data->d_buf + desc;

		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && note.n_descsz &&
		    2 * note.n_descsz < BUILDID_TEXT_SIZE &&
		    !memcmp((const char *)data->d_buf + name, "GNU", 4)) {
			for (size_t i = 0; i < note.n_descsz; i++)
				sprintf(text + 2 * i, "%02x", bytes[i]);
			return true;
		}
		at = next;
	}
	return false;
}

/* libelf does not check e_phentsize; buildid.c checks no EI_DATA, and no EI_VERSION. */
static bool is_comparable(Elf *elf)
{
	GElf_Ehdr header;
	size_t n;

	return elf && elf_kind(elf) == ELF_K_ELF && gelf_getehdr(elf, &header) &&
	       header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB &&
	       header.e_phentsize == sizeof(Elf64_Phdr) && !elf_getphdrnum(elf, &n) &&
	       n <= BUILDID_HEADERS;
}

static void file_buildid(Elf *elf, char text[BUILDID_TEXT_SIZE])
{
	GElf_Phdr header;
	size_t n;

	elf_getphdrnum(elf, &n);
	for (size_t i = 0; i < n; i++)
		if (gelf_getphdr(elf, i, &header) && header.p_type == PT_NOTE &&
		    segment_buildid(elf, &header, text))
			break;
}

bool elf_oracle_notes(const char *path, char why[ELF_ORACLE_WHY])
{
	char ours[BUILDID_TEXT_SIZE] = "", theirs[BUILDID_TEXT_SIZE] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret;
	bool same;
	off_t size;
	Elf *elf;

	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	ret = buildid_of_file(path, ours, &size);
	same = !ret == !!*ours;
	if (is_comparable(elf)) {
		file_buildid(elf, theirs);
		same = same && !strcmp(ours, theirs);
	}
	elf_end(elf);
	close(fd);
	return same || differ(why, "build-id '%s' (%d), not '%s'", ours, ret, theirs);
}

bool elf_oracle_notes_in(const void *data, size_t size, char why[ELF_ORACLE_WHY])
{
	int fd = memfd_create("elf_oracle", MFD_CLOEXEC);
	char path[64];
	bool same;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		same = differ(why, "no file in memory: %s", strerror(errno));
	else
		same = elf_oracle_notes(path, why);
	if (fd >= 0)
		close(fd);
	return same;
}

bool elf_oracle_extent(const void *data, size_t size, char why[ELF_ORACLE_WHY])
{
	size_t ours = 0, n, end = sizeof(Elf64_Ehdr);
	GElf_Ehdr file;
	GElf_Shdr section;
	GElf_Phdr segment;
	Elf *elf;

	elf_version(EV_CURRENT);
	elf = elf_memory((char *)data, size);
	if (!gelf_getehdr(elf, &file) || elf_getshdrnum(elf, &n) ||
	    kp_memory_size(data, &ours, NULL))
		ours = SIZE_MAX;
	for (size_t i = 0; ours != SIZE_MAX && i < n; i++) {
		gelf_getshdr(elf_getscn(elf, i), &section);
		end = larger(end, file.e_shoff + (i + 1) * sizeof(Elf64_Shdr));
		if (section.sh_type != SHT_NOBITS)
			end = larger(end, section.sh_offset + section.sh_size);
	}
	for (int i = 0; ours != SIZE_MAX && gelf_getphdr(elf, i, &segment); i++) {
		end = larger(end, file.e_phoff + (i + 1) * sizeof(Elf64_Phdr));
		end = larger(end, segment.p_offset + segment.p_filesz);
	}
	elf_end(elf);
	return ours == end || differ(why, "the file has 0x%zx bytes, not 0x%zx", ours, end);
}
