/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DEMANGLE_H
#define CUDAW_DEMANGLE_H

/*
 * The name as C++ has it, to be freed. NULL where it is not mangled, or libstdc++, which every C++
 * program has, is not there.
 */
char *demangle(const char *name);

#endif
