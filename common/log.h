/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_LOG_H
#define CUDAW_LOG_H
/*
 * Messages of the injected libraries. cudaw is a guest in the program's process, so by default only errors
 * reach stderr, and notices: that the program waits, or is paused, which is why it makes no progress
 * (CUDAW_NOTICES=0 silences them). CUDAW_LOG=error|warn|info|debug sets the level. CUDAW_LOG_FILE=path sets
 * the destination, which is opened for append on the first message. If the program closes that file,
 * messages are lost; so are they if nobody reads what stderr is connected to: no message waits. And so are they if
 * the program has put another file behind number 2 since we were loaded, which may be its data: unless that is a
 * terminal, or the standard output as well.
 *
 * Every file defines LOG_PREFIX ("vmem: ") before it includes this header. A message is one line
 * without a newline. Any thread may log, but not a signal handler. The process and the time in UTC come before it.
 */

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A notice. */
void log_notice(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Remember the standard error. When the library is loaded; else the first message does it. */
void log_see_stderr(void);

/* In a restored process image, where the file may be another one at the same path: open it again. */
void log_restored(void);

/* True if a message of this level would be written. For messages that are costly to make. */
int log_enabled(enum log_level level);

#define pr_err(fmt, ...)   log_msg(LOG_ERROR, LOG_PREFIX fmt, ##__VA_ARGS__)
#define pr_warn(fmt, ...)  log_msg(LOG_WARN, LOG_PREFIX fmt, ##__VA_ARGS__)
#define pr_info(fmt, ...)  log_msg(LOG_INFO, LOG_PREFIX fmt, ##__VA_ARGS__)
#define pr_debug(fmt, ...) log_msg(LOG_DEBUG, LOG_PREFIX fmt, ##__VA_ARGS__)

/* The first time that any thread comes to this line. */
#define pr_err_once(fmt, ...)                                          \
	do {                                                           \
		static int said_;                                      \
                                                                       \
		if (!__atomic_exchange_n(&said_, 1, __ATOMIC_RELAXED)) \
			pr_err(fmt, ##__VA_ARGS__);                    \
	} while (0)

#endif
