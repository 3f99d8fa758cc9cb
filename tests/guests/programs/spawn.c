/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with signal handlers starts another one, in each of the ways that there are. Some
 * children share its memory until they exec, and reset the handlers in themselves before that; the
 * program has its own as before, its memory on the GPU as well.
 */
#include "tests/guests/programs/guest.h"

#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>

#define STACK (256 << 10)

extern char **environ;

static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
#define NSIGNALS (sizeof(signals) / sizeof(signals[0]))

static char *const true_args[] = {"true", NULL};
static volatile sig_atomic_t got, child_got;
static char stack[STACK] __attribute__((aligned(64)));

static void on_signal(int sig)
{
	(void)sig;
	got++;
}

static void on_signal_of_child(int sig)
{
	(void)sig;
	child_got++;
}

static void say_status(pid_t pid)
{
	int status;

	MUST(waitpid(pid, &status, __WALL));
	if (WIFSIGNALED(status))
		printf("the child ended by signal %d\n", WTERMSIG(status));
	else
		printf("the child exited with %d\n", WEXITSTATUS(status));
}

/* As a careful program does it, and Python's subprocess. */
static void reset_and_exec(void)
{
	struct sigaction act = {.sa_handler = SIG_DFL};

	for (size_t i = 0; i < NSIGNALS; i += 2)
		signal(signals[i], SIG_DFL);
	for (size_t i = 1; i < NSIGNALS; i += 2)
		sigaction(signals[i], &act, NULL);
	execv("/bin/true", true_args);
	_exit(127);
}

static void ignore_and_exec(void)
{
	for (size_t i = 0; i < NSIGNALS; i++)
		signal(signals[i], SIG_IGN);
	execv("/bin/true", true_args);
	_exit(127);
}

static void reset_and_raise(void)
{
	signal(SIGTERM, SIG_DFL);
	raise(SIGTERM);
	_exit(1);
}

static void handle_and_raise(void)
{
	for (size_t i = 0; i < NSIGNALS; i++) {
		signal(signals[i], on_signal_of_child);
		raise(signals[i]);
	}
	_exit(child_got == NSIGNALS ? 0 : 1);
}

static void raise_as_it_is(void)
{
	for (size_t i = 0; i < NSIGNALS; i++)
		raise(signals[i]);
	_exit(got == NSIGNALS ? 0 : 1);
}

static int reset_main(void *arg)
{
	(void)arg;
	reset_and_exec();
	return 0;
}

static int raise_main(void *arg)
{
	(void)arg;
	reset_and_raise();
	return 0;
}

static void by_vfork(void (*child)(void))
{
	pid_t pid = vfork();

	if (!pid)
		child();
	MUST(pid);
	say_status(pid);
}

static void by_clone(int (*child)(void *), int flags)
{
	pid_t pid = clone(child, stack + sizeof(stack), flags | SIGCHLD, NULL);

	MUST(pid);
	say_status(pid);
}

static void vfork_reset(void)
{
	by_vfork(reset_and_exec);
}

static void vfork_ignore(void)
{
	by_vfork(ignore_and_exec);
}

static void vfork_raise(void)
{
	by_vfork(reset_and_raise);
}

static void vfork_handle(void)
{
	by_vfork(handle_and_raise);
}

static void vfork_as_is(void)
{
	by_vfork(raise_as_it_is);
	got = 0;
}

static void clone_vfork(void)
{
	by_clone(reset_main, CLONE_VM | CLONE_VFORK);
}

static void clone_vm(void)
{
	by_clone(reset_main, CLONE_VM);
}

static void clone_vm_raise(void)
{
	by_clone(raise_main, CLONE_VM);
}

static void clone_plain(void)
{
	by_clone(raise_main, 0);
}

static void by_fork(void)
{
	pid_t pid = fork();

	if (!pid)
		handle_and_raise();
	MUST(pid);
	say_status(pid);
}

static void by_posix_spawn(void)
{
	posix_spawnattr_t attr;
	sigset_t all;
	pid_t pid;

	sigfillset(&all);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setsigmask(&attr, &all);
	CALL(posix_spawnp(&pid, "true", NULL, &attr, true_args, environ));
	posix_spawnattr_destroy(&attr);
	say_status(pid);
}

static void by_system(void)
{
	printf("system() says %#x\n", system("kill -TERM $$"));
}

static void by_popen(void)
{
	FILE *pipe = popen("echo from a pipe", "r");
	char line[64];

	if (!pipe || !fgets(line, sizeof(line), pipe))
		step_die("popen: %s", strerror(errno));
	printf("%s", line);
	printf("pclose() says %#x\n", pclose(pipe));
}

static void check_handlers(void)
{
	struct sigaction act;

	for (size_t i = 0; i < NSIGNALS; i++) {
		MUST(sigaction(signals[i], NULL, &act));
		printf("the handler of signal %d is %s\n", signals[i],
		       act.sa_handler == on_signal ? "there" : "lost");
		kill(getpid(), signals[i]);
	}
	printf("%d signals of %zu were handled\n", (int)got, NSIGNALS);
}

int main(int argc, char **argv)
{
	static const struct guest_way ways[] = {
		{"vfork", vfork_reset},
		{"vfork-ignore", vfork_ignore},
		{"vfork-raise", vfork_raise},
		{"vfork-handle", vfork_handle},
		{"vfork-as-is", vfork_as_is},
		{"clone-vfork", clone_vfork},
		{"clone-vm", clone_vm},
		{"clone-vm-raise", clone_vm_raise},
		{"clone", clone_plain},
		{"fork", by_fork},
		{"posix-spawn", by_posix_spawn},
		{"system", by_system},
		{"popen", by_popen},
	};
	static struct guest_memory memory;
	int uses_cuda = argc > 2 && !strcmp(argv[2], "cuda");

	for (size_t i = 0; i < NSIGNALS; i++)
		signal(signals[i], on_signal);
	if (uses_cuda)
		guest_memory_init(&memory);
	GUEST_RUN(ways, argc, argv);
	if (uses_cuda) {
		guest_memory_step(&memory);
		guest_point();
		guest_memory_step(&memory);
	} else {
		check_handlers();
	}
	if (uses_cuda)
		guest_memory_check(&memory);
	/* The default ends it: nothing that ours left behind may be in the way. */
	signal(SIGTERM, SIG_DFL);
	raise(SIGTERM);
	return 1;
}
