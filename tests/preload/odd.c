/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of an odd but valid program, on which no text and no number of ours may depend: the user's
 * locale, rounding towards infinity and traps for floating-point errors (as gfortran's -ffpe-trap sets
 * them), and few permissions for new files.
 */
#include <locale.h>
#include <sys/stat.h>

#define DEFAULT 0x1f80 /* of MXCSR; [Intel, Software Developer's Manual 1, 10.2.3] */
#define TRAPS   0x0680 /* masks of invalid operations, divisions by zero and overflows */
#define UPWARD  0x4000

__attribute__((constructor)) static void be_odd(void)
{
	setlocale(LC_ALL, "");
	__builtin_ia32_ldmxcsr((DEFAULT & ~TRAPS) | UPWARD);
	umask(0477);
}
