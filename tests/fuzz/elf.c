/* SPDX-License-Identifier: Apache-2.0 */
/* Our readers of ELF files beside libelf: both see the same (tests/elf_oracle.h). */
#include "tests/elf_oracle.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/elf";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char why[ELF_ORACLE_WHY];

	if (!elf_oracle_cubin(data, size, why) || !elf_oracle_notes_in(data, size, why)) {
		printf("# libelf differs: %s\n", why);
		fflush(stdout);
		__builtin_trap();
	}
	return 0;
}
