/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DEMANGLE_H
#define CUDAW_DEMANGLE_H

/*
 * The C++ name, to be freed. NULL if @name is not mangled, or if libstdc++, which every C++ program
 * has, is not installed.
 */
char *demangle(const char *name);

#endif
