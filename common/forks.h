/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_VMEM_FORKS_H
#define CUDAW_VMEM_FORKS_H
/*
 * The children of this process: what runs in them, and whose memory this is.
 *
 * fork() copies the memory as other threads have it just then: a lock that one of them holds stays
 * locked in the child for ever. So each lock of ours that lives as long as the process is declared
 * by FORKS_LOCK or FORKS_LOCK_IN, and is made anew in the child. A module that has more to forget
 * has a function for it, by FORKS_CHILD. These are entries of a section of the library: nothing is
 * registered at run time, and no module calls another one by name.
 *
 * The functions run in no certain order, in the child's only thread, and may do what a signal
 * handler may do. No lock of ours is taken before a fork(): a handler of the program may fork while
 * its thread has that lock.
 *
 * The children of vfork(), posix_spawn() and clone(CLONE_VM) share our memory. No function runs in
 * them, and they must not change anything of ours, as that would change it in the parent. They are
 * known by their PID. CUDA calls do not look at it: such a child cannot use CUDA natively either.
 */
#include <pthread.h>
#include <stdbool.h>

struct forks_entry {
	pthread_mutex_t *lock; /* to be made anew, or NULL */
	void (*child)(void);   /* to be called, or NULL */
};

#define FORKS_ENTRY(name)                    \
	static const struct forks_entry name \
		__attribute__((section("cudaw_forks"), used, aligned(8)))

/* A static lock @name. */
#define FORKS_LOCK(name)                                         \
	static pthread_mutex_t name = PTHREAD_MUTEX_INITIALIZER; \
	FORKS_ENTRY(forks_##name) = {.lock = &name}

/* The lock @member of the static struct @object. */
#define FORKS_LOCK_IN(object, member) \
	FORKS_ENTRY(forks_##object##_##member) = {.lock = &object.member}

#define FORKS_CHILD(function) FORKS_ENTRY(forks_##function) = {.child = function}

/* Once, when the library is loaded. */
void forks_watch(void);

/* Whether this memory is the calling process's own. Async-signal-safe. */
bool forks_is_ours(void);

/*
 * The same, for calls that are rare: a copy of the memory that was made without fork(), by the
 * system call, becomes the caller's own, as in the child of a fork().
 */
bool forks_adopt(void);

/*
 * For a descriptor that the child's functions are to close, and that they know only some time after
 * it was made: forks_came_since(a mark from before that) says whether a child may have it unknown.
 */
unsigned long forks_mark(void);
bool forks_came_since(unsigned long mark);

#endif
