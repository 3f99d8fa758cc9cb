/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

const char fuzz_corpus[] = "tests/fuzz/corpus/container";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t offset = 0, length;
	struct kp_fatbin *fatbin;
	struct kp_error err;

	while (kp_container_next(data, size, &offset, &length)) {
		if (!kp_fatbin_open(data + offset, length, &fatbin, &err))
			fuzz_fatbin(fatbin);
		offset += length;
	}
	return 0;
}
