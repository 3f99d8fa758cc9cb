/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/demangle.h"

#include "kparams/kparams.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

char *demangle(const char *name)
{
	static char *(*function)(const char *name, char *buf, size_t *size, int *status);
	static bool looked;
	const char *part = kp_mangled_part(name);
	int status;

	if (!looked) {
		void *libstdcxx = dlopen("libstdc++.so.6", RTLD_NOW);

		if (libstdcxx)
			*(void **)&function = dlsym(libstdcxx, "__cxa_demangle");
		looked = true;
	}
	if (!function || strncmp(part, "_Z", 2))
		return NULL;
	return function(part, NULL, NULL, &status);
}
