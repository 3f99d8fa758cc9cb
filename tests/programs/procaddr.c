/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For each NAME: where cuGetProcAddress_v2(NAME) leads. "face" is an exported function of the libcuda.so.1 that the
 * program was started with, "inside" any other address in it, "other" the real one, "none" neither.
 *
 *	procaddr NAME...
 */
#include <cuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *where(void *address, const char *face)
{
	Dl_info info;

	if (!address || !dladdr(address, &info))
		return "none";
	if (strcmp(info.dli_fname, face))
		return "other";
	return info.dli_saddr == address ? "face" : "inside";
}

int main(int argc, char **argv)
{
	void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	Dl_info face;

	if (!self || !dladdr(dlsym(self, "cuInit"), &face) || cuInit(0))
		return 1;
	for (int i = 1; i < argc; i++) {
		CUdriverProcAddressQueryResult status;
		void *fn = NULL;

		if (cuGetProcAddress_v2(argv[i], &fn, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &status))
			fn = NULL;
		printf("%s %s\n", argv[i], where(fn, face.dli_fname));
	}
	return 0;
}
