/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/release/unsupported.h"
#include "checkpoint/ledger/driver_memory.h"
#include "checkpoint/ledger/ranks.h"
#include "vmem/cuda_driver.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#define MANAGED_ADVICE                                                            \
	"; a job that is started with CUDAW_MANAGED=host has its managed memory " \
	"in host memory, where no pause has to carry it"
#define DMABUF_ADVICE "; UCX, which asks for dma-bufs, makes none with UCX_CUDA_COPY_DMABUF=n"

static const struct {
	enum driver_memory_kind kind;
	bool always; /* false: only if the whole GPU is released */
	const char *noun, *more, *call;
} objects[] = {
	{DRIVER_MEMORY_MULTICAST, true, "multicast object", "", "cuMulticastCreate"},
	{DRIVER_MEMORY_FIXED_TEXTURE, true, "texture", " on memory", "CUDAW_ADDRESSING=translated"},
	{DRIVER_MEMORY_DMABUF, true, "allocation", " exported", "cuMemGetHandleForAddressRange"},
	{DRIVER_MEMORY_MANAGED, false, "managed allocation", "", "cuMemAllocManaged"},
	{DRIVER_MEMORY_VMM_HOST, false, "allocation", " of host memory", "cuMemCreate"},
	{DRIVER_MEMORY_POOL_HOST, false, "allocation", " of host memory",
	 "cuMemAllocFromPoolAsync"},
	{DRIVER_MEMORY_IPC_EXPORT, false, "allocation", " exported", "cuIpcGetMemHandle"},
	{DRIVER_MEMORY_IPC_IMPORT, false, "allocation", " imported", "cuIpcOpenMemHandle"},
	{DRIVER_MEMORY_VMM_EXPORT, false, "allocation", " exported",
	 "cuMemExportToShareableHandle"},
	{DRIVER_MEMORY_VMM_IMPORT, false, "allocation", " imported",
	 "cuMemImportFromShareableHandle"},
	{DRIVER_MEMORY_DMABUF_LEFT, false, "allocation", " exported",
	 "cuMemGetHandleForAddressRange"},
	{DRIVER_MEMORY_POOL_EXPORT, false, "pool", " exported", "cuMemPoolExportToShareableHandle"},
	{DRIVER_MEMORY_POOL_IMPORT, false, "pool", " imported",
	 "cuMemPoolImportFromShareableHandle"},
};

#define NOBJECTS (sizeof(objects) / sizeof(objects[0]))

/* Contexts that must stay on the GPU. */
static int check_contexts(const struct cuda_driver *drv, enum release_choice choice, char *text,
			  size_t size)
{
	if (!ranks_sharing_gpu() || !release_wanted(drv, choice))
		return 0;
	snprintf(text, size,
		 "kernels of this process and of process %d wait for other processes, and both use "
		 "the same GPU: after a full release the driver fails them (error 719); "
		 "'cudaw pause --release memory' leaves the CUDA contexts on the GPU",
		 ranks_sharing_gpu());
	return -ENOTSUP;
}

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
		return check_contexts(drv, choice, text, size);
	for (size_t i = 0; i < NOBJECTS; i++) {
		size_t count = driver_memory_count(objects[i].kind);

		if (count && (objects[i].always || shared) && len < size)
			len += (size_t)snprintf(text + len, size - len, "%s%zu %s%s%s (%s)",
						len ? ", " : "", count, objects[i].noun,
						count == 1 ? "" : "s", objects[i].more,
						objects[i].call);
	}
	if (len < size)
		snprintf(text + len, size - len, " cannot be carried%s%s%s",
			 always ? "" : "; 'cudaw pause --release memory' leaves them on the GPU",
			 driver_memory_count(DRIVER_MEMORY_DMABUF) ? DMABUF_ADVICE : "",
			 shared && driver_memory_count(DRIVER_MEMORY_MANAGED) ? MANAGED_ADVICE
									      : "");
	return -ENOTSUP;
}
