/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/sharing/carried.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/sharing/sharing.h"
#include "vmem/addresses/addressing.h"
#include "vmem/addresses/translate.h"
#include "wrapper/hooks/ordered/memory.h"
#include "wrapper/real.h"

#include <unistd.h>

#define LOOK_MS 10 /* while the exporter of memory cannot give it */

bool carried_is_on(void)
{
	return driver_table() && !translate_is_on() && addressing_asked() != ADDRESSING_NATIVE;
}

/* After an error other than CUDA_ERROR_NOT_READY there is no handle. */
static CUresult try_import(const struct object_name *name, CUmemGenericAllocationHandle *handle)
{
	CUresult result = CUDA_SUCCESS;
	int count;

	if (!*handle) {
		/* Before cuInit() nothing is imported, and no thread may start. */
		result = real.cuDeviceGetCount(&count);
		if (!result)
			result = sharing_import_begin(name, handle);
	}
	if (!result)
		result = sharing_import(name, *handle);
	if (result && result != CUDA_ERROR_NOT_READY)
		*handle = 0;
	return result;
}

static CUresult import_once(const struct object_name *name, CUmemGenericAllocationHandle *handle)
{
	CUresult result;

	memory_try_begins();
	result = try_import(name, handle);
	return result == CUDA_ERROR_OUT_OF_MEMORY && memory_give_back() ? try_import(name, handle)
									: result;
}

CUresult carried_import(const struct object_name *name, CUmemGenericAllocationHandle *handle)
{
	CUmemGenericAllocationHandle made = 0;
	CUresult result;

	for (;;) {
		if (!gate_enter(GATE_HOLD)) {
			if (made)
				objects_import_drop(made);
			return gate_refusal();
		}
		result = import_once(name, &made);
		gate_exit();
		if (result != CUDA_ERROR_NOT_READY)
			break;
		usleep(LOOK_MS * 1000);
	}
	if (!result)
		*handle = made;
	return result;
}
