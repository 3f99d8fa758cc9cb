/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRAMP_H
#define CUDAW_TRAMP_H
/*
 * How a face exports hundreds of functions without knowing their arguments.
 *
 * gen_exports.py turns an export list into an assembly file. Every exported function jumps through its slot of a
 * table, so that a bound call costs that jump and changes no register:
 *
 *	cudaMalloc:  sub $0, %rsp
 *	             sub $0, %rsp
 *	             jmp *libcudart_targets+8*i(%rip)
 *
 * The subtractions do nothing. They are for libraries that patch functions, as UCX patches those of
 * the driver that allocate: such a library writes a jump of 5, 12 or 13 bytes over the first
 * instructions, and runs these elsewhere. It can only move instructions that it knows. UCX knows what
 * compilers begin functions with, and of that, "sub imm32, %rsp" in all versions; it knows neither a
 * jump nor endbr64 (no program has indirect branch tracking on Linux, nor are the faces marked for it).
 * The first subtraction has 7 bytes, so that a thread is never in the middle of the 5 that a near jump
 * overwrites. On AArch64 there are four instructions "nop" for that, 16 bytes.
 *
 * A slot starts out as the address of a stub that saves the argument registers, calls FACE_bind()
 * and jumps through the slot again. Nothing is therefore loaded before the program's first call,
 * and a process that never uses CUDA pays for the mapping, and for a look at the driver's file (lacking.h).
 *
 * FACE_bind() is written by the face. It must
 *	- store a function in every slot, with tramp_set(): a slot that is left calls it every time;
 *	- allow several threads at once, and a call from a constructor under the loader's lock.
 * FACE_exports[] are the addresses of the exported functions themselves: a call of one goes to the
 * function that is in the slot at that time.
 *
 * Slots have no lock, and only the jump reads them; a store of eight aligned bytes is seen whole or
 * not at all, and what was written before it is seen with it: on AArch64 the jump reads with acquire semantics.
 *
 * Every generated file also carries the ELF note "cudaw" by which find.c knows a face.
 */

#define TRAMP_FACE(face)                                                           \
	extern void *face##_targets[] __attribute__((visibility("hidden")));       \
	extern void *const face##_exports[] __attribute__((visibility("hidden"))); \
	void face##_bind(void) __attribute__((visibility("hidden")))

TRAMP_FACE(libcuda);
TRAMP_FACE(libcudart);
TRAMP_FACE(libnvml);

/* The names in the order of the slots: const char *names[] = {LIBCUDA_EXPORTS(TRAMP_NAME)}; */
#define TRAMP_NAME(name) #name,

static inline void tramp_set(void **slot, void *function)
{
	__atomic_store_n(slot, function, __ATOMIC_RELEASE);
}

#endif
