/* SPDX-License-Identifier: Apache-2.0 */
/* The command's questions about ELF files, intact and damaged. Runs in the top directory. */
#include "tools/command/elf_file.h"

#include "tests/check_suite.h"

#include <check.h>
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LIBRARY "tests/fuzz/corpus/elf/notes.so"

static uint8_t *load(size_t *size)
{
	int fd = open(LIBRARY, O_RDONLY | O_CLOEXEC);
	uint8_t *data = malloc(1 << 16);
	ssize_t n;

	ck_assert_msg(fd >= 0, "no " LIBRARY ": run me in the top directory");
	n = read(fd, data, 1 << 16);
	ck_assert_int_gt(n, sizeof(Elf64_Ehdr));
	close(fd);
	*size = n;
	return data;
}

START_TEST(files_that_are_cut)
{
	size_t size;
	uint8_t *data = load(&size);

	ck_assert(!elf_file_is_cut(data, size));
	ck_assert(!elf_file_is_cut("no ELF file", 11));
	for (size_t length = sizeof(Elf64_Ehdr); length < size; length++) {
		uint8_t *cut = malloc(length);

		memcpy(cut, data, length);
		ck_assert_msg(elf_file_is_cut(cut, length), "%zu bytes", length);
		free(cut);
	}
	/* Any damage gives an answer. */
	for (size_t at = 0; at < size; at++) {
		data[at] ^= 0xff;
		elf_file_is_cut(data, size);
		data[at] ^= 0xff;
	}
	free(data);
}
END_TEST

static bool is_static(const void *data, size_t size)
{
	int fd = memfd_create("test_elf_file", MFD_CLOEXEC);
	bool result;

	ck_assert_int_eq(write(fd, data, size), size);
	result = elf_file_is_static(fd);
	close(fd);
	return result;
}

START_TEST(static_programs)
{
	struct {
		Elf64_Ehdr header;
		Elf64_Phdr segments[2];
	} program = {
		.header = {.e_ident = ELFMAG,
			   .e_type = ET_EXEC,
			   .e_machine = EM_X86_64,
			   .e_version = EV_CURRENT,
			   .e_ehsize = sizeof(Elf64_Ehdr),
			   .e_phoff = sizeof(Elf64_Ehdr),
			   .e_phentsize = sizeof(Elf64_Phdr),
			   .e_phnum = 2,
			   .e_shentsize = sizeof(Elf64_Shdr)},
		.segments = {{.p_type = PT_LOAD}, {.p_type = PT_GNU_STACK}},
	};

	program.header.e_ident[EI_CLASS] = ELFCLASS64;
	program.header.e_ident[EI_DATA] = ELFDATA2LSB;
	program.header.e_ident[EI_VERSION] = EV_CURRENT;
	ck_assert(is_static(&program, sizeof(program)));
	ck_assert(!is_static(&program, sizeof(program) - 1));
	/* Section headers that are not there do not matter to the kernel. */
	program.header.e_shoff = 1UL << 40;
	program.header.e_shnum = 7;
	ck_assert(is_static(&program, sizeof(program)));
	program.segments[1].p_type = PT_INTERP;
	ck_assert(!is_static(&program, sizeof(program)));
	ck_assert(!is_static("#!/bin/sh\n", 10));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("elf_file");
	TCase *tc = tcase_create("elf_file");

	tcase_add_test(tc, files_that_are_cut);
	tcase_add_test(tc, static_programs);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
