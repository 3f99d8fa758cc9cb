/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SETTINGS_H
#define CUDAW_SETTINGS_H
/*
 * The variables that jobs read, looked at before a job does: it would say what it cannot use when
 * it comes to use it, perhaps hours later.
 */

/*
 * Call @say for each that is set in the environment and cannot be used as it is, with the reason,
 * and for each CUDAW_* that is none; and for a signal that this process, and so a job, blocks.
 */
void settings_check(void (*say)(void *arg, const char *variable, const char *value,
				const char *why),
		    void *arg);

#endif
