/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIND_FILE_H
#define CUDAW_FIND_FILE_H
/* One candidate of the search (find.h): whether a file is the real library. */
#include "common/find/find.h"

#include <stdbool.h>

#define FIND_RUNTIME_STEM "libcudart.so."

/* True if @soname is a CUDA runtime's; otherwise it is the driver's. */
bool find_is_runtime(const char *soname);

/* Read the file at @path, a candidate for @soname. Never waits, whatever kind of file it is. */
enum find_state find_file_state(const char *path, const char *soname);

/*
 * True if the file at @path is a driver, real or a face, by its DT_SONAME: its name may be any. The auditor
 * asks this about each library that the program loads (wrapper/audit/audit.c): it takes little of the stack.
 */
bool find_file_is_driver(const char *path);

#endif
