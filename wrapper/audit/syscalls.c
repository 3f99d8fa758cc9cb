/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What common/find/find_file.c takes from libc, for the auditor, which has none (audit.c). The program's errno
 * is not touched. The loader's lock guards ours. The calls are those that the loader makes itself to open a
 * library: a seccomp filter of the program's that lets it load one lets us look at it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int error;

int *__errno_location(void)
{
	return &error;
}

#if defined(__x86_64__)
static long system_call(long number, long a, long b, long c, long d)
{
	register long fourth __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
static long system_call(long number, long a, long b, long c, long d)
{
	register long which __asm__("x8") = number;
	register long first __asm__("x0") = a;
	register long second __asm__("x1") = b;
	register long third __asm__("x2") = c;
	register long fourth __asm__("x3") = d;

	__asm__ volatile("svc #0"
			 : "+r"(first)
			 : "r"(which), "r"(second), "r"(third), "r"(fourth)
			 : "memory");
	return first;
}
#else
#error "the system calls of the auditor exist for x86-64 and AArch64 only"
#endif

static long call(long number, long a, long b, long c, long d)
{
	long result = system_call(number, a, b, c, d);

	if (result >= 0)
		return result;
	error = -result;
	return -1;
}

int open(const char *path, int flags, ...)
{
	return call(SYS_openat, AT_FDCWD, (long)path, flags, 0);
}

int close(int fd)
{
	return call(SYS_close, fd, 0, 0, 0);
}

char *getcwd(char *buf, size_t size)
{
	return call(SYS_getcwd, (long)buf, (long)size, 0, 0) < 0 ? NULL : buf;
}

int fstat(int fd, struct stat *st)
{
	return call(SYS_newfstatat, fd, (long)"", (long)st, AT_EMPTY_PATH);
}

ssize_t pread(int fd, void *buf, size_t size, off_t offset)
{
	return call(SYS_pread64, fd, (long)buf, size, offset);
}

void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((char *)to)[i] = ((const char *)from)[i];
	return to;
}

void *memset(void *to, int byte, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((char *)to)[i] = (char)byte;
	return to;
}

int memcmp(const void *a, const void *b, size_t size)
{
	const unsigned char *x = a, *y = b;

	for (size_t i = 0; i < size; i++)
		if (x[i] != y[i])
			return x[i] - y[i];
	return 0;
}

size_t strlen(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}

int strncmp(const char *a, const char *b, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (a[i] != b[i] || !a[i])
			return (unsigned char)a[i] - (unsigned char)b[i];
	return 0;
}

int strcmp(const char *a, const char *b)
{
	return strncmp(a, b, (size_t)-1);
}

char *strchr(const char *s, int c)
{
	for (;; s++) {
		if (*s == (char)c)
			return (char *)s;
		if (!*s)
			return NULL;
	}
}
