/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/signals/signals_reach.h"
#include "checkpoint/control/signals/signals.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TASKS "/proc/self/task"
#define LOOKS 3

/* Read the file @name of thread @tid; empty if the thread has ended. */
static const char *read_of(const char *tid, const char *name, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), TASKS "/%.16s/%s", tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, size - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

/* True if a thread waits for the signal in sigwait() or its like: no mask shows it meanwhile. */
static bool waits_for(const char *tid, uint64_t bit)
{
	char text[256];
	unsigned long number, set_at;
	uint64_t set = 0;
	bool waits;
	int fd;

	if (sscanf(read_of(tid, "syscall", text, sizeof(text)), "%lu %lx", &number, &set_at) != 2 ||
	    number != SYS_rt_sigtimedwait)
		return false;
	/* The thread may go on meanwhile, and its memory go away. */
	fd = open("/proc/thread-self/mem", O_RDONLY | O_CLOEXEC);
	waits = fd >= 0 && pread(fd, &set, sizeof(set), (off_t)set_at) == sizeof(set) && set & bit;
	if (fd >= 0)
		close(fd);
	return waits;
}

/* True if the handler may run in that thread, or if the thread cannot be read. */
static bool takes(const char *tid, uint64_t bit)
{
	char text[4096];
	const char *line = strstr(read_of(tid, "status", text, sizeof(text)), "\nSigBlk:");

	if (line && strtoull(line + strlen("\nSigBlk:"), NULL, 16) & bit)
		return false;
	return !waits_for(tid, bit);
}

static bool any_thread_takes(int sig)
{
	DIR *dir = opendir(TASKS);
	bool found = !dir;
	struct dirent *entry;

	while (!found && (entry = readdir(dir)))
		found = entry->d_name[0] != '.' && takes(entry->d_name, UINT64_C(1) << (sig - 1));
	if (dir)
		closedir(dir);
	return found;
}

/* Why @sig does not reach our handler; NULL: it does. */
static const char *look_at(int sig)
{
	if (!signals_is_installed(sig))
		return "the program set its action by a system call of its own";
	if (signals_is_the_programs(sig))
		return "the program has a handler for it";
	return any_thread_takes(sig) ? NULL : "all threads of the program block it, or wait for it";
}

bool signals_unreachable(char *text, size_t size)
{
	static const char *const does[] = {[WISH_PAUSE] = "pause", [WISH_RESUME] = "resume"};
	const char *why, *name;
	char number[12];
	int sig;

	for (enum signal_wish wish = WISH_PAUSE; wish <= WISH_RESUME; wish++) {
		sig = signals_for(wish);
		why = sig ? look_at(sig) : NULL;
		for (int i = 1; why && i < LOOKS; i++) {
			usleep(SIGNALS_REACH_MS * 1000 / (LOOKS - 1));
			why = look_at(sig);
		}
		if (!why)
			continue;
		name = sigabbrev_np(sig);
		snprintf(number, sizeof(number), "%d", sig);
		snprintf(text, size, "signal %s does not %s this process: %s; 'cudaw %s' does",
			 name ? name : number, does[wish], why, does[wish]);
		return true;
	}
	return false;
}
