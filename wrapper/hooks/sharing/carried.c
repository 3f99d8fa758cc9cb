/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/sharing/carried.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/sharing/sharing.h"
#include "common/patience.h"
#include "vmem/addresses/addressing.h"
#include "vmem/addresses/translate.h"
#include "wrapper/hooks/ordered/memory.h"
#include "wrapper/real.h"

#include <unistd.h>

#define LOG_PREFIX "sharing: "
#include "common/log.h"

#define LOOK_MS   10    /* while the exporter of memory cannot give it */
#define TRY_MS    2000  /* a try takes less, of which an answer has 1 s */
#define SILENT_MS 10000 /* as for processes that pause together */

bool carried_is_on(void)
{
	return driver_table() && !translate_is_on() && addressing_asked() != ADDRESSING_NATIVE;
}

/* After an error other than CUDA_ERROR_NOT_READY there is no handle. */
static CUresult try_import(const struct object_name *name, CUmemGenericAllocationHandle *handle,
			   bool *silent)
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
		result = sharing_import(name, *handle, silent);
	if (result && result != CUDA_ERROR_NOT_READY)
		*handle = 0;
	return result;
}

static CUresult import_once(const struct object_name *name, CUmemGenericAllocationHandle *handle,
			    bool *silent)
{
	CUresult result;

	MEMORY_TRY(result, try_import(name, handle, silent));
	return result;
}

/* Of an exporter that does not answer. */
struct silence {
	struct patience patience;
	bool said;
};

/* Natively no import needs the exporter: so it does not fail, but the user has to know why it waits. */
static void note(struct silence *s, pid_t exporter, bool silent)
{
	if (!silent)
		s->patience = (struct patience){0};
	if (s->said || !silent || patience_slice_ms(&s->patience, TRY_MS) < SILENT_MS)
		return;
	s->said = true;
	pr_err("memory of process %d cannot be imported yet: that process has not answered for %d s. "
	       "Is it stopped? The import waits until it continues, or ends",
	       exporter, SILENT_MS / 1000);
}

CUresult carried_import(const struct object_name *name, CUmemGenericAllocationHandle *handle)
{
	CUmemGenericAllocationHandle made = 0;
	struct silence silence = {0};
	bool silent = false;
	CUresult result;

	for (;;) {
		if (!gate_enter(GATE_HOLD)) {
			if (made)
				objects_import_drop(made);
			return gate_refusal();
		}
		result = import_once(name, &made, &silent);
		gate_exit();
		if (result != CUDA_ERROR_NOT_READY)
			break;
		note(&silence, name->pid, silent);
		usleep(LOOK_MS * 1000);
	}
	if (!result)
		*handle = made;
	return result;
}
