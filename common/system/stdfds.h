/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_STDFDS_H
#define CUDAW_STDFDS_H
/*
 * The numbers of the standard streams, while a library that is not ours may open files: they are the program's. If it
 * has closed one, a file that stays open there would take it, and the program's next file would get another number.
 * Our own files are moved (uncancelled.c). Another thread of the program that opens a file meanwhile gets another
 * number, too, and what it puts at one of these stays.
 */
#include "common/system/ownfd.h"

struct stdfds {
	struct ownfd places[3];
};

/* Put an empty file at each of the numbers that is free. */
void stdfds_occupy(struct stdfds *stdfds);

/* Take these files away. */
void stdfds_release(struct stdfds *stdfds);

#endif
