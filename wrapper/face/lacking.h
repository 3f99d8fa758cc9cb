/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_LACKING_H
#define CUDAW_WRAPPER_LACKING_H
/*
 * The exports that the real driver lacks, if it is older than our list: dlsym() does not find them, as it does not
 * natively.
 *
 * The loader finds a function by the table of symbols in our own library, in memory that nobody else reads: there a
 * symbol without a value counts as absent (elf/dl-lookup.c). So nothing stands between the program and dlsym(), which
 * answers with the loader's own error.
 *
 * When the face is loaded, the file of the driver that find.h finds says which these are: the driver itself is not
 * loaded into programs that make no CUDA call. The first call says it again, of the driver that is then loaded: it may
 * be another one, which the program has opened by a path.
 */
/* Read the driver's file. If there is none, all exports stay. */
void lacking_by_file(void);

/* Let dlsym() find the exports whose @found, in the order of the list, is not NULL. Not in two threads at once. */
void lacking_by_driver(void *const found[]);

#endif
