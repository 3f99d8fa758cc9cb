/* SPDX-License-Identifier: Apache-2.0 */
/* A library that opens others, for opening.c: the loader searches its DT_RUNPATH, $ORIGIN/beside. */
#include <dlfcn.h>

void *opener_open(const char *name, int flags);

/* No tail call: the loader looks at the return address. */
void *opener_open(const char *name, int flags)
{
	void *volatile library = dlopen(name, flags);

	return library;
}
