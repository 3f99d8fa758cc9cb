/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a job: makes what asks the system for memory, threads, descriptors and space on
 * disk fail once, where cudaw's driver face is the caller. The program's own calls, the C library's
 * and the driver's are left alone: a call counts by the return address.
 *
 * FAILALLOC names the file that the test and this library share (struct control, which says what is
 * to fail, and counts), FAILALLOC_LIBRARY the driver face. Without them nothing fails.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off */
#define CALLS(X) \
	X(malloc) X(calloc) X(realloc) X(reallocarray) X(posix_memalign) X(mmap) X(madvise) \
	X(pthread_create) X(openat) X(fdopen) X(pipe2) X(socket) X(accept4) \
	X(clone) X(fallocate) X(pwrite) X(pread)
/* clang-format on */

enum call {
#define CALL_NUMBER(name) CALL_##name,
	CALLS(CALL_NUMBER) NCALLS
};

/* Read and written by the test with struct.unpack("=4I") and, for each call, "=28sI". */
struct control {
	uint32_t armed; /* count, and fail */
	uint32_t call;  /* the one that fails */
	uint32_t nth;   /* which of its calls, from 1; 0: none */
	uint32_t hits;  /* how many failed */
	struct {
		char name[28];
		uint32_t count;
	} calls[NCALLS];
};

#define EXPORT __attribute__((visibility("default")))
/* The function that comes after ours. dlsym() allocates nothing where it finds the name. */
#define NEXT(name)                                                          \
	({                                                                  \
		static __typeof__(&name) next_;                             \
		if (!next_)                                                 \
			next_ = (__typeof__(next_))dlsym(RTLD_NEXT, #name); \
		next_;                                                      \
	})
#define FAILS(name) fails(CALL_##name, (uintptr_t)__builtin_return_address(0))

static struct control *control;
static uintptr_t face_start, face_end;

static bool fails(enum call call, uintptr_t caller)
{
	uint32_t n;

	if (!control || caller < face_start || caller >= face_end ||
	    !__atomic_load_n(&control->armed, __ATOMIC_RELAXED))
		return false;
	n = __atomic_add_fetch(&control->calls[call].count, 1, __ATOMIC_RELAXED);
	if (control->call != call || control->nth != n)
		return false;
	__atomic_add_fetch(&control->hits, 1, __ATOMIC_RELAXED);
	return true;
}

/* A call that fails by errno. */
static bool fails_with(enum call call, uintptr_t caller, int error)
{
	bool failed = fails(call, caller);

	if (failed)
		errno = error;
	return failed;
}
#define FAILS_WITH(name, error) \
	fails_with(CALL_##name, (uintptr_t)__builtin_return_address(0), error)

EXPORT void *malloc(size_t size)
{
	return FAILS_WITH(malloc, ENOMEM) ? NULL : NEXT(malloc)(size);
}

EXPORT void *calloc(size_t count, size_t size)
{
	return FAILS_WITH(calloc, ENOMEM) ? NULL : NEXT(calloc)(count, size);
}

EXPORT void *realloc(void *old, size_t size)
{
	return FAILS_WITH(realloc, ENOMEM) ? NULL : NEXT(realloc)(old, size);
}

EXPORT void *reallocarray(void *old, size_t count, size_t size)
{
	return FAILS_WITH(reallocarray, ENOMEM) ? NULL : NEXT(reallocarray)(old, count, size);
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t size)
{
	return FAILS(posix_memalign) ? ENOMEM : NEXT(posix_memalign)(out, alignment, size);
}

EXPORT void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	return FAILS_WITH(mmap, ENOMEM) ? MAP_FAILED
					: NEXT(mmap)(at, size, protection, flags, fd, offset);
}

EXPORT int madvise(void *start, size_t size, int advice)
{
	return FAILS_WITH(madvise, ENOMEM) ? -1 : NEXT(madvise)(start, size, advice);
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			  void *arg)
{
	return FAILS(pthread_create) ? EAGAIN : NEXT(pthread_create)(thread, attr, start, arg);
}

static mode_t mode_after(int flags, va_list ap)
{
	return flags & O_CREAT ? va_arg(ap, mode_t) : 0;
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = mode_after(flags, ap);
	va_end(ap);
	return FAILS_WITH(openat, EMFILE) ? -1 : NEXT(openat)(dir, path, flags, mode);
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
	return FAILS_WITH(fdopen, ENOMEM) ? NULL : NEXT(fdopen)(fd, mode);
}

EXPORT int pipe2(int fds[2], int flags)
{
	return FAILS_WITH(pipe2, EMFILE) ? -1 : NEXT(pipe2)(fds, flags);
}

EXPORT int socket(int domain, int type, int protocol)
{
	return FAILS_WITH(socket, EMFILE) ? -1 : NEXT(socket)(domain, type, protocol);
}

EXPORT int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
	return FAILS_WITH(accept4, EMFILE) ? -1 : NEXT(accept4)(fd, address, size, flags);
}

/* The face gives no more than four arguments. */
EXPORT int clone(int (*start)(void *), void *stack, int flags, void *arg, ...)
{
	return FAILS_WITH(clone, EAGAIN) ? -1 : NEXT(clone)(start, stack, flags, arg);
}

EXPORT int fallocate(int fd, int mode, off_t offset, off_t size)
{
	return FAILS_WITH(fallocate, ENOSPC) ? -1 : NEXT(fallocate)(fd, mode, offset, size);
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
	return FAILS_WITH(pwrite, ENOSPC) ? -1 : NEXT(pwrite)(fd, data, size, offset);
}

EXPORT ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
	return FAILS_WITH(pread, EIO) ? -1 : NEXT(pread)(fd, data, size, offset);
}

static int find_face(struct dl_phdr_info *info, size_t size, void *name)
{
	(void)size;
	if (strcmp(info->dlpi_name, name))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
			continue;
		face_start = info->dlpi_addr + segment->p_vaddr;
		face_end = face_start + segment->p_memsz;
	}
	return 1;
}

__attribute__((constructor)) static void failalloc_init(void)
{
	static const char *const names[] = {
#define CALL_NAME(name) #name,
		CALLS(CALL_NAME)};
	const char *file = getenv("FAILALLOC"), *library = getenv("FAILALLOC_LIBRARY");
	int fd = file && library ? open(file, O_RDWR | O_CLOEXEC) : -1;
	struct control *shared;

	if (fd < 0 || !dl_iterate_phdr(find_face, (void *)library))
		return;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (shared == MAP_FAILED)
		return;
	for (size_t i = 0; i < NCALLS; i++)
		strcpy(shared->calls[i].name, names[i]);
	control = shared;
}
