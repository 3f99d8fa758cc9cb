/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FORKS_H
#define CUDAW_FORKS_H
/*
 * The children of this process: which functions run in them, and whose memory this is.
 *
 * fork() copies the memory while other threads change it: a lock that one of them holds stays
 * locked in the child for ever. So each lock of ours that lives as long as the process is declared
 * by FORKS_LOCK or FORKS_LOCK_IN, and the child initialises it again. A module that has more to
 * forget declares a function by FORKS_CHILD. These are entries of a section of the library: nothing
 * is registered at run time, and no module calls another by name.
 *
 * The functions run in no particular order, in the child's only thread, and may do only what a
 * signal handler may do. No lock of ours is taken before a fork(), since a signal handler of the
 * program may fork while its thread holds that lock.
 *
 * The children of vfork(), posix_spawn() and clone(CLONE_VM) share our memory. No function runs in
 * them, and they must not change our data, which is the parent's. Their PID tells them apart. CUDA
 * calls do not check it: such a child cannot use CUDA natively either.
 */
#include <pthread.h>
#include <stdbool.h>

struct forks_entry {
	pthread_mutex_t *lock; /* to be initialised again, or NULL */
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

/* Called once, when the library is loaded. */
void forks_watch(void);

/* True if this memory is the calling process's own. Async-signal-safe. */
bool forks_is_ours(void);

/*
 * The same, for rare calls: memory that was copied by the system call, without fork(), becomes the
 * caller's own, as in the child of a fork().
 */
bool forks_adopt(void);

/*
 * For a descriptor that the child's functions close, but learn of only some time after it is made:
 * forks_came_since(a mark from before) says whether a child may have it without knowing.
 */
unsigned long forks_mark(void);
bool forks_came_since(unsigned long mark);

#endif
