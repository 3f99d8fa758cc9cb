/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WAKE_H
#define CUDAW_WAKE_H
/*
 * The pipe that wakes the control thread: a byte in it means "look around". Signal handlers and
 * threads of operations write; the control thread reads. The program may close its descriptors, and
 * a process image has other files in their place (ownfd.h).
 *
 * All calls are made by the control thread, except wake_up() and wake_close() in a fork's child.
 */
#include <stdbool.h>

/* Make the pipe. 0 or a negative errno; then there is none, and nothing wakes the thread. */
int wake_open(void);
void wake_close(void);

/* Wake the control thread, if there is a pipe. Any thread, and signal handlers. errno stays. */
void wake_up(void);

/* The end to poll; -1: none. */
int wake_reader(void);

/* Read all that is in the pipe. */
void wake_drain(void);

/* True if the program has closed an end, or if there is no pipe. */
bool wake_is_lost(void);

/* In a process image that was started again: both descriptors are ours. */
void wake_take_restored(void);

#endif
