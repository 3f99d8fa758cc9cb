/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_VERSION_H
#define CUDAW_VERSION_H
/*
 * The version of cudaw, "1.2.3". One object file has it, which is made again when it changes (Makefile), and so
 * all that carries it is linked again.
 */
extern const char cudaw_version[];

#endif
