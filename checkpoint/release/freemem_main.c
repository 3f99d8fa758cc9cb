/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudaw-freemem UUID...: print the free bytes of each GPU, by NVML, a line each. Exit status 1 if
 * NVML does not know them. freemem.c runs it.
 */
#include "common/nvml.h"

#include <stdio.h>

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		size_t bytes;

		if (nvml_free_memory(argv[i], &bytes))
			return 1;
		printf("%zu\n", bytes);
	}
	return 0;
}
