/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of an odd but valid program, on which no text and no number of ours may depend: the user's
 * locale, rounding towards infinity and traps for floating-point errors (as gfortran's -ffpe-trap sets
 * them), few permissions for new files, an environment from which it has taken the
 * settings, and a name that it gives itself before its first call.
 */
#include <dlfcn.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT 0x1f80 /* of MXCSR; [Intel, Software Developer's Manual 1, 10.2.3] */
#define TRAPS   0x0680 /* masks of invalid operations, divisions by zero and overflows */
#define UPWARD  0x4000

/* Those of the simulated driver stay. */
static void forget_settings(void)
{
	char **to = environ;

	for (char **from = environ; *from; from++)
		if (strncmp(*from, "CUDAW_", 6) || !strncmp(*from, "CUDAW_SIM_", 10))
			*to++ = *from;
	*to = NULL;
	setenv("CUDAW_NAME", "odd", 1);
}

__attribute__((constructor)) static void be_odd(void)
{
	if (dlsym(RTLD_DEFAULT, "cuInit")) /* not in the command that starts the program */
		forget_settings();
	setlocale(LC_ALL, "");
	__builtin_ia32_ldmxcsr((DEFAULT & ~TRAPS) | UPWARD);
	umask(0477);
}
