/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated driver's other kinds of memory: pools, graphs', arrays, textures, shared memory. */
#include "tests/check_suite.h"
#include "tests/sim/testing.h"

#include <unistd.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define SIDE 64U

static uint64_t pool_attribute(CUmemoryPool pool, CUmemPool_attribute attr)
{
	uint64_t value;

	ok(cu.cuMemPoolGetAttribute(pool, attr, &value));
	return value;
}

START_TEST(test_pools_are_exported)
{
	const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = type,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemoryPool pool, usual, imported;
	CUdeviceptr p;
	int fd;

	open_context();
	ok(cu.cuDeviceGetDefaultMemPool(&usual, 0));
	ok(cu.cuMemPoolCreate(&pool, &props));
	fails(cu.cuMemPoolExportToShareableHandle(&fd, usual, type, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemPoolExportToShareableHandle(&fd, pool, type, 0));
	ok(cu.cuMemPoolImportFromShareableHandle(&imported, (void *)(intptr_t)fd, type, 0));
	fails(cu.cuMemAllocFromPoolAsync(&p, MIB, imported, NULL), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemPoolDestroy(imported));
	close(fd);
	fails(cu.cuMemPoolImportFromShareableHandle(&imported, (void *)(intptr_t)fd, type, 0),
	      CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemPoolDestroy(pool));
}
END_TEST

START_TEST(test_pools)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemoryPool pool, usual, found;
	uint64_t threshold = 12345;
	CUdeviceptr p, q;
	size_t before;
	CUstream s;

	open_context();
	ok(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	ok(cu.cuDeviceGetDefaultMemPool(&usual, 0));
	ok(cu.cuMemPoolCreate(&pool, &props));
	ok(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	ck_assert_uint_eq(pool_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), threshold);
	ok(cu.cuMemAllocFromPoolAsync(&p, MIB, pool, s));
	ok(cu.cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
	ck_assert_ptr_eq(found, pool);
	ck_assert_uint_eq(pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MIB);
	/* The device's pool serves cuMemAllocAsync, until it is destroyed. */
	ok(cu.cuDeviceSetMemPool(0, pool));
	ok(cu.cuMemAllocAsync(&q, MIB, s));
	ck_assert_uint_eq(pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 2 * MIB);
	ok(cu.cuMemFreeAsync(q, s));
	ok(cu.cuStreamSynchronize(s));
	ok(cu.cuMemPoolTrimTo(pool, 0));
	ck_assert_uint_eq(pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MIB);
	ck_assert_uint_eq(pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 2 * MIB);
	ok(cu.cuMemPoolDestroy(pool));
	fails(cu.cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemPoolDestroy(usual), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuDeviceGetMemPool(&found, 0));
	ck_assert_ptr_eq(found, usual);
	/* Memory that a pool keeps is another allocation's, if there is no other. */
	threshold = 2 * MIB;
	ok(cu.cuMemPoolSetAttribute(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	before = free_memory();
	ok(cu.cuMemAllocAsync(&q, 2 * MIB, s));
	ok(cu.cuMemFreeAsync(q, s));
	ok(cu.cuStreamSynchronize(s));
	ck_assert_uint_eq(free_memory(), before - 2 * MIB);
	ck_assert_uint_eq(pool_attribute(usual, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 * MIB);
	ok(cu.cuMemAlloc_v2(&q, before & ~(2 * MIB - 1)));
	ok(cu.cuMemFree_v2(q));
	ck_assert_uint_eq(free_memory(), before);
	/* What came from a pool lives on. */
	ok(cu.cuMemsetD32_v2(p, 9, 16));
	ck_assert_uint_eq(word_at(p + 60), 9);
	ok(cu.cuMemFreeAsync(p, s));
	ok(cu.cuStreamSynchronize(s));
}
END_TEST

START_TEST(test_graph_memory)
{
	uint64_t used;
	CUdeviceptr data, temporary;
	CUgraphExec exec;
	CUgraph graph;
	size_t before;
	CUstream s;

	open_context();
	ok(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	ok(cu.cuMemAlloc_v2(&data, 4096));
	ok(cu.cuMemsetD32_v2(data, 5, 1024));
	/* A stream that does not wait for the default one is next. */
	ok(cu.cuCtxSynchronize());
	before = free_memory();
	ok(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(cu.cuMemAllocAsync(&temporary, 4096, s));
	ok(launch("fill", s, temporary, 1024, 7));
	ok(launch("increment", s, data, 1024, 0));
	ok(cu.cuMemFreeAsync(temporary, s));
	fails(cu.cuMemFreeAsync(data, s), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuStreamEndCapture(s, &graph));
	ok(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(cu.cuGraphDestroy(graph));
	for (int i = 0; i < 2; i++)
		ok(cu.cuGraphLaunch(exec, s));
	ok(cu.cuStreamSynchronize(s));
	ok(cu.cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &used));
	ck_assert_uint_eq(used, 4096);
	ok(cu.cuGraphExecDestroy(exec));
	ck_assert_uint_eq(word_at(data + 4092), 7);
	ok(cu.cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &used));
	ck_assert_uint_eq(used, 4096);
	ok(cu.cuDeviceGraphMemTrim(0));
	ok(cu.cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &used));
	ck_assert_uint_eq(used, 0);
	ok(cu.cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used));
	ck_assert_uint_eq(used, 4096);
	ck_assert_uint_eq(free_memory(), before);
}
END_TEST

static CUDA_ARRAY3D_DESCRIPTOR words_desc(size_t width, size_t height, size_t depth)
{
	return (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = width,
		.Height = height,
		.Depth = depth,
		.Format = CU_AD_FORMAT_UNSIGNED_INT32,
		.NumChannels = 1,
		.Flags = depth ? 0 : CUDA_ARRAY3D_SURFACE_LDST,
	};
}

/* Copy a rectangle of SIDE words a row; @to_array or back. */
static CUresult copy_rows(CUarray array, uint32_t *host, size_t first, size_t rows, bool to_array)
{
	CUDA_MEMCPY2D c = {
		.srcMemoryType = to_array ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY,
		.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST,
		.WidthInBytes = SIDE * 4,
		.Height = rows,
	};

	if (to_array) {
		c.srcHost = host;
		c.srcPitch = SIDE * 4;
		c.dstArray = array;
		c.dstY = first;
	} else {
		c.dstHost = host;
		c.dstPitch = SIDE * 4;
		c.srcArray = array;
		c.srcY = first;
	}
	return cu.cuMemcpy2D_v2(&c);
}

START_TEST(test_arrays)
{
	CUDA_ARRAY3D_DESCRIPTOR d = words_desc(SIDE, SIDE, 0), found;
	uint32_t host[SIDE * SIDE], back[SIDE];
	CUmipmappedArray mipmap;
	CUarray array, level;
	size_t before;

	open_context();
	before = free_memory();
	for (uint32_t i = 0; i < SIDE * SIDE; i++)
		host[i] = i;
	ok(cu.cuArray3DCreate_v2(&array, &d));
	ck_assert_uint_eq(free_memory(), before - sizeof(host));
	ok(copy_rows(array, host, 0, SIDE, true));
	ok(copy_rows(array, back, 3, 1, false));
	ck_assert_uint_eq(back[5], 3 * SIDE + 5);
	fails(copy_rows(array, host, 1, SIDE, true), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuArray3DGetDescriptor_v2(&found, array));
	ck_assert_uint_eq(found.Width, SIDE);
	ok(cu.cuArrayDestroy(array));
	fails(cu.cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);

	ok(cu.cuMipmappedArrayCreate(&mipmap, &d, 3));
	ok(cu.cuMipmappedArrayGetLevel(&level, mipmap, 2));
	ok(cu.cuArray3DGetDescriptor_v2(&found, level));
	ck_assert_uint_eq(found.Height, SIDE / 4);
	fails(cu.cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
	fails(cu.cuMipmappedArrayGetLevel(&level, mipmap, 3), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMipmappedArrayDestroy(mipmap));
	ck_assert_uint_eq(free_memory(), before);
}
END_TEST

START_TEST(test_boxes)
{
	CUDA_ARRAY3D_DESCRIPTOR d = words_desc(8, 4, 2);
	CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcPitch = 32,
		.srcHeight = 4,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY,
		.WidthInBytes = 32,
		.Height = 4,
		.Depth = 2,
	};
	uint32_t word;

	open_context();
	ok(cu.cuArray3DCreate_v2(&c.dstArray, &d));
	ok(cu.cuMemAlloc_v2(&c.srcDevice, 256));
	ok(launch("iota", NULL, c.srcDevice, 64, 0));
	ok(cu.cuMemcpy3D_v2(&c));
	c = (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_ARRAY,
		.srcArray = c.dstArray,
		.srcXInBytes = 12,
		.srcY = 2,
		.srcZ = 1,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = &word,
		.WidthInBytes = 4,
		.Height = 1,
		.Depth = 1,
	};
	ok(cu.cuMemcpy3D_v2(&c));
	ck_assert_uint_eq(word, 32 + 2 * 8 + 3);
}
END_TEST

START_TEST(test_textures_and_surfaces)
{
	CUDA_ARRAY3D_DESCRIPTOR d = words_desc(SIDE, SIDE, 0);
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
	CUDA_TEXTURE_DESC desc = {.flags = CU_TRSF_READ_AS_INTEGER}, found;
	uint32_t host[SIDE * SIDE];
	CUtexObject texture;
	CUsurfObject surface;
	CUdeviceptr p;

	open_context();
	for (uint32_t i = 0; i < SIDE * SIDE; i++)
		host[i] = 10 * i;
	ok(cu.cuArray3DCreate_v2(&resource.res.array.hArray, &d));
	ok(copy_rows(resource.res.array.hArray, host, 0, SIDE, true));
	ok(cu.cuTexObjectCreate(&texture, &resource, &desc, NULL));
	ok(cu.cuSurfObjectCreate(&surface, &resource));
	ok(cu.cuMemAlloc_v2(&p, sizeof(host)));
	ok(launch("iota", NULL, p, SIDE * SIDE, 0));
	ok(launch("increment_surface", NULL, surface, SIDE * SIDE, SIDE));
	ok(launch4("add_texels", NULL, p, SIDE * SIDE, texture, SIDE));
	ck_assert_uint_eq(word_at(p + 4 * 777), 777 + 7770 + 1);
	ok(cu.cuTexObjectGetTextureDesc(&found, texture));
	ck_assert_uint_eq(found.flags, CU_TRSF_READ_AS_INTEGER);
	ok(cu.cuTexObjectDestroy(texture));
	fails(cu.cuTexObjectDestroy(texture), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuSurfObjectDestroy(texture), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuSurfObjectDestroy(surface));
}
END_TEST

START_TEST(test_constant_memory)
{
	CUdeviceptr p;
	size_t size;

	open_context();
	ok(cu.cuModuleGetGlobal_v2(&p, &size, module, "constants"));
	ck_assert_uint_eq(size, 256);
}
END_TEST

/* Run @importer in a process of its own; *@fd is the parent's end of a socket, whose other end it gets. */
static pid_t start_importer(void (*importer)(int fd), int *fd)
{
	int ends[2];
	pid_t pid;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	pid = fork();
	if (!pid) {
		open_context();
		importer(ends[0]);
		exit(0);
	}
	*fd = ends[1];
	return pid;
}

static void join(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

static void import_ipc(int fd)
{
	size_t before = free_memory(), size;
	CUipcMemHandle handle;
	CUdeviceptr p, base;

	ck_assert_int_eq(read(fd, &handle, sizeof(handle)), sizeof(handle));
	ok(cu.cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_assert_uint_eq(free_memory(), before);
	ok(cu.cuMemGetAddressRange_v2(&base, &size, p));
	ck_assert_uint_eq(size, 4096);
	ck_assert_uint_eq(word_at(p + 40), 11);
	ok(launch("increment", NULL, p, 1024, 0));
	ok(cu.cuIpcCloseMemHandle(p));
	fails(cu.cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
}

START_TEST(test_ipc)
{
	CUipcMemHandle handle;
	CUdeviceptr p, pooled;
	pid_t pid;
	int fd;

	pid = start_importer(import_ipc, &fd);
	open_context();
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuMemsetD32_v2(p, 11, 1024));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuMemAllocAsync(&pooled, 4096, NULL));
	fails(cu.cuIpcGetMemHandle(&handle, pooled), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuIpcGetMemHandle(&handle, p));
	ck_assert_int_eq(write(fd, &handle, sizeof(handle)), sizeof(handle));
	join(pid);
	ck_assert_uint_eq(word_at(p + 40), 12);
}
END_TEST

/* A file descriptor passes between processes in other ways; what it holds is what counts here. */
static void import_exported(int fd)
{
	CUmemGenericAllocationHandle handle;
	char path[64];
	int exported;
	CUdeviceptr p;

	ck_assert_int_eq(read(fd, path, sizeof(path)), sizeof(path));
	exported = open(path, O_RDWR | O_CLOEXEC);
	ok(cu.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)exported,
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(exported);
	ok(cu.cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	ok(cu.cuMemMap(p, 2 * MIB, 0, handle, 0));
	ok(cu.cuMemRelease(handle));
	ok(allow(p, 2 * MIB));
	ck_assert_uint_eq(word_at(p), 21);
	ok(launch("increment", NULL, p, 1, 0));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuMemUnmap(p, 2 * MIB));
}

START_TEST(test_exported_memory)
{
	CUmemAllocationProp prop = device_prop();
	CUmemGenericAllocationHandle handle;
	char path[64] = "";
	int exported, fd;
	CUdeviceptr p;
	pid_t pid;

	pid = start_importer(import_exported, &fd);
	open_context();
	ok(cu.cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	ok(cu.cuMemCreate(&handle, 2 * MIB, &prop, 0));
	fails(cu.cuMemExportToShareableHandle(&exported, handle,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
	      CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemRelease(handle));
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	ok(cu.cuMemCreate(&handle, 2 * MIB, &prop, 0));
	ok(cu.cuMemMap(p, 2 * MIB, 0, handle, 0));
	ok(allow(p, 2 * MIB));
	ok(cu.cuMemsetD32_v2(p, 21, 1));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuMemExportToShareableHandle(&exported, handle,
					   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), exported);
	ck_assert_int_eq(write(fd, path, sizeof(path)), sizeof(path));
	join(pid);
	ck_assert_uint_eq(word_at(p), 22);
}
END_TEST

static int export_of(CUmemGenericAllocationHandle handle)
{
	int fd;

	ok(cu.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					   0));
	return fd;
}

static CUmemGenericAllocationHandle import_of(int fd)
{
	CUmemGenericAllocationHandle handle;

	ok(cu.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	return handle;
}

static CUdeviceptr map_of(CUmemGenericAllocationHandle handle)
{
	CUdeviceptr p;

	ok(cu.cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	ok(cu.cuMemMap(p, 2 * MIB, 0, handle, 0));
	ok(allow(p, 2 * MIB));
	return p;
}

/* The memory lives while anybody has a descriptor or a handle of it. */
START_TEST(test_an_export_keeps_the_memory)
{
	CUmemAllocationProp prop = device_prop();
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p, other;
	int fd;

	open_context();
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	ok(cu.cuMemCreate(&handle, 2 * MIB, &prop, 0));
	p = map_of(handle);
	ok(cu.cuMemsetD32_v2(p, 31, 1));
	ok(cu.cuCtxSynchronize());
	fd = export_of(handle);
	ok(cu.cuMemUnmap(p, 2 * MIB));
	ok(cu.cuMemRelease(handle));
	ok(cu.cuMemCreate(&handle, 2 * MIB, &prop, 0));
	other = map_of(handle);
	ok(cu.cuMemsetD32_v2(other, 32, 1));
	ok(cu.cuCtxSynchronize());
	ck_assert_uint_eq(word_at(map_of(import_of(fd))), 31);
}
END_TEST

static void checkpoint_and(CUresult restored)
{
	CUcheckpointLockArgs lock = {.timeoutMs = 100};

	ok(cu.cuCheckpointProcessLock(getpid(), &lock));
	ok(cu.cuCheckpointProcessCheckpoint(getpid(), NULL));
	fails(cu.cuCheckpointProcessRestore(getpid(), NULL), restored);
}

START_TEST(test_an_import_is_not_restored)
{
	CUmemAllocationProp prop = device_prop();
	CUmemGenericAllocationHandle handle;

	open_context();
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	ok(cu.cuMemCreate(&handle, 2 * MIB, &prop, 0));
	ok(cu.cuMemRelease(import_of(export_of(handle))));
	checkpoint_and(CUDA_SUCCESS);
	ok(cu.cuCheckpointProcessUnlock(getpid(), NULL));
	import_of(export_of(handle));
	checkpoint_and(CUDA_ERROR_NOT_SUPPORTED);
	fails(cu.cuCheckpointProcessRestore(getpid(), NULL), CUDA_ERROR_NOT_SUPPORTED);
}
END_TEST

START_TEST(test_a_legacy_export_is_not_restored)
{
	CUipcMemHandle handle;
	CUdeviceptr p;

	open_context();
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuIpcGetMemHandle(&handle, p));
	ok(cu.cuMemFree_v2(p));
	checkpoint_and(CUDA_SUCCESS);
	ok(cu.cuCheckpointProcessUnlock(getpid(), NULL));
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuIpcGetMemHandle(&handle, p));
	checkpoint_and(CUDA_ERROR_NOT_SUPPORTED);
}
END_TEST

/* The exporter's record waits for a host function, which ends when this process says so. */
static void import_event(int fd)
{
	CUipcEventHandle handle;
	CUevent event;
	CUstream s;

	ck_assert_int_eq(read(fd, &handle, sizeof(handle)), sizeof(handle));
	ok(cu.cuIpcOpenEventHandle(&event, handle));
	ok(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamWaitEvent(s, event, 0));
	fails(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
	fails(cu.cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(write(fd, "", 1), 1);
	ok(cu.cuEventSynchronize(event));
	ok(cu.cuStreamSynchronize(s));
	ok(cu.cuEventQuery(event));
	ok(cu.cuEventDestroy_v2(event));
}

static void CUDA_CB read_byte(void *fd)
{
	char byte;

	ck_assert_int_eq(read(*(int *)fd, &byte, 1), 1);
}

START_TEST(test_ipc_event)
{
	CUipcEventHandle handle;
	CUevent event, plain;
	pid_t pid;
	int fd;

	pid = start_importer(import_event, &fd);
	open_context();
	fails(cu.cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	fails(cu.cuIpcGetEventHandle(&handle, plain), CUDA_ERROR_INVALID_HANDLE);
	ok(cu.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	ok(cu.cuIpcGetEventHandle(&handle, event));
	ok(cu.cuEventQuery(event));
	ok(cu.cuLaunchHostFunc(NULL, read_byte, &fd));
	ok(cu.cuEventRecord(event, NULL));
	ck_assert_int_eq(write(fd, &handle, sizeof(handle)), sizeof(handle));
	join(pid);
	ok(cu.cuEventQuery(event));
	checkpoint_and(CUDA_SUCCESS);
	ok(cu.cuCheckpointProcessUnlock(getpid(), NULL));
	ok(cu.cuEventRecord(event, NULL));
	ok(cu.cuEventSynchronize(event));
	ok(cu.cuEventDestroy_v2(event));
}
END_TEST

START_TEST(test_foreign_objects)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {
		.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
		.size = 4096,
	};
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC whole = {.size = 4096};
	CUmulticastObjectProp prop = {.numDevices = 1, .size = 2 * MIB};
	CUmemGenericAllocationHandle multicast;
	CUexternalMemory external;
	CUdeviceptr p;
	size_t before;

	open_context();
	before = free_memory();
	desc.handle.fd = memfd_create("external", MFD_CLOEXEC);
	ok(cu.cuImportExternalMemory(&external, &desc));
	ok(cu.cuExternalMemoryGetMappedBuffer(&p, external, &whole));
	ok(cu.cuMemsetD32_v2(p, 3, 1024));
	ck_assert_uint_eq(word_at(p + 4092), 3);
	ok(cu.cuMemFree_v2(p));
	ok(cu.cuDestroyExternalMemory(external));
	fails(cu.cuDestroyExternalMemory(external), CUDA_ERROR_INVALID_HANDLE);
	ok(cu.cuMulticastCreate(&multicast, &prop));
	ok(cu.cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	fails(cu.cuMemMap(p, 2 * MIB, 0, multicast, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemRelease(multicast));
	ck_assert_uint_eq(free_memory(), before);
}
END_TEST

START_TEST(test_green_contexts)
{
	CUdevResource all, part;
	CUdevResourceDesc desc;
	CUcontext ctx, found;
	unsigned int groups = 1, flags;
	size_t before;
	CUdeviceptr p, q;
	CUgreenCtx green;
	CUstream s;
	int active;

	open_context();
	ok(cu.cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	ok(cu.cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 10));
	ck_assert_uint_eq(groups, 1);
	ck_assert_uint_eq(part.sm.smCount, 16);
	ok(cu.cuDevResourceGenerateDesc(&desc, &part, 1));
	before = free_memory();
	ok(cu.cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	ok(cu.cuCtxFromGreenCtx(&ctx, green));
	ck_assert_ptr_ne(ctx, primary);
	ok(cu.cuCtxSetCurrent(ctx));
	ok(cu.cuMemAlloc_v2(&p, MIB));
	ok(cu.cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	ck_assert_ptr_eq(found, primary);
	fails(cu.cuCtxDestroy_v2(ctx), CUDA_ERROR_INVALID_CONTEXT);
	/* The primary context waits for it. */
	ok(cu.cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0));
	ok(cu.cuMemsetD32Async(p, 5, 1, s));
	ok(cu.cuCtxSetCurrent(primary));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuStreamQuery(s));
	ok(cu.cuStreamDestroy_v2(s));
	/* Memory lives on, and so does the primary context as long as the green one. */
	ok(cu.cuDevicePrimaryCtxRelease_v2(0));
	ok(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 1);
	ck_assert_uint_eq(word_at(p), 5);
	ck_assert_uint_eq(free_memory(), before - 2 * MIB);
	ok(cu.cuMemAlloc_v2(&q, MIB));
	ok(cu.cuGreenCtxDestroy(green));
	fails(cu.cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_CONTEXT);
	ok(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated driver: kinds of memory");
	TCase *tcase = tcase_create("kinds");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, test_pools);
	tcase_add_test(tcase, test_pools_are_exported);
	tcase_add_test(tcase, test_graph_memory);
	tcase_add_test(tcase, test_arrays);
	tcase_add_test(tcase, test_boxes);
	tcase_add_test(tcase, test_textures_and_surfaces);
	tcase_add_test(tcase, test_constant_memory);
	tcase_add_test(tcase, test_ipc);
	tcase_add_test(tcase, test_ipc_event);
	tcase_add_test(tcase, test_exported_memory);
	tcase_add_test(tcase, test_an_export_keeps_the_memory);
	tcase_add_test(tcase, test_an_import_is_not_restored);
	tcase_add_test(tcase, test_a_legacy_export_is_not_restored);
	tcase_add_test(tcase, test_foreign_objects);
	tcase_add_test(tcase, test_green_contexts);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
