/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_BUILDID_H
#define CUDAW_BUILDID_H
/*
 * The GNU build-id, which tells one build of a program or library from another: a note of type
 * NT_GNU_BUILD_ID in a PT_NOTE segment (elf(5)). Only 64-bit files of this machine's byte order are
 * read. Each value of a file is checked before it is used.
 */
#include <sys/types.h>

#define BUILDID_TEXT_SIZE 65 /* usually 20 bytes, at most 32, in hexadecimal, and the zero */

/*
 * Put the build-id of the file at @path in @text, and the file's size in *@size. Returns 0;
 * -ENODATA if the file is not ELF or has no build-id (*@size is set); -EINVAL if it is not a
 * regular file, which is then not opened; or another negative errno if it cannot be read.
 */
int buildid_of_file(const char *path, char text[BUILDID_TEXT_SIZE], off_t *size);

#endif
