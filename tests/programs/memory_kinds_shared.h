/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MEMORY_KINDS_SHARED_H
#define CUDAW_MEMORY_KINDS_SHARED_H
/*
 * The kinds of memory_kinds.c that two processes share. The program starts a child before its first
 * CUDA call; one of the two owns the memory, the other imports it. In every step the parent tells
 * the child to increment all words, waits for its answer, and checks them. The child ends when the
 * parent does.
 *
 *	ipc_out, ipc_in		legacy IPC handles; the parent exports, or imports
 *	vmm_out, vmm_in		cuMemCreate() exported as a file descriptor
 *	pool_out, pool_in	a pool exported as a file descriptor; no allocation is shared, and the
 *				child only keeps its pool until the parent ends
 */
#include "tests/programs/descriptors.h"
#include "tests/programs/memory_kinds.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int peer; /* a socket to the other process */
static pid_t child;

static struct {
	CUmemGenericAllocationHandle handle;
	size_t size;
} exported;

static inline void gpu_init(void)
{
	kernels_init(&gpu);
	CALL(cuModuleLoadData(&own, kinds_ptx));
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

/* Every message is short and comes whole. */
static inline void tell(const void *what, size_t size)
{
	if (send(peer, what, size, MSG_NOSIGNAL) != (ssize_t)size)
		step_die("memory_kinds: the other process is gone");
}

/* False where the other process has ended. */
static inline bool hear(void *what, size_t size)
{
	ssize_t got;

	do
		got = recv(peer, what, size, 0);
	while (got < 0 && errno == EINTR);
	return got == (ssize_t)size;
}

static inline void must_hear(void *what, size_t size)
{
	if (!hear(what, size))
		step_die("memory_kinds: the other process is gone");
}

static inline void tell_fd(int fd)
{
	if (!descriptors_send(peer, "f", 1, &fd, 1))
		step_die("memory_kinds: the other process is gone");
}

static inline int hear_fd(void)
{
	char byte;
	int fd;

	if (!descriptors_receive(peer, &byte, 1, &fd, 1) || fd < 0)
		step_die("memory_kinds: the other process is gone");
	return fd;
}

/* Start a child that does @setup, and then increments whenever it is told to. */
static inline void child_start(void (*setup)(void))
{
	int ends[2];
	char byte;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		step_die("memory_kinds: no socket");
	fflush(stdout);
	child = fork();
	if (child < 0)
		step_die("memory_kinds: no process");
	peer = ends[child ? 0 : 1];
	close(ends[child ? 1 : 0]);
	if (child)
		return;
	gpu_init();
	setup();
	while (hear(&byte, 1)) {
		increment(data, words);
		CALL(cuStreamSynchronize(stream));
		tell("d", 1);
	}
	exit(0);
}

static inline void child_end(void)
{
	int status = 0;

	close(peer);
	if (waitpid(child, &status, 0) != child || status)
		step_die("memory_kinds: the child ended with %#x", status);
}

static inline void shared_step(unsigned long k)
{
	char byte;

	(void)k;
	tell("g", 1);
	must_hear(&byte, 1);
}

static inline void ipc_out_setup(void)
{
	CUipcMemHandle handle;

	CALL(cuMemAlloc_v2(&data, SIZE));
	upload_start(data);
	CALL(cuIpcGetMemHandle(&handle, data));
	tell(&handle, sizeof(handle));
}

static inline void ipc_in_setup(void)
{
	CUipcMemHandle handle;

	must_hear(&handle, sizeof(handle));
	CALL(cuIpcOpenMemHandle(&data, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

static inline void ipc_out_start(void)
{
	child_start(ipc_in_setup);
}

static inline void ipc_in_start(void)
{
	child_start(ipc_out_setup);
}

static inline void ipc_out_finish(void)
{
	child_end();
	CALL(cuMemFree_v2(data));
}

static inline void ipc_in_finish(void)
{
	CALL(cuIpcCloseMemHandle(data));
	child_end();
}

static inline CUmemAllocationProp exported_prop(void)
{
	CUmemAllocationProp prop = device_prop();

	need(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
	     "the device exports no memory as file descriptors");
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CALL(cuMemGetAllocationGranularity(&exported.size, &prop,
					   CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	return prop;
}

static inline void map_exported(void)
{
	CALL(cuMemAddressReserve(&data, exported.size, 0, 0, 0));
	CALL(cuMemMap(data, exported.size, 0, exported.handle, 0));
	allow(data, exported.size);
	/* As many programs do it: the mapping alone keeps the memory. */
	CALL(cuMemRelease(exported.handle));
}

static inline void vmm_out_setup(void)
{
	CUmemAllocationProp prop = exported_prop();
	int fd;

	CALL(cuMemCreate(&exported.handle, exported.size, &prop, 0));
	CALL(cuMemExportToShareableHandle(&fd, exported.handle,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	map_exported();
	upload_start(data);
	tell_fd(fd);
	close(fd);
}

static inline void vmm_in_setup(void)
{
	int fd;

	exported_prop();
	fd = hear_fd();
	CALL(cuMemImportFromShareableHandle(&exported.handle, (void *)(intptr_t)fd,
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	map_exported();
}

static inline void vmm_out_start(void)
{
	child_start(vmm_in_setup);
}

static inline void vmm_in_start(void)
{
	child_start(vmm_out_setup);
}

static inline void vmm_shared_finish(void)
{
	CALL(cuMemUnmap(data, exported.size));
	CALL(cuMemAddressFree(data, exported.size));
	child_end();
}

static CUmemoryPool shared_pool;

static inline void pool_out_setup(void)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.dev},
	};
	int fd;

	need(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "the device has no memory pools");
	CALL(cuMemPoolCreate(&shared_pool, &props));
	CALL(cuMemPoolExportToShareableHandle(&fd, shared_pool,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	tell_fd(fd);
	close(fd);
	CALL(cuMemAllocFromPoolAsync(&data, SIZE, shared_pool, stream));
	CALL(cuStreamSynchronize(stream));
	upload_start(data);
}

static inline void pool_in_setup(void)
{
	int fd = hear_fd();

	CALL(cuMemPoolImportFromShareableHandle(&shared_pool, (void *)(intptr_t)fd,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(fd);
	CALL(cuMemAlloc_v2(&data, SIZE));
	upload_start(data);
}

static inline void pool_out_start(void)
{
	child_start(pool_in_setup);
}

static inline void pool_in_start(void)
{
	child_start(pool_out_setup);
}

static inline void pool_out_finish(void)
{
	CALL(cuMemFreeAsync(data, stream));
	CALL(cuStreamSynchronize(stream));
	CALL(cuMemPoolDestroy(shared_pool));
	child_end();
}

static inline void pool_in_finish(void)
{
	CALL(cuMemFree_v2(data));
	CALL(cuMemPoolDestroy(shared_pool));
	child_end();
}

#endif
