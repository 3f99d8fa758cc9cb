/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MEMFD_H
#define CUDAW_MEMFD_H
/* memfd_create(2) for data, which nobody executes: a system may refuse all others (sysctl vm.memfd_noexec). */
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U /* since Linux 6.3 */
#endif

/* Close-on-exec, and may be sealed. As memfd_create(2): -1 and errno after a failure. */
static inline int memfd_make(const char *name)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);

	return fd < 0 && errno == EINVAL ? memfd_create(name, flags) : fd;
}

/* The same for a file of @size bytes, sealed against another size. RLIMIT_FSIZE is a failure (EFBIG), and no signal. */
int memfd_make_sized(const char *name, size_t size);

#endif
