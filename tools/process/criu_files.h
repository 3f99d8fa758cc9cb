/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CRIU_FILES_H
#define CUDAW_CRIU_FILES_H
/*
 * What the processes of a CRIU image have open: files.img and remap-fpath.img, as CRIU 4 writes
 * them (its images/fdinfo.proto, regfile.proto, sk-unix.proto, remap-file-path.proto,
 * include/magic.h): two magic numbers, then entries of a 32-bit length and a Protocol Buffers
 * message.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct criu_file {
	char path[4096]; /* absolute */
	bool socket;     /* that CRIU makes; its directory has to be there, and is @uid's */
	uid_t uid;
	mode_t mode; /* of the inode, and with it its type; 0: not known */
	bool sized;  /* CRIU wants the size to be the same */
	uint64_t size;
};

struct criu_files {
	/* Files, directories, devices and bound sockets; no deleted ones. */
	struct criu_file *list;
	size_t n;
	bool terminal; /* a terminal is open */
};

/*
 * Read them from the directory of images that is open as @directory. 0 or a negative errno:
 * -EBADMSG where they are not as described. To be given to criu_files_free(), which takes a zeroed
 * one as well.
 */
int criu_files_read(int directory, struct criu_files *files);
void criu_files_free(struct criu_files *files);

#endif
