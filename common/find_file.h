/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIND_FILE_H
#define CUDAW_FIND_FILE_H
/* One candidate of the search (find.h): whether a file is the real library. */
#include "common/find.h"

#include <stdbool.h>

#define FIND_RUNTIME_STEM "libcudart.so."

/* True if @soname is a CUDA runtime's; otherwise it is the driver's. */
bool find_is_runtime(const char *soname);

/* Read the file at @path, a candidate for @soname. Never waits, whatever kind of file it is. */
enum find_state find_file_state(const char *path, const char *soname);

#endif
