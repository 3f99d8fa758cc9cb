/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#define MAX_PARAMS 100

const char fuzz_corpus[] = "tests/fuzz/corpus/name";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *name = strndup((const char *)data, size);
	uint8_t holds[MAX_PARAMS];
	int n = name ? kp_mangled_params(kp_mangled_part(name), holds, MAX_PARAMS) : 0;

	for (int i = 0; i < n; i++)
		if (holds[i] > KP_CODE)
			__builtin_trap();
	free(name);
	return 0;
}
