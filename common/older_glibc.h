/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OLDER_GLIBC_H
#define CUDAW_OLDER_GLIBC_H
/*
 * Lets that which is built with a new glibc load with an old one. The Makefile includes this file
 * before all else (-include).
 *
 * Since glibc 2.38, _GNU_SOURCE makes <stdlib.h>, <inttypes.h>, <stdio.h> and <wchar.h> replace
 * strtol(), sscanf() and their kin by C23's forms, such as __isoc23_strtol(). An older glibc does
 * not have these. glibc asks this macro, whose name changed in 2.40, behind <features.h>.
 */
#include <features.h>

#undef __GLIBC_USE_C2X_STRTOL
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#define __GLIBC_USE_C23_STRTOL 0

#endif
