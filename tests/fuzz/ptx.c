/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

const char fuzz_corpus[] = "tests/fuzz/corpus/ptx";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kp_image_info info;
	struct kp_table table = {0};
	struct kp_error err;

	kp_ptx_info((const char *)data, size, &info, &err);
	if (!kp_ptx_read((const char *)data, size, &table, &err))
		kp_table_sort(&table, &err);
	kp_table_free(&table);
	return 0;
}
