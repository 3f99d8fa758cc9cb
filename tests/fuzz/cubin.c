/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

const char fuzz_corpus[] = "tests/fuzz/corpus/cubin";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kp_fatbin *fatbin;
	struct kp_error err;

	if (kp_is_elf(data, size) && !kp_fatbin_open(data, size, &fatbin, &err))
		fuzz_fatbin(fatbin);
	return 0;
}
