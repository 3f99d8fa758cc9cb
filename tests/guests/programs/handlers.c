/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each way to set a signal handler: which one was there before, as whom the handler runs (mask,
 * flags, arguments), whether a system call is restarted, and what is there afterwards. For signals
 * that cudaw handles, and for others.
 */
#include "tests/guests/programs/guest.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SA_RESTORER_BIT 0x04000000

static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD};
static volatile int *handled; /* of the program and its children */
static volatile sig_atomic_t calls, depth, deepest, blocked_itself, blocked_winch, with_info;

static void note(int sig)
{
	sigset_t mask;

	calls++;
	if (++depth > deepest)
		deepest = depth;
	sigprocmask(SIG_BLOCK, NULL, &mask);
	blocked_itself = sigismember(&mask, sig);
	blocked_winch = sigismember(&mask, SIGWINCH);
	if (calls == 1)
		raise(sig);
	depth--;
}

static void on_signal(int sig)
{
	note(sig);
}

static void on_info(int sig, siginfo_t *info, void *context)
{
	with_info = info && context && info->si_signo == sig && info->si_pid == getpid();
	note(sig);
}

static void other(int sig)
{
	(void)sig;
}

static const char *name_of(__sighandler_t handler)
{
	if (handler == on_signal || handler == (__sighandler_t)(void *)on_info)
		return "ours";
	if (handler == other)
		return "other";
	if (handler == SIG_HOLD)
		return "hold";
	return handler == SIG_DFL   ? "default"
	       : handler == SIG_IGN ? "ignore"
	       : handler == SIG_ERR ? "error"
				    : "unknown";
}

static void say_action(const char *when, int sig)
{
	struct sigaction act;

	MUST(sigaction(sig, NULL, &act));
	printf("  %s: %s, flags %#x, mask %d%d\n", when, name_of(act.sa_handler),
	       (unsigned)act.sa_flags & ~SA_RESTORER_BIT, sigismember(&act.sa_mask, sig),
	       sigismember(&act.sa_mask, SIGWINCH));
}

/* Set, look, raise twice where it stays, look again. */
static void show(int sig, const char *before)
{
	calls = depth = deepest = with_info = 0;
	printf("signal %d: was %s\n", sig, before);
	say_action("set", sig);
	raise(sig);
	printf("  %d calls, %d deep, itself %s, WINCH %s, information %d\n", (int)calls,
	       (int)deepest, blocked_itself ? "blocked" : "free",
	       blocked_winch ? "blocked" : "free", (int)with_info);
	say_action("after", sig);
}

static const char *act_with(int sig, struct sigaction act)
{
	struct sigaction old;

	MUST(sigaction(sig, &act, &old));
	return name_of(old.sa_handler);
}

static const char *by_sigaction(int sig)
{
	return act_with(sig, (struct sigaction){.sa_handler = on_signal});
}

static const char *by_siginfo(int sig)
{
	return act_with(sig, (struct sigaction){.sa_sigaction = on_info, .sa_flags = SA_SIGINFO});
}

static const char *by_nodefer(int sig)
{
	return act_with(sig, (struct sigaction){.sa_handler = on_signal, .sa_flags = SA_NODEFER});
}

static const char *by_restart(int sig)
{
	return act_with(sig, (struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART});
}

static const char *by_mask(int sig)
{
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};

	sigaddset(&act.sa_mask, SIGWINCH);
	return act_with(sig, act);
}

/* The nested raise() waits until the handler is done, and finds nothing then: for the default to
 * spare the program, the signal is ignored in between. */
static void on_once(int sig)
{
	calls++;
	say_action("inside", sig);
	signal(sig, SIG_IGN);
	raise(sig);
}

static const char *by_signal(int sig)
{
	return name_of(signal(sig, on_signal));
}

static const char *by_ssignal(int sig)
{
	return name_of(ssignal(sig, on_signal));
}

static const char *by_sigset(int sig)
{
	return name_of(sigset(sig, on_signal));
}

struct kernel_action {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

/* As Go's runtime and some allocators do it: glibc never knows. */
static const char *by_system_call(int sig)
{
	struct kernel_action act = {0}, old;

	/* What glibc gives for a restorer is good for ours, too. */
	MUST(syscall(SYS_rt_sigaction, SIGURG, NULL, &act, sizeof(act.mask)));
	act.handler = on_signal;
	MUST(syscall(SYS_rt_sigaction, sig, &act, &old, sizeof(act.mask)));
	return "not looked at";
}

static const struct {
	const char *name;
	const char *(*set)(int sig);
} ways[] = {
	{"sigaction", by_sigaction}, {"siginfo", by_siginfo}, {"nodefer", by_nodefer},
	{"restart", by_restart},     {"mask", by_mask},       {"signal", by_signal},
	{"ssignal", by_ssignal},     {"sigset", by_sigset},   {"raw", by_system_call},
};

static void set_each(const char *(*set)(int sig))
{
	signal(SIGURG, other);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		const char *before = set(signals[i]);

		show(signals[i], before);
		show(signals[i], set(signals[i]));
		printf("  before the default: %s\n", name_of(signal(signals[i], SIG_DFL)));
		say_action("reset", signals[i]);
		printf("  before another: %s\n", set(signals[i]));
		printf("  before being ignored: %s\n", name_of(signal(signals[i], SIG_IGN)));
		raise(signals[i]);
		show(signals[i], set(signals[i]));
	}
}

static void one_shot(void)
{
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		int sig = signals[i];

		calls = 0;
		printf("signal %d: was %s\n", sig,
		       act_with(sig, (struct sigaction){.sa_handler = on_once,
							.sa_flags = SA_RESETHAND}));
		say_action("set", sig);
		raise(sig);
		printf("  %d calls\n", (int)calls);
		say_action("after", sig);
		printf("  was %s\n", name_of(sysv_signal(sig, on_once)));
		raise(sig);
		printf("  %d calls\n", (int)calls);
		say_action("after", sig);
	}
}

/* One-shot, and then raised again: the default must end it. */
static void one_shot_twice(void)
{
	sysv_signal(SIGTERM, other);
	raise(SIGTERM);
	puts("once");
	raise(SIGTERM);
}

static void held(void)
{
	sigset_t pending;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		int sig = signals[i];

		calls = 1;
		printf("signal %d: was %s\n", sig, name_of(sigset(sig, on_signal)));
		printf("  was %s\n", name_of(sigset(sig, SIG_HOLD)));
		raise(sig);
		sigpending(&pending);
		printf("  %d calls, pending %d\n", (int)calls - 1, sigismember(&pending, sig));
		MUST(sigrelse(sig));
		printf("  %d calls\n", (int)calls - 1);
		MUST(sighold(sig));
		printf("  was %s\n", name_of(sigset(sig, other)));
		MUST(sigignore(sig));
		raise(sig);
		printf("  was %s\n", name_of(sigset(sig, SIG_DFL)));
	}
}

/* Until the program sleeps: it does nothing else here than to read. */
static void await_sleep(pid_t pid)
{
	char path[32], stat[512], *end;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	do {
		step_sleep_ms(1);
		file = fopen(path, "r");
		if (!file || !fgets(stat, sizeof(stat), file))
			_exit(1);
		fclose(file);
		end = strrchr(stat, ')');
	} while (!end || end[2] != 'S');
}

static void on_counted(int sig)
{
	(void)sig;
	++*handled;
}

/* A child sends @sig once read() waits, and a byte once that was handled. */
static void interrupted_by(const char *how, int sig, int is_handled)
{
	pid_t self = getpid(), child;
	int fds[2];
	char byte;
	ssize_t got;

	*handled = 0;
	MUST(pipe(fds));
	child = fork();
	if (!child) {
		await_sleep(self);
		kill(self, sig);
		while (is_handled && !*handled)
			step_sleep_ms(1);
		await_sleep(self);
		_exit(write(fds[1], "", 1) < 0);
	}
	MUST(child);
	got = read(fds[0], &byte, 1);
	printf("%s, signal %d: read() says %zd, %s\n", how, sig, got,
	       got < 0 ? strerrorname_np(errno) : "a byte");
	kill(child, SIGKILL);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	close(fds[0]);
	close(fds[1]);
}

static void restarts(void)
{
	handled = mmap(NULL, sizeof(*handled), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (handled == MAP_FAILED)
		step_die("handlers: mmap: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		int sig = signals[i];

		signal(sig, on_counted);
		interrupted_by("signal()", sig, 1);
		siginterrupt(sig, 1);
		interrupted_by("siginterrupt(1)", sig, 1);
		siginterrupt(sig, 0);
		interrupted_by("siginterrupt(0)", sig, 1);
		act_with(sig, (struct sigaction){.sa_handler = on_counted});
		interrupted_by("sigaction()", sig, 1);
		signal(sig, SIG_IGN);
		interrupted_by("ignored", sig, 0);
		sigset(sig, on_counted);
		interrupted_by("sigset()", sig, 1);
		signal(sig, SIG_DFL);
	}
}

static void wrong(void)
{
	struct sigaction act = {.sa_handler = other};

	for (int sig = -1; sig <= 65; sig += sig == 0 ? 8 : sig == 19 ? 13 : 1) {
		if (sig != -1 && sig != 0 && sig != SIGKILL && sig != SIGSTOP && sig != 32 &&
		    sig != 33 && sig != 65)
			continue;
		errno = 0;
		printf("sigaction(%d) says %d, %s", sig, sigaction(sig, &act, NULL),
		       strerrorname_np(errno));
		errno = 0;
		printf("; signal(%d) says %s, %s\n", sig, name_of(signal(sig, other)),
		       strerrorname_np(errno));
	}
	errno = 0;
	printf("signal(SIGTERM, SIG_ERR) says %s, ", name_of(signal(SIGTERM, SIG_ERR)));
	puts(strerrorname_np(errno));
	say_action("then", SIGTERM);
}

/* Nobody has set a handler. */
static void by_default(void)
{
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		int status;
		pid_t child = fork();

		if (!child) {
			raise(signals[i]);
			_exit(0);
		}
		MUST(waitpid(child, &status, 0));
		printf("signal %d: a child ended with %#x\n", signals[i], status);
	}
}

int main(int argc, char **argv)
{
	static const struct guest_way others[] = {
		{"one-shot", one_shot}, {"one-shot-twice", one_shot_twice},
		{"held", held},         {"restarts", restarts},
		{"wrong", wrong},       {"default", by_default},
	};

	setlinebuf(stdout);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (argc > 1 && !strcmp(ways[i].name, argv[1])) {
			set_each(ways[i].set);
			return 0;
		}
	GUEST_RUN(others, argc, argv);
	return 0;
}
