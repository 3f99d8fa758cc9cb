/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIDELITY_DESCRIPTORS_H
#define CUDAW_FIDELITY_DESCRIPTORS_H
/*
 * The cases of fidelity.c about memory that is exported as file descriptors, which keep it: alone, and with
 * the opener of fidelity_ipc.h.
 */
#include "tests/programs/descriptors.h"

#define POSIX_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

/* A place for the program's own memory, and what is mapped there. */
struct mapped {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
};

static void mapped_map(struct mapped *m)
{
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev},
					CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	CALL(cuMemAddressReserve(&m->at, IPC_SIZE, 0, 0, 0));
	CALL(cuMemMap(m->at, IPC_SIZE, 0, m->handle, 0));
	CALL(cuMemSetAccess(m->at, IPC_SIZE, &access, 1));
}

static void mapped_free(struct mapped *m)
{
	CALL(cuMemUnmap(m->at, IPC_SIZE));
	CALL(cuMemAddressFree(m->at, IPC_SIZE));
	CALL(cuMemRelease(m->handle));
}

static struct mapped mapped_new(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes = POSIX_FD,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev}};
	struct mapped m;

	CALL(cuMemCreate(&m.handle, IPC_SIZE, &prop, 0));
	mapped_map(&m);
	CALL(cuMemsetD32(m.at, IPC_VALUE, IPC_SIZE / 4));
	CALL(cuCtxSynchronize());
	return m;
}

static int ask_export(const char *question, CUmemGenericAllocationHandle handle)
{
	int fd = -1;

	say_result(question, cuMemExportToShareableHandle(&fd, handle, POSIX_FD, 0));
	return fd;
}

/* False: it cannot be imported. */
static bool ask_import(const char *question, int fd, struct mapped *m)
{
	CUresult result =
		cuMemImportFromShareableHandle(&m->handle, (void *)(intptr_t)fd, POSIX_FD);

	say_result(question, result);
	if (result)
		return false;
	mapped_map(m);
	say_word("  its words", m->at);
	return true;
}

static void say_freed(size_t before)
{
	size_t after, total;

	CALL(cuMemGetInfo(&after, &total));
	say("with all descriptors closed its memory is free: %s", after >= before ? "yes" : "no");
}

static void case_descriptors(void)
{
	struct mapped first = mapped_new(), second, third;
	int fd = ask_export("an export", first.handle), again;
	size_t before, total;

	CALL(cuMemGetInfo(&before, &total));
	mapped_free(&first);
	if (ask_import("an import once all else is freed", fd, &second)) {
		close(fd);
		again = ask_export("an export of the import", second.handle);
		mapped_free(&second);
		if (ask_import("an import of that, with all else freed", again, &third)) {
			if (ask_import("  twice", again, &second))
				mapped_free(&second);
			close(again);
			say_word("  its words, with the descriptor closed", third.at);
			mapped_free(&third);
		}
	}
	say_freed(before + IPC_SIZE);
	first = mapped_new();
	fd = ask_export("a second export", first.handle);
	if (ask_import("an import by its own process", fd, &second)) {
		close(fd);
		mapped_free(&first);
		say_word("  its words, with the original freed", second.at);
		fd = ask_export("an export of it", second.handle);
		if (ask_import("an import of that", fd, &third))
			mapped_free(&third);
		mapped_free(&second);
		close(fd);
	}
	say_freed(before + IPC_SIZE);
}

static void descriptor_send(int to, int fd)
{
	if (!descriptors_send(to, "d", 1, &fd, 1))
		say("the other process: gone");
	close(fd);
}

static int descriptor_receive(int from)
{
	char byte;
	int fd;

	if (!descriptors_receive(from, &byte, 1, &fd, 1) || fd < 0)
		step_die("fidelity: the other process is gone");
	return fd;
}

/* In the opener: once the other one has freed what it exported, and once more of what it has still. */
static void case_descriptors_opener(void)
{
	struct mapped m, own;
	int fd, again;

	ipc_send(STDIN_FILENO, "c", 1);
	fd = descriptor_receive(STDIN_FILENO);
	if (ask_import("an import once its exporter has freed it", fd, &m))
		mapped_free(&m);
	close(fd);
	ipc_pass(STDIN_FILENO);
	fd = descriptor_receive(STDIN_FILENO);
	if (!ask_import("an import of what its exporter has", fd, &m))
		return;
	close(fd);
	again = ask_export("its export", m.handle);
	mapped_free(&m);
	ipc_pass(STDIN_FILENO);
	if (ask_import("an import of that once its first exporter has freed it", again, &own))
		mapped_free(&own);
	close(again);
	ipc_pass(STDIN_FILENO);
}

static void case_descriptors_two(void)
{
	size_t before, total;
	struct mapped m;
	char byte;

	opener_start("descriptors_opener");
	/* It has its context, which takes memory. */
	ipc_receive(opener_socket, &byte, 1);
	m = mapped_new();
	CALL(cuMemGetInfo(&before, &total));
	descriptor_send(opener_socket, ask_export("an export", m.handle));
	mapped_free(&m);
	ipc_receive(opener_socket, &byte, 1);
	ipc_send(opener_socket, "p", 1);
	m = mapped_new();
	descriptor_send(opener_socket, ask_export("a second export", m.handle));
	ipc_receive(opener_socket, &byte, 1);
	mapped_free(&m);
	ipc_send(opener_socket, "p", 1);
	ipc_receive(opener_socket, &byte, 1);
	say_freed(before + IPC_SIZE);
	ipc_send(opener_socket, "p", 1);
	opener_end();
}

#endif
