/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIND_LOADED_H
#define CUDAW_FIND_LOADED_H
/* The objects that this process has loaded, and how their dynamic sections name libraries. */
#include <stdbool.h>

/* The strings are the object's own. */
struct find_object {
	const char *path;    /* "" for the program */
	const char *soname;  /* NULL if it has none */
	const char *rpath;   /* DT_RPATH or NULL */
	const char *runpath; /* DT_RUNPATH or NULL */
	bool needs;          /* DT_NEEDED names the library of the search */
};

/* Call @visit for each loaded object, in the loader's order, in a search for @soname. */
void find_loaded(const char *soname, void (*visit)(const struct find_object *object, void *arg),
		 void *arg);

#endif
