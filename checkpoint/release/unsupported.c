/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/release/unsupported.h"
#include "checkpoint/ledger/driver_memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

static const struct {
	enum driver_memory_kind kind;
	bool always; /* false: only where the whole GPU is released */
	const char *noun, *more, *call;
} objects[] = {
	{UNMANAGED_MULTICAST, true, "multicast object", "", "cuMulticastCreate"},
	{UNMANAGED_FIXED_TEXTURE, true, "texture", " on memory", "CUDAW_ADDRESSING=translated"},
	{UNMANAGED_MANAGED, false, "managed allocation", "", "cuMemAllocManaged"},
	{UNMANAGED_IPC_EXPORT, false, "allocation", " exported", "cuIpcGetMemHandle"},
	{UNMANAGED_IPC_IMPORT, false, "allocation", " imported", "cuIpcOpenMemHandle"},
	{UNMANAGED_VMM_EXPORT, false, "allocation", " exported", "cuMemExportToShareableHandle"},
	{UNMANAGED_VMM_IMPORT, false, "allocation", " imported", "cuMemImportFromShareableHandle"},
	{UNMANAGED_POOL_EXPORT, false, "pool", " exported", "cuMemPoolExportToShareableHandle"},
	{UNMANAGED_POOL_IMPORT, false, "pool", " imported", "cuMemPoolImportFromShareableHandle"},
};

#define NOBJECTS (sizeof(objects) / sizeof(objects[0]))

int unsupported_check(const struct cuda_driver *drv, enum release_choice choice, char *text,
		      size_t size)
{
	bool always = false, shared = false;
	size_t len = 0;

	for (size_t i = 0; i < NOBJECTS; i++)
		if (driver_memory_count(objects[i].kind))
			*(objects[i].always ? &always : &shared) = true;
	shared = shared && release_wanted(drv, choice);
	if (!always && !shared)
		return 0;
	for (size_t i = 0; i < NOBJECTS; i++) {
		size_t count = driver_memory_count(objects[i].kind);

		if (count && (objects[i].always || shared) && len < size)
			len += (size_t)snprintf(text + len, size - len, "%s%zu %s%s%s (%s)",
						len ? ", " : "", count, objects[i].noun,
						count == 1 ? "" : "s", objects[i].more,
						objects[i].call);
	}
	if (len < size)
		snprintf(text + len, size - len, " cannot be carried%s",
			 always ? "" : "; 'cudaw pause --release memory' leaves them on the GPU");
	return -ENOTSUP;
}
