/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/probe.h"

#include "common/find/find.h"
#include "common/patience.h"

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* cuInit takes some seconds on a machine with many GPUs and no persistence daemon. */
#define PROBE_MS 60000

#define FUNCTIONS(X)            \
	X(cuInit)               \
	X(cuDriverGetVersion)   \
	X(cuDeviceGetCount)     \
	X(cuDeviceGet)          \
	X(cuDeviceGetName)      \
	X(cuDeviceTotalMem_v2)  \
	X(cuDeviceGetAttribute) \
	X(cuGetErrorName)

#define MEMBER(name) __typeof__(name) *name;
struct functions {
	FUNCTIONS(MEMBER)
	MEMBER(cuDeviceGetUuid_v2) /* 11.4; may be NULL */
};
#undef MEMBER

static bool load(const char *path, struct functions *fn, struct probe *probe)
{
	void *lib = find_open_driver(path);

	if (!lib) {
		snprintf(probe->failure, sizeof(probe->failure), "it cannot be loaded: %s",
			 dlerror());
		return false;
	}
#define LOAD(name)                                                                    \
	fn->name = (__typeof__(name) *)find_function(lib, #name);                     \
	if (!fn->name) {                                                              \
		snprintf(probe->failure, sizeof(probe->failure), "it has no " #name); \
		return false;                                                         \
	}
	FUNCTIONS(LOAD)
#undef LOAD
	fn->cuDeviceGetUuid_v2 =
		(__typeof__(fn->cuDeviceGetUuid_v2))find_function(lib, "cuDeviceGetUuid_v2");
	probe->checkpoint = find_function(lib, "cuCheckpointProcessCheckpoint") != NULL;
	return true;
}

static int attribute(const struct functions *fn, CUdevice dev, CUdevice_attribute attr)
{
	int value = 0;

	return fn->cuDeviceGetAttribute(&value, attr, dev) == CUDA_SUCCESS ? value : 0;
}

static void ask_device(const struct functions *fn, int ordinal, struct probe_device *device)
{
	CUuuid uuid;
	CUdevice dev;

	if (fn->cuDeviceGet(&dev, ordinal) != CUDA_SUCCESS)
		return;
	fn->cuDeviceGetName(device->name, sizeof(device->name), dev);
	if (fn->cuDeviceGetUuid_v2 && fn->cuDeviceGetUuid_v2(&uuid, dev) == CUDA_SUCCESS)
		nvml_uuid_text(&uuid, device->uuid);
	fn->cuDeviceTotalMem_v2(&device->memory, dev);
	device->major = attribute(fn, dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	device->minor = attribute(fn, dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	device->vmm = attribute(fn, dev, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
	device->rdma =
		attribute(fn, dev, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
}

static void ask(const char *path, struct probe *probe)
{
	struct functions fn;
	const char *name = NULL;
	CUresult res;

	if (!load(path, &fn, probe))
		return;
	/* The only call that works before cuInit, and if cuInit fails. */
	fn.cuDriverGetVersion(&probe->version);
	res = fn.cuInit(0);
	if (res == CUDA_SUCCESS)
		res = fn.cuDeviceGetCount(&probe->ndevices);
	if (res != CUDA_SUCCESS) {
		fn.cuGetErrorName(res, &name);
		snprintf(probe->failure, sizeof(probe->failure), "cuInit fails with %s (%d)",
			 name ? name : "an unknown error", res);
		return;
	}
	if (probe->ndevices > PROBE_DEVICES)
		probe->ndevices = PROBE_DEVICES;
	for (int i = 0; i < probe->ndevices; i++)
		ask_device(&fn, i, &probe->devices[i]);
}

void probe_begin(struct probing *p, const char *path)
{
	int fds[2];

	*p = (struct probing){.fd = -1};
	p->shared = mmap(NULL, sizeof(*p->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p->shared == MAP_FAILED || pipe2(fds, O_CLOEXEC) < 0) {
		p->error = errno;
		return;
	}
	/* Otherwise both processes would write the buffers of stdio. */
	fflush(NULL);
	p->pid = fork();
	if (p->pid < 0)
		p->error = errno;
	if (p->pid == 0) {
		close(fds[0]);
		ask(path, p->shared);
		_exit(0);
	}
	close(fds[1]);
	p->fd = fds[0];
}

/* The child answers in shared memory, and the end of the pipe tells that it is done. */
static void await_child(struct probing *p)
{
	struct pollfd pfd = {.fd = p->fd, .events = POLLIN};
	char *failure = p->shared->failure;
	size_t size = sizeof(p->shared->failure);
	struct patience patience = {0};
	int status = 0;

	if (patience_poll(&patience, &pfd, 1, PROBE_MS) == 0)
		kill(p->pid, SIGKILL);
	while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFSIGNALED(status))
		return;
	if (WTERMSIG(status) == SIGKILL)
		snprintf(failure, size, "it does not answer");
	else
		snprintf(failure, size, "it crashes (%s)", strsignal(WTERMSIG(status)));
}

void probe_end(struct probing *p, struct probe *probe)
{
	*probe = (struct probe){0};
	if (p->error) {
		snprintf(probe->failure, sizeof(probe->failure), "%s", strerror(p->error));
	} else {
		await_child(p);
		*probe = *p->shared;
	}
	if (p->fd >= 0)
		close(p->fd);
	if (p->shared != MAP_FAILED)
		munmap(p->shared, sizeof(*p->shared));
}
