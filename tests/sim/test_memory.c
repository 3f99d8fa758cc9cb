/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated driver's memory: mappings, allocations, faults, accounting, process checkpoint. */
#include "tests/check_suite.h"
#include "tests/sim/testing.h"
#include "tests/sim/account.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* As large as vmem reserves; TSan leaves a process few addresses, and not always 1 TiB in a row. */
#ifdef __SANITIZE_THREAD__
#define LARGE (1UL << 36)
#else
#define LARGE (1UL << 40)
#endif

START_TEST(test_reserve_honours_hint)
{
	CUdeviceptr a, b, c, hint;

	open_context();
	ok(cu.cuMemAddressReserve(&a, LARGE, 0, 0, 0));
	fails(cu.cuMemAddressFree(a, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemAddressFree(a, LARGE));
	hint = a + 64 * MIB;
	ok(cu.cuMemAddressReserve(&b, 2 * MIB, 0, hint, 0));
	ck_assert_uint_eq(b, hint);
	/* Taken: the range comes from elsewhere, aligned all the same. */
	ok(cu.cuMemAddressReserve(&c, 4 * MIB, 64 * MIB, hint, 0));
	ck_assert_uint_ne(c, hint);
	ck_assert_uint_eq(c % (64 * MIB), 0);
	fails(cu.cuMemAddressReserve(&c, MIB, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(test_memory_lives_until_released_and_unmapped)
{
	CUmemAllocationProp prop = device_prop();
	CUmemGenericAllocationHandle handle, again;
	size_t before;
	CUdeviceptr p;

	open_context();
	before = free_memory();
	ok(cu.cuMemAddressReserve(&p, 8 * MIB, 0, 0, 0));
	ok(cu.cuMemCreate(&handle, 4 * MIB, &prop, 0));
	ck_assert_uint_eq(free_memory(), before - 4 * MIB);
	ok(cu.cuMemMap(p, 4 * MIB, 0, handle, 0));
	fails(cu.cuMemMap(p + 2 * MIB, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemMap(p + 8 * MIB, 2 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemMap(p + 4 * MIB, 2 * MIB, 2 * MIB, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	ok(allow(p, 4 * MIB));
	ok(cu.cuMemsetD32_v2(p, 7, MIB));
	ok(cu.cuMemRelease(handle));
	fails(cu.cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(free_memory(), before - 4 * MIB);
	ck_assert_uint_eq(word_at(p + 4 * MIB - 4), 7);

	/* The handle comes back by the address, and keeps the contents without a mapping. */
	ok(cu.cuMemRetainAllocationHandle(&again, (void *)(p + MIB)));
	fails(cu.cuMemUnmap(p, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemUnmap(p, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemAddressFree(p, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemUnmap(p, 4 * MIB));
	ok(cu.cuMemMap(p + 4 * MIB, 4 * MIB, 0, again, 0));
	ok(allow(p + 4 * MIB, 4 * MIB));
	ck_assert_uint_eq(word_at(p + 4 * MIB), 7);
	ok(cu.cuMemUnmap(p + 4 * MIB, 4 * MIB));
	ck_assert_uint_eq(free_memory(), before - 4 * MIB);
	ok(cu.cuMemRelease(again));
	ck_assert_uint_eq(free_memory(), before);
}
END_TEST

START_TEST(test_fresh_memory_is_garbage)
{
	CUdeviceptr p, q;

	open_context();
	ok(cu.cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0));
	for (int i = 0; i < 2; i++) {
		back(p, 4 * MIB);
		ck_assert_uint_eq(word_at(p), 0xb5b5b5b5);
		ck_assert_uint_eq(word_at(p + 4 * MIB - 4), 0xb5b5b5b5);
		ok(cu.cuMemsetD32_v2(p, 1, MIB));
		ok(cu.cuCtxSynchronize());
		ok(cu.cuMemUnmap(p, 4 * MIB));
	}
	ok(cu.cuMemAlloc_v2(&q, 100));
	ck_assert_uint_eq(word_at(q), 0xb5b5b5b5);
}
END_TEST

START_TEST(test_fault_is_sticky)
{
	CUmemAllocationProp prop = device_prop();
	CUmemGenericAllocationHandle handle;
	CUcontext other, popped;
	CUdeviceptr p;

	open_context();
	ok(cu.cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	ok(cu.cuMemCreate(&handle, 2 * MIB, &prop, 0));
	ok(cu.cuMemMap(p, 2 * MIB, 0, handle, 0));
	/* Mapped, but no device may access it yet. */
	ok(launch("fill", NULL, p, 16, 1));
	fails(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	fails(cu.cuMemAlloc_v2(&p, 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
	fails(cu.cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	/* Another context goes on, and so does this device after a reset. */
	ok(cu.cuCtxCreate_v4(&other, NULL, 0, 0));
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuCtxPopCurrent_v2(&popped));
	ck_assert_ptr_eq(popped, other);
	ok(cu.cuDevicePrimaryCtxReset_v2(0));
	fails(cu.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ok(cu.cuDevicePrimaryCtxRetain(&popped, 0));
	ck_assert_ptr_eq(popped, primary);
	ok(cu.cuCtxSynchronize());
}
END_TEST

START_TEST(test_kernel_after_unmap_faults)
{
	CUdeviceptr p;

	open_context();
	ok(cu.cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	back(p, 2 * MIB);
	ok(launch("fill", NULL, p, 16, 1));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuMemUnmap(p, 2 * MIB));
	fails(cu.cuMemcpyDtoH_v2(&(uint32_t){0}, p, 4), CUDA_ERROR_INVALID_VALUE);
	ok(launch("fill", NULL, p, 16, 1));
	fails(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(test_allocations)
{
	char buf[256] = "host";
	CUdeviceptr p, managed, base;
	CUmemorytype type = 0;
	unsigned int on = 1;
	size_t before, size;
	CUcontext ctx;
	void *host;

	open_context();
	before = free_memory();
	fails(cu.cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemAlloc_v2(&p, 10000));
	ck_assert_uint_lt(free_memory(), before);
	ok(cu.cuMemGetAddressRange_v2(&base, &size, p + 9999));
	ck_assert_uint_eq(base, p);
	ck_assert_uint_eq(size, 10000);
	ok(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 5));
	ck_assert_int_eq(type, CU_MEMORYTYPE_DEVICE);
	ok(cu.cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	ck_assert_ptr_eq(ctx, primary);
	fails(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)buf),
	      CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + 77));
	on = 0;
	ok(cu.cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
	ck_assert_uint_eq(on, 1);
	ok(cu.cuMemsetD8_v2(p, 5, 10000));
	ck_assert_uint_eq(*(unsigned char *)(p + 9999), 5);
	fails(cu.cuMemFree_v2(p + 512), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemcpyHtoD_v2(p + 9000, buf, 1001), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemFree_v2(p));
	ck_assert_uint_eq(free_memory(), before);
	fails(cu.cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemAlloc_v2(&p, before + 4096), CUDA_ERROR_OUT_OF_MEMORY);

	ok(cu.cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	ok(cu.cuMemsetD8_v2(managed, 9, 4096));
	ok(cu.cuCtxSynchronize());
	ck_assert_uint_eq(*(unsigned char *)managed, 9);
	ok(cu.cuMemHostAlloc(&host, 4096, 0));
	ok(cu.cuMemcpy((CUdeviceptr)host, managed, 4096));
	ck_assert_uint_eq(*(unsigned char *)host, 9);
	ok(cu.cuMemFreeHost(host));
	ok(cu.cuMemHostRegister_v2(buf, sizeof(buf), 0));
	fails(cu.cuMemHostRegister_v2(buf + 8, 8, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	ok(cu.cuMemHostUnregister(buf));
	fails(cu.cuMemHostUnregister(buf), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}
END_TEST

/* On a full device a block that is begun still has room. */
START_TEST(test_small_allocations_share_blocks)
{
	CUmemAllocationProp prop = device_prop();
	CUmemGenericAllocationHandle handle;
	CUdeviceptr small[3], large;
	size_t before;

	open_context();
	before = free_memory();
	ok(cu.cuMemAlloc_v2(&small[0], 4));
	ok(cu.cuMemAlloc_v2(&small[1], MIB));
	ck_assert_uint_eq(free_memory(), before - 2 * MIB);
	ok(cu.cuMemAlloc_v2(&large, MIB + 4096));
	ck_assert_uint_eq(free_memory(), before - 4 * MIB);
	ok(cu.cuMemFree_v2(large));
	ok(cu.cuMemCreate(&handle, before - 2 * MIB, &prop, 0));
	ok(cu.cuMemAlloc_v2(&small[2], 4096));
	fails(cu.cuMemAlloc_v2(&large, MIB), CUDA_ERROR_OUT_OF_MEMORY);
	ok(cu.cuMemRelease(handle));
	for (int i = 0; i < 3; i++)
		ok(cu.cuMemFree_v2(small[i]));
	ck_assert_uint_eq(free_memory(), before);
}
END_TEST

/* A block goes back when it is empty. */
START_TEST(test_few_that_are_left_hold_blocks)
{
	CUdeviceptr p[2000];
	size_t before;

	open_context();
	before = free_memory();
	for (int i = 0; i < 2000; i++)
		ok(cu.cuMemAlloc_v2(&p[i], 100 << 10));
	/* 20 in each block, none across two. */
	ck_assert_uint_eq(before - free_memory(), 100 * 2 * MIB);
	for (int i = 0; i < 2000; i++)
		if (i % 30)
			ok(cu.cuMemFree_v2(p[i]));
	ck_assert_uint_eq(before - free_memory(), 67 * 2 * MIB);
	for (int i = 0; i < 2000; i += 30)
		ok(cu.cuMemFree_v2(p[i]));
	ck_assert_uint_eq(free_memory(), before);
}
END_TEST

START_TEST(test_injected_faults)
{
	CUdeviceptr p;

	setenv("CUDAW_SIM_FAULT", "cuMemAlloc_v2:2:2,cuMemcpyHtoD_v2:1:999", 1);
	open_context();
	ok(cu.cuMemAlloc_v2(&p, 4096));
	fails(cu.cuMemAlloc_v2(&p, 4096), CUDA_ERROR_OUT_OF_MEMORY);
	ok(cu.cuMemAlloc_v2(&p, 4096));
	fails(cu.cuMemcpyHtoD_v2(p, &p, 8), CUDA_ERROR_UNKNOWN);
	ok(cu.cuMemcpyHtoD_v2(p, &p, 8));
}
END_TEST

START_TEST(test_devices)
{
	int count, vmm;

	setenv("CUDAW_SIM_DEVICES", "3", 1);
	setenv("CUDAW_SIM_NO_VMM", "1", 1);
	setenv("CUDAW_SIM_MEMORY", "0x20000000", 1);
	open_driver();
	fails(cu.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	ok(cu.cuInit(0));
	ok(cu.cuDeviceGetCount(&count));
	ck_assert_int_eq(count, 3);
	ok(cu.cuDeviceGetAttribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
				   2));
	ck_assert_int_eq(vmm, 0);
	fails(cu.cuDevicePrimaryCtxRetain(&primary, 3), CUDA_ERROR_INVALID_DEVICE);
	ok(cu.cuDevicePrimaryCtxRetain(&primary, 2));
	fails(cu.cuMemGetInfo_v2(NULL, NULL), CUDA_ERROR_INVALID_CONTEXT);
	ok(cu.cuCtxSetCurrent(primary));
	ck_assert_uint_eq(free_memory(), 0x20000000 - 64 * MIB);
}
END_TEST

/* A second GPU with memory of its own, as cuMemAlloc() and as cuMemMap() give it. */
static CUcontext open_second(CUdeviceptr *plain, CUdeviceptr *mapped)
{
	CUmemAllocationProp prop = device_prop();
	CUmemAccessDesc own = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
			       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUcontext second;

	setenv("CUDAW_SIM_DEVICES", "2", 1);
	open_context();
	ok(cu.cuDevicePrimaryCtxRetain(&second, 1));
	ok(cu.cuCtxSetCurrent(second));
	ok(cu.cuMemAlloc_v2(plain, 4096));
	prop.location.id = 1;
	ok(cu.cuMemAddressReserve(mapped, 2 * MIB, 0, 0, 0));
	ok(cu.cuMemCreate(&handle, 2 * MIB, &prop, 0));
	ok(cu.cuMemMap(*mapped, 2 * MIB, 0, handle, 0));
	ok(cu.cuMemSetAccess(*mapped, 2 * MIB, &own, 1));
	ok(cu.cuMemsetD32_v2(*plain, 1, 1024));
	ok(cu.cuMemsetD32_v2(*mapped, 2, 1024));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuCtxSetCurrent(primary));
	return second;
}

START_TEST(test_peer_access_is_a_contexts)
{
	CUdeviceptr plain, mapped;
	CUcontext second = open_second(&plain, &mapped), other;
	int can;

	ok(cu.cuDeviceCanAccessPeer(&can, 0, 1));
	ck_assert_int_eq(can, 1);
	fails(cu.cuMemsetD32_v2(plain, 3, 1), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuCtxDisablePeerAccess(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	fails(cu.cuCtxEnablePeerAccess(primary, 0), CUDA_ERROR_INVALID_CONTEXT);
	ok(cu.cuCtxEnablePeerAccess(second, 0));
	fails(cu.cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	ok(cu.cuMemsetD32_v2(plain, 3, 1));
	fails(cu.cuMemsetD32_v2(mapped, 3, 1), CUDA_ERROR_INVALID_VALUE);
	/* Another context of the device has an access of its own, until its end. */
	ok(cu.cuCtxCreate_v4(&other, NULL, 0, 0));
	fails(cu.cuMemsetD32_v2(plain, 4, 1), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuCtxEnablePeerAccess(second, 0));
	ok(cu.cuCtxDestroy_v2(other));
	ok(cu.cuMemsetD32_v2(plain, 4, 1));
	ok(cu.cuCtxDisablePeerAccess(second));
	fails(cu.cuMemsetD32_v2(plain, 5, 1), CUDA_ERROR_INVALID_VALUE);
	/* It ends with the peer, too, which must not be while a memset writes its memory. */
	ok(cu.cuCtxSynchronize());
	ok(cu.cuCtxEnablePeerAccess(second, 0));
	ok(cu.cuDevicePrimaryCtxReset_v2(1));
	ok(cu.cuDevicePrimaryCtxRetain(&second, 1));
	ok(cu.cuCtxEnablePeerAccess(second, 0));
}
END_TEST

START_TEST(test_copies_between_devices)
{
	CUdeviceptr plain, mapped, here;
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUcontext second = open_second(&plain, &mapped);
	uint32_t word = 7;

	ok(cu.cuMemAlloc_v2(&here, 4096));
	/* Without peer access, except from and to mapped memory. */
	ok(cu.cuMemcpyDtoD_v2(here, plain, 4096));
	ck_assert_uint_eq(word_at(here), 1);
	ok(cu.cuMemcpyHtoD_v2(plain, &word, 4));
	fails(cu.cuMemcpyDtoD_v2(here, mapped, 4096), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemcpyHtoD_v2(mapped, &word, 4), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemcpyDtoH_v2(&word, mapped, 4), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemcpyPeer(here, primary, mapped, second, 4096));
	ck_assert_uint_eq(word_at(here), 2);
	fails(cu.cuMemcpyPeer(here, primary, mapped, primary, 4096), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuCtxEnablePeerAccess(second, 0));
	fails(cu.cuMemcpyDtoD_v2(here, mapped, 4096), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemSetAccess(mapped, 2 * MIB, &access, 1));
	ok(cu.cuMemcpyDtoD_v2(here, mapped, 4096));
	ck_assert_uint_eq(word_at(here), 2);
	ok(cu.cuMemsetD32_v2(mapped, 8, 1));
	ck_assert_uint_eq(word_at(mapped), 8);
}
END_TEST

START_TEST(test_kernels_need_peer_access)
{
	CUdeviceptr plain, mapped;
	CUcontext second = open_second(&plain, &mapped);

	ok(cu.cuCtxEnablePeerAccess(second, 0));
	ok(launch("increment", NULL, plain, 1, 0));
	ok(cu.cuCtxSynchronize());
	ck_assert_uint_eq(word_at(plain), 2);
	ok(cu.cuCtxDisablePeerAccess(second));
	ok(launch("increment", NULL, plain, 1, 0));
	fails(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(test_devices_without_peers)
{
	CUdeviceptr plain, mapped;
	CUcontext second;
	int can;

	setenv("CUDAW_SIM_NO_PEERS", "1", 1);
	second = open_second(&plain, &mapped);
	ok(cu.cuDeviceCanAccessPeer(&can, 0, 1));
	ck_assert_int_eq(can, 0);
	fails(cu.cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}
END_TEST

/* The process checkpoint. */

static pid_t elsewhere;

static void *allocate_elsewhere(void *arg)
{
	CUdeviceptr p;

	__atomic_store_n(&elsewhere, gettid(), __ATOMIC_RELEASE);
	ok(cu.cuCtxSetCurrent(primary));
	*(CUresult *)arg = cu.cuMemAlloc_v2(&p, 4096);
	return NULL;
}

static char state_of_elsewhere(void)
{
	char path[64], state;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", elsewhere);
	file = fopen(path, "re");
	ck_assert_int_eq(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
	fclose(file);
	return state;
}

/* Returns once the other thread waits inside the driver, where it sleeps. */
static void wait_for_elsewhere(void)
{
	while (!__atomic_load_n(&elsewhere, __ATOMIC_ACQUIRE) || state_of_elsewhere() != 'S')
		usleep(1000);
}

static void take_checkpoint(void)
{
	CUcheckpointLockArgs lock = {.timeoutMs = 5000};

	ok(cu.cuCheckpointProcessLock(getpid(), &lock));
	ok(cu.cuCheckpointProcessCheckpoint(getpid(), NULL));
}

START_TEST(test_checkpoint_keeps_memory_and_holds_calls)
{
	CUcheckpointLockArgs lock = {.timeoutMs = 50};
	volatile CUresult result = CUDA_ERROR_UNKNOWN;
	CUprocessState state;
	volatile uint32_t *flag;
	pthread_t thread;
	CUdeviceptr p;

	open_context();
	ok(cu.cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	back(p, 2 * MIB);
	ok(cu.cuMemHostAlloc((void **)&flag, 4096, 0));
	ok(launch("spin_until", NULL, (uint64_t)flag, 0, 0));
	ok(launch("iota", NULL, p, 1024, 5));
	fails(cu.cuCheckpointProcessLock(getpid(), &lock), CUDA_ERROR_NOT_READY);
	fails(cu.cuCheckpointProcessLock(getpid() + 1, &lock), CUDA_ERROR_NOT_SUPPORTED);
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	fails(cu.cuCheckpointProcessCheckpoint(getpid(), NULL), CUDA_ERROR_ILLEGAL_STATE);
	take_checkpoint();
	ok(cu.cuCheckpointProcessGetState(getpid(), &state));
	ck_assert_int_eq(state, CU_PROCESS_STATE_CHECKPOINTED);

	pthread_create(&thread, NULL, allocate_elsewhere, (void *)&result);
	wait_for_elsewhere();
	ck_assert_int_eq(result, CUDA_ERROR_UNKNOWN);
	fails(cu.cuCheckpointProcessUnlock(getpid(), NULL), CUDA_ERROR_ILLEGAL_STATE);
	ok(cu.cuCheckpointProcessRestore(getpid(), NULL));
	ok(cu.cuCheckpointProcessUnlock(getpid(), NULL));
	pthread_join(thread, NULL);
	ck_assert_int_eq(result, CUDA_SUCCESS);
	ck_assert_uint_eq(word_at(p + 4092), 5 * 2654435761u + 1023);
}
END_TEST

START_TEST(test_strict_checkpoint_aborts)
{
	CUcheckpointLockArgs lock = {.timeoutMs = 5000};
	CUresult result;
	pthread_t thread;

	setenv("CUDAW_SIM_STRICT", "1", 1);
	open_context();
	ok(cu.cuCheckpointProcessLock(getpid(), &lock));
	pthread_create(&thread, NULL, allocate_elsewhere, &result);
	wait_for_elsewhere();
	cu.cuCheckpointProcessCheckpoint(getpid(), NULL);
}
END_TEST

/* A device shared by processes. */

static char shared_path[] = "/tmp/sim-account-XXXXXX";

static struct account_file read_account(void)
{
	int fd = open(shared_path, O_RDONLY | O_CLOEXEC);
	struct account_file account;

	ck_assert_int_eq(pread(fd, &account, sizeof(account), 0), sizeof(account));
	return account;
}

static uint64_t used_in_file(int pid)
{
	struct account_file account = read_account();
	uint64_t used = 0;

	for (int i = 0; i < ACCOUNT_SLOTS; i++)
		if (account.slots[i].pid == pid)
			used += account.slots[i].used[0];
	return used;
}

/* A process that holds @bytes of the device until it is killed. */
static pid_t start_hog(size_t bytes)
{
	int ready[2];
	pid_t pid;
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		CUdeviceptr p;

		open_context();
		ok(cu.cuMemAlloc_v2(&p, bytes));
		ck_assert_int_eq(write(ready[1], "", 1), 1);
		pause();
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void stop_hog(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(test_shared_device)
{
	CUdeviceptr p, q;
	pid_t hog;

	close(mkstemp(shared_path));
	setenv("CUDAW_SIM_SHARED", shared_path, 1);
	setenv("CUDAW_SIM_MEMORY", "0x40000000", 1); /* 1 GiB */
	hog = start_hog(512 * MIB);
	open_context();
	ck_assert_uint_eq(free_memory(), (1024 - 64 - 64 - 512) * MIB);
	fails(cu.cuMemAlloc_v2(&p, 400 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	stop_hog(hog);
	ok(cu.cuMemAlloc_v2(&p, 400 * MIB));
	ok(cu.cuMemsetD32_v2(p, 3, 100));
	ok(cu.cuCtxSynchronize());
	ck_assert_uint_eq(used_in_file(getpid()), 464 * MIB);

	/* A checkpoint leaves nothing on the device; another process may take it all. */
	take_checkpoint();
	ck_assert_uint_eq(used_in_file(getpid()), 0);
	if (!(hog = fork())) {
		CUdeviceptr r;

		fails(cu.cuMemAlloc_v2(&r, 4096), CUDA_ERROR_NOT_INITIALIZED);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(hog, NULL, 0), hog);
	ok(cu.cuCheckpointProcessRestore(getpid(), NULL));
	ok(cu.cuCheckpointProcessUnlock(getpid(), NULL));
	ck_assert_uint_eq(used_in_file(getpid()), 464 * MIB);
	ck_assert_uint_eq(word_at(p + 396), 3);
	ok(cu.cuMemAlloc_v2(&q, 4096));
	unlink(shared_path);
}
END_TEST

/* A process whose environment says nothing of the memory, as that of a command, may come first. */
START_TEST(test_shared_memory_is_told)
{
	close(mkstemp(shared_path));
	setenv("CUDAW_SIM_SHARED", shared_path, 1);
	unsetenv("CUDAW_SIM_MEMORY");
	stop_hog(start_hog(MIB));
	ck_assert_uint_eq(read_account().memory, 4096 * MIB);
	setenv("CUDAW_SIM_MEMORY", "0x40000000", 1);
	stop_hog(start_hog(MIB));
	ck_assert_uint_eq(read_account().memory, 1024 * MIB);
	setenv("CUDAW_SIM_MEMORY", "0x20000000", 1);
	stop_hog(start_hog(MIB));
	ck_assert_uint_eq(read_account().memory, 1024 * MIB);
	unlink(shared_path);
}
END_TEST

/* The hog must be forked before the parent's cuInit, and must wait for the checkpoint. */
START_TEST(test_restore_needs_memory)
{
	int go[2], done[2];
	pid_t pid, hog;
	CUdeviceptr p;
	char byte;

	close(mkstemp(shared_path));
	setenv("CUDAW_SIM_SHARED", shared_path, 1);
	setenv("CUDAW_SIM_MEMORY", "0x40000000", 1);
	ck_assert_int_eq(pipe(go) | pipe(done), 0);
	pid = fork();
	if (!pid) {
		ck_assert_int_eq(read(go[0], &byte, 1), 1);
		hog = start_hog(800 * MIB);
		ck_assert_int_eq(write(done[1], "", 1), 1);
		ck_assert_int_eq(read(go[0], &byte, 1), 1);
		stop_hog(hog);
		ck_assert_int_eq(write(done[1], "", 1), 1);
		_exit(0);
	}
	open_context();
	ok(cu.cuMemAlloc_v2(&p, 400 * MIB));
	take_checkpoint();
	ck_assert_int_eq(write(go[1], "", 1), 1);
	ck_assert_int_eq(read(done[0], &byte, 1), 1);
	fails(cu.cuCheckpointProcessRestore(getpid(), NULL), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(used_in_file(getpid()), 0);
	ck_assert_int_eq(write(go[1], "", 1), 1);
	ck_assert_int_eq(read(done[0], &byte, 1), 1);
	ok(cu.cuCheckpointProcessRestore(getpid(), NULL));
	ok(cu.cuCheckpointProcessUnlock(getpid(), NULL));
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	unlink(shared_path);
}
END_TEST

/* A process with a word in its memory; it ends well if it finds it there at the end of @order. */
static _Noreturn void be_checkpointed(int ready, int order)
{
	CUdeviceptr p;
	char byte = 0;

	open_context();
	ok(cu.cuMemAlloc_v2(&p, MIB));
	ok(launch("iota", NULL, p, 1024, 5));
	ck_assert_int_eq(write(ready, &byte, 1), 1);
	ck_assert_int_eq(read(order, &byte, 1), 1);
	ck_assert_uint_eq(word_at(p + 4092), 5 * 2654435761u + 1023);
	/* It answers the unlock before it ends. */
	ck_assert_int_eq(read(order, &byte, 1), 0);
	_exit(0);
}

START_TEST(test_checkpoint_of_another_process)
{
	char directory[] = "/tmp/cudaw-remote-XXXXXX", path[64], byte;
	CUcheckpointLockArgs lock = {.timeoutMs = 5000};
	CUprocessState state;
	int ready[2], order[2], status;
	pid_t pid;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	setenv("CUDAW_SIM_REMOTE", directory, 1);
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC) | pipe2(order, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		close(order[1]);
		be_checkpointed(ready[1], order[0]);
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	open_driver();
	fails(cu.cuCheckpointProcessGetState(pid, &state), CUDA_ERROR_NOT_INITIALIZED);
	ok(cu.cuInit(0));
	fails(cu.cuCheckpointProcessLock(getppid(), &lock), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuCheckpointProcessCheckpoint(pid, NULL), CUDA_ERROR_ILLEGAL_STATE);
	ok(cu.cuCheckpointProcessLock(pid, &lock));
	ok(cu.cuCheckpointProcessCheckpoint(pid, NULL));
	ok(cu.cuCheckpointProcessGetState(pid, &state));
	ck_assert_int_eq(state, CU_PROCESS_STATE_CHECKPOINTED);
	ck_assert_int_eq(write(order[1], &byte, 1), 1);
	usleep(50000);
	ck_assert_int_eq(waitpid(pid, &status, WNOHANG), 0);
	ok(cu.cuCheckpointProcessRestore(pid, NULL));
	ok(cu.cuCheckpointProcessUnlock(pid, NULL));
	close(order[1]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	snprintf(path, sizeof(path), "%s/%d", directory, pid);
	unlink(path);
	snprintf(path, sizeof(path), "%s/%d", directory, getpid());
	unlink(path);
	rmdir(directory);
}
END_TEST

START_TEST(test_counts_are_written)
{
	char path[] = "/tmp/sim-count-XXXXXX", text[4096] = "";
	pid_t pid;
	FILE *f;

	close(mkstemp(path));
	pid = fork();
	if (!pid) {
		CUdeviceptr p;

		setenv("CUDAW_SIM_COUNT", path, 1);
		open_context();
		ok(cu.cuMemAlloc_v2(&p, 4096));
		ok(cu.cuMemAlloc_v2(&p, 4096));
		exit(0);
	}
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	f = fopen(path, "r");
	ck_assert_uint_gt(fread(text, 1, sizeof(text) - 1, f), 0);
	fclose(f);
	unlink(path);
	ck_assert_ptr_nonnull(strstr(text, "cuMemAlloc_v2 2\n"));
	ck_assert_ptr_nonnull(strstr(text, "blocked 0\n"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated driver: memory");
	TCase *tcase = tcase_create("memory");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, test_reserve_honours_hint);
	tcase_add_test(tcase, test_memory_lives_until_released_and_unmapped);
	tcase_add_test(tcase, test_fresh_memory_is_garbage);
	tcase_add_test(tcase, test_fault_is_sticky);
	tcase_add_test(tcase, test_kernel_after_unmap_faults);
	tcase_add_test(tcase, test_allocations);
	tcase_add_test(tcase, test_small_allocations_share_blocks);
	tcase_add_test(tcase, test_few_that_are_left_hold_blocks);
	tcase_add_test(tcase, test_injected_faults);
	tcase_add_test(tcase, test_devices);
	tcase_add_test(tcase, test_peer_access_is_a_contexts);
	tcase_add_test(tcase, test_copies_between_devices);
	tcase_add_test(tcase, test_kernels_need_peer_access);
	tcase_add_test(tcase, test_devices_without_peers);
	tcase_add_test(tcase, test_checkpoint_keeps_memory_and_holds_calls);
	tcase_add_test_raise_signal(tcase, test_strict_checkpoint_aborts, SIGABRT);
	tcase_add_test(tcase, test_shared_device);
	tcase_add_test(tcase, test_shared_memory_is_told);
	tcase_add_test(tcase, test_restore_needs_memory);
	tcase_add_test(tcase, test_checkpoint_of_another_process);
	tcase_add_test(tcase, test_counts_are_written);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
