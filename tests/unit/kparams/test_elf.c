/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our readers of ELF files beside libelf (tests/elf_oracle.h), over intact files and over damaged
 * ones: each byte changed, and each length cut. Runs in the top directory.
 */
#include "kparams/internal.h"

#include "tests/check_suite.h"
#include "tests/elf_oracle.h"

#include <check.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES "tests/kparams/fixtures/"
#define CORPUS   "tests/fuzz/corpus/elf/"

typedef bool oracle(const void *data, size_t size, char why[ELF_ORACLE_WHY]);

static const struct {
	const char *path;
	oracle *check;
} files[] = {
	{FIXTURES "small.cubin", elf_oracle_cubin},
	{CORPUS "notes.so", elf_oracle_notes_in},
	{CORPUS "notes-property.so", elf_oracle_notes_in},
};

static uint8_t *load(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data;

	ck_assert_msg(file != NULL, "%s: run me in the top directory", path);
	fseek(file, 0, SEEK_END);
	*size = ftell(file);
	rewind(file);
	data = malloc(*size);
	ck_assert_uint_eq(fread(data, 1, *size, file), *size);
	fclose(file);
	return data;
}

START_TEST(intact_cubins)
{
	static const char *const paths[] = {FIXTURES "kernels.fatbin", FIXTURES "small-lz4.fatbin",
					    FIXTURES "small-zstd.fatbin"};
	char why[ELF_ORACLE_WHY] = "";
	struct kp_fatbin *fatbin;
	size_t size, cubins = 0;

	for (size_t f = 0; f < sizeof(paths) / sizeof(paths[0]); f++) {
		uint8_t *data = load(paths[f], &size);

		ck_assert_int_eq(kp_fatbin_open(data, size, &fatbin, NULL), 0);
		for (size_t i = 0; i < fatbin->nimages; i++) {
			uint8_t *cubin;

			if (fatbin->images[i].info.kind != KP_CUBIN)
				continue;
			ck_assert_int_eq(kp_unpack(&fatbin->images[i], &cubin, &size, NULL), 0);
			ck_assert_msg(elf_oracle_cubin(cubin, size, why), "%s", why);
			ck_assert_msg(elf_oracle_extent(cubin, size, why), "%s", why);
			free(cubin);
			cubins++;
		}
		kp_fatbin_close(fatbin);
		free(data);
	}
	ck_assert_uint_ge(cubins, 5);
}
END_TEST

START_TEST(own_notes)
{
	char why[ELF_ORACLE_WHY] = "";

	ck_assert_msg(elf_oracle_notes("/proc/self/exe", why), "%s", why);
}
END_TEST

START_TEST(each_byte_changed)
{
	static const uint8_t flips[] = {0x01, 0x80, 0xff};
	char why[ELF_ORACLE_WHY] = "";
	size_t size;
	uint8_t *data = load(files[_i].path, &size);

	ck_assert_msg(files[_i].check(data, size, why), "%s", why);
	for (size_t at = 0; at < size; at++) {
		uint8_t old = data[at];

		for (size_t i = 0; i < sizeof(flips); i++) {
			data[at] = old ^ flips[i];
			ck_assert_msg(files[_i].check(data, size, why), "0x%02x at 0x%zx: %s",
				      data[at], at, why);
		}
		data[at] = 0;
		ck_assert_msg(files[_i].check(data, size, why), "0 at 0x%zx: %s", at, why);
		data[at] = old;
	}
	free(data);
}
END_TEST

START_TEST(each_length_cut)
{
	char why[ELF_ORACLE_WHY] = "";
	size_t size;
	uint8_t *data = load(files[_i].path, &size);

	for (size_t length = 1; length < size; length++) {
		uint8_t *cut = malloc(length);

		memcpy(cut, data, length);
		ck_assert_msg(files[_i].check(cut, length, why), "%zu bytes: %s", length, why);
		free(cut);
	}
	free(data);
}
END_TEST

static Elf64_Shdr *section(uint8_t *data, size_t i)
{
	return (Elf64_Shdr *)(data + ((Elf64_Ehdr *)data)->e_shoff) + i;
}

static void check_cubin(const uint8_t *data, size_t size, size_t i)
{
	char why[ELF_ORACLE_WHY] = "";

	ck_assert_msg(elf_oracle_cubin(data, size, why), "section %zu: %s", i, why);
}

START_TEST(sections_up_to_the_end)
{
	size_t size;
	uint8_t *data = load(FIXTURES "small.cubin", &size);

	for (size_t i = 0; i < ((Elf64_Ehdr *)data)->e_shnum; i++) {
		Elf64_Shdr old = *section(data, i);

		section(data, i)->sh_size = size - old.sh_offset;
		check_cubin(data, size, i);
		section(data, i)->sh_size++;
		check_cubin(data, size, i);
		section(data, i)->sh_size = 0;
		section(data, i)->sh_offset = size;
		check_cubin(data, size, i);
		section(data, i)->sh_offset++;
		check_cubin(data, size, i);
		*section(data, i) = old;
	}
	free(data);
}
END_TEST

/* Each section in turn holds the indices that have no room in the symbols: too few, in most. */
START_TEST(large_section_indices)
{
	size_t size, symbols = 0;
	uint8_t *data = load(FIXTURES "small.cubin", &size);
	size_t n = ((Elf64_Ehdr *)data)->e_shnum;
	Elf64_Sym *symbol;

	while (section(data, symbols)->sh_type != SHT_SYMTAB)
		symbols++;
	symbol = (Elf64_Sym *)(data + section(data, symbols)->sh_offset);
	for (size_t i = 0; i < section(data, symbols)->sh_size / sizeof(*symbol); i++)
		symbol[i].st_shndx = SHN_XINDEX;
	for (size_t i = 0; i < n; i++) {
		Elf64_Shdr old = *section(data, i);

		if (i == symbols || old.sh_type == SHT_STRTAB)
			continue;
		section(data, i)->sh_type = SHT_SYMTAB_SHNDX;
		section(data, i)->sh_link = symbols;
		check_cubin(data, size, i);
		*section(data, i) = old;
	}
	free(data);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kparams_elf");
	TCase *tc = tcase_create("kparams_elf");
	int n = sizeof(files) / sizeof(files[0]);

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, intact_cubins);
	tcase_add_test(tc, own_notes);
	tcase_add_loop_test(tc, each_byte_changed, 0, n);
	tcase_add_loop_test(tc, each_length_cut, 0, n);
	tcase_add_test(tc, sections_up_to_the_end);
	tcase_add_test(tc, large_section_indices);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
