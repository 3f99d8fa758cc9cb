/* SPDX-License-Identifier: Apache-2.0 */
/* The exported functions can be patched: by libraries that know few instructions, and while threads call them. */
#include "libcuda_names.h"
#include "wrapper/face/tramp.h"

#include "tests/check_suite.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const names[] = {LIBCUDA_EXPORTS(TRAMP_NAME)};
#define NEXPORTS (sizeof(names) / sizeof(names[0]))

#define NEAR 5  /* a jump to within 2 GiB: e9 and four bytes */
#define FAR  13 /* a jump to anywhere: mov $imm64, %r11; jmp *%r11 */

/*
 * The length of an instruction that UCX can move since 1.11, the first release that patches the driver's
 * functions, or 0: push and pop; sub imm32, %rsp; mov %rsp, %rbp (src/ucm/bistro/bistro_x86_64.c).
 */
static size_t known(const uint8_t *code)
{
	if ((code[0] & 0xf0) == 0x50)
		return 1;
	if (code[0] == 0x41 && (code[1] & 0xf0) == 0x50)
		return 2;
	if (!memcmp(code, "\x48\x81\xec", 3))
		return 7;
	return memcmp(code, "\x48\x89\xe5", 3) ? 0 : 3;
}

START_TEST(first_instructions_are_known)
{
	for (size_t i = 0; i < NEXPORTS; i++) {
		const uint8_t *code = libcuda_exports[i];

		/* A thread is before the near jump or behind it, never in its middle. */
		ck_assert_msg(known(code) >= NEAR, "the first instruction of %s", names[i]);
		for (size_t at = 0, size; at < FAR; at += size) {
			size = known(code + at);
			ck_assert_msg(size, "the instruction at %s+%zu", names[i], at);
		}
	}
}
END_TEST

#define THREADS 4

static int (*moved)(int);
static unsigned long hooked;
static bool ended;

static int bound(int n)
{
	return n + 1;
}

static int hook(int n)
{
	__atomic_fetch_add(&hooked, 1, __ATOMIC_RELAXED);
	return moved(n);
}

static void *call(void *arg)
{
	int (*function)(int) = (int (*)(int))libcuda_exports[0];
	unsigned long before;
	int n = 0;

	(void)arg;
	while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE))
		n = function(n) & 0xffff;
	before = __atomic_load_n(&hooked, __ATOMIC_RELAXED);
	ck_assert_int_eq(function(n), n + 1);
	ck_assert_uint_gt(__atomic_load_n(&hooked, __ATOMIC_RELAXED), before);
	return NULL;
}

/* The first instruction of @code, and a jump to the second. */
static void *move(const uint8_t *code)
{
	size_t size = known(code);
	const uint8_t *rest = code + size;
	uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(page, MAP_FAILED);
	memcpy(page, code, size);
	memcpy(page + size, "\xff\x25\0\0\0\0", 6); /* jmp *0(%rip) */
	memcpy(page + size + 6, &rest, sizeof(rest));
	return page;
}

/*
 * As UCX does it: threads that come wait in a jump to itself, until the rest of the near jump stands. TSan cannot
 * note what is written to code.
 */
__attribute__((no_sanitize("thread"))) static void patch(uint8_t *code, void *to)
{
	volatile uint8_t *at = code;
	int32_t distance = (int32_t)((uint8_t *)to - (code + NEAR));
	uint8_t jump[NEAR] = {0xe9};
	uint16_t head;

	memcpy(jump + 1, &distance, sizeof(distance));
	__atomic_store_n((uint16_t *)code, 0xfeeb, __ATOMIC_SEQ_CST);
	usleep(1000);
	for (size_t i = sizeof(head); i < NEAR; i++)
		at[i] = jump[i];
	memcpy(&head, jump, sizeof(head));
	__atomic_store_n((uint16_t *)code, head, __ATOMIC_SEQ_CST);
}

START_TEST(patched_while_threads_call)
{
	uint8_t *code = libcuda_exports[0];
	uint8_t *page = (uint8_t *)((uintptr_t)code & -4096UL);
	pthread_t threads[THREADS];

	tramp_set(&libcuda_targets[0], (void *)bound);
	moved = (int (*)(int))move(code);
	ck_assert_int_eq(mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
	for (size_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, call, NULL), 0);
	patch(code, (void *)hook);
	while (!__atomic_load_n(&hooked, __ATOMIC_RELAXED))
		sched_yield();
	__atomic_store_n(&ended, true, __ATOMIC_RELEASE);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tramp");
	TCase *tcase = tcase_create("patching");

	tcase_add_test(tcase, first_instructions_are_known);
	tcase_add_test(tcase, patched_while_threads_call);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
