/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"
#include "common/settings.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum log_level max_level = LOG_ERROR;
static int log_fd = STDERR_FILENO;

static void setup(void)
{
	/* Not setting_word(), which logs a word that it does not know. */
	const char *level = setting_text(SETTING_LOG);
	const char *path = setting_text(SETTING_LOG_FILE);

	for (int i = LOG_ERROR; level && i <= LOG_DEBUG; i++)
		if (!strcmp(level, level_names[i]))
			max_level = i;
	if (path) {
		int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (fd >= 0)
			log_fd = fd;
	}
}

int log_enabled(enum log_level level)
{
	pthread_once(&once, setup);
	return level <= max_level;
}

void log_msg(enum log_level level, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int len;

	if (!log_enabled(level))
		return;
	/* Each line is one write(2), so that lines of several processes do not mix in one file. */
	len = snprintf(line, sizeof(line), "cudaw[%d] %s: ", getpid(), level_names[level]);
	va_start(ap, fmt);
	len += vsnprintf(line + len, sizeof(line) - len - 1, fmt, ap);
	va_end(ap);
	if (len > (int)sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	if (write(log_fd, line, len) < 0)
		return; /* there is no other place to report it */
}
