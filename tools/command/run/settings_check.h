/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SETTINGS_CHECK_H
#define CUDAW_SETTINGS_CHECK_H
/*
 * Checks the settings (common/settings.h) in the environment before a job starts: the job itself
 * logs a value that it cannot use when it comes to use it, perhaps hours later.
 */

typedef void settings_say(void *arg, const char *variable, const char *value, const char *why);

/*
 * Call @say for each setting of the environment whose value a job cannot use, with the reason; for
 * each CUDAW_* variable that is not a setting; and for a signal that this process, and so a job,
 * blocks.
 */
void settings_check(settings_say *say, void *arg);

#endif
