/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/signal_name.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static int parse(const char *text)
{
	char *end;
	long number = strtol(text, &end, 10);

	if (!strcmp(text, "none"))
		return 0;
	if (*text && !*end)
		return number > 0 && number < NSIG ? (int)number : -1;
	if (!strncmp(text, "SIG", 3))
		text += 3;
	if (!strncmp(text, "RTMIN+", 6)) {
		number = SIGRTMIN + strtol(text + 6, &end, 10);
		return *end || number > SIGRTMAX ? -1 : (int)number;
	}
	for (int sig = 1; sig < SIGRTMIN; sig++) {
		const char *name = sigabbrev_np(sig);

		if (name && !strcmp(name, text))
			return sig;
	}
	return -1;
}

int signal_parse(const char *text)
{
	int sig = parse(text);

	return sig == SIGKILL || sig == SIGSTOP ? -1 : sig;
}
