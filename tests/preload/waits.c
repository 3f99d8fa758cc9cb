/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library whose constructor has the loader's lock until the program lets it go on: it writes a
 * byte to the second descriptor in TEST_WAITS, and reads one from the first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void construct(void)
{
	const char *fds = getenv("TEST_WAITS");
	int from, to;
	char byte = 0;

	if (!fds || sscanf(fds, "%d %d", &from, &to) != 2 || write(to, &byte, 1) != 1 ||
	    read(from, &byte, 1) != 1)
		abort();
}
