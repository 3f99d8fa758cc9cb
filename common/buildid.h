/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_BUILDID_H
#define CUDAW_BUILDID_H
/*
 * What tells one build of a program or library from another: the GNU build-id, a note of type
 * NT_GNU_BUILD_ID in a PT_NOTE segment (elf(5)). Only 64-bit files, of this machine's byte order,
 * are read; what a file says is checked before it is believed.
 */
#include <sys/types.h>

#define BUILDID_TEXT_SIZE 65 /* 20 bytes as a rule, 32 at the most, in hexadecimal, and the zero */

/*
 * The build-id of the file at @path in @text, and its size in *@size. 0; -ENODATA where it is not
 * ELF or has none (*@size is set); or a negative errno where it cannot be read, -EINVAL where it is
 * no regular file: those are not even opened.
 */
int buildid_of_file(const char *path, char text[BUILDID_TEXT_SIZE], off_t *size);

#endif
