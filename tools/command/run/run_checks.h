/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RUN_CHECKS_H
#define CUDAW_RUN_CHECKS_H
/* What 'cudaw run' looks at before it becomes the program. */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* Find @cmd as execvp(3) does. False: it is not found, which execvp reports. */
bool run_find_program(const char *cmd, char *path, size_t size);

/* Warn if the loader will ignore LD_PRELOAD for @cmd: it runs, but cannot be paused. */
void run_warn_of_program(const char *cmd);

/*
 * False after a message if the job of @cmd could never be paused: as above, or without a runtime directory or a driver.
 * The driver is not asked.
 */
bool run_can_be_paused(const char *cmd);

/* Warn if a job that runs has this name; if no GPU of this machine has as much memory as CUDAW_MEM says. */
void run_warn_of_name(const char *name);
void run_warn_of_memory(void);

/*
 * Prepare what this process becomes for snapshots: without io_uring (a filter of system calls, which a process
 * without CAP_SYS_ADMIN gets with no_new_privs alone: it cannot gain rights, as by sudo), and with variables that its
 * libraries read, unless they are set. Warn of standard streams that are in the way, and of a filter that cannot be
 * made.
 */
void run_prepare_snapshots(void);

/*
 * Why the user's jobs cannot make their sockets in their runtime directory, whose path is put in @path; NULL: they can,
 * and in *@there whether it is made already. Valid until the thread's next call of rundir_open().
 */
const char *run_check_directory(char path[PATH_MAX], bool *there);

#endif
