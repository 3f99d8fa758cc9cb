/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that denies itself a system call for good, before its first CUDA call or after it: the
 * call fails (EPERM), or, for a program without CUDA, whatever it does not need ends it.
 */
#include "tests/guests/programs/guest.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define MAX_CALLS 8

static const struct {
	const char *name;
	int calls[MAX_CALLS + 1]; /* up to a 0, which no set has: it is read() */
} sets[] = {
	{"membarrier", {SYS_membarrier}},
	{"threads", {SYS_clone, SYS_clone3}},
	{"sockets", {SYS_socket, SYS_accept, SYS_accept4, SYS_bind, SYS_listen}},
	{"files", {SYS_open, SYS_openat, SYS_creat}},
	{"processes", {SYS_fork, SYS_vfork, SYS_execve, SYS_kill, SYS_ptrace}},
	{"uring", {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register}},
	{"pipes", {SYS_pipe, SYS_pipe2, SYS_eventfd2}},
	{"locks", {SYS_flock, SYS_mlock, SYS_madvise}},
	{"scheduler", {SYS_sched_setaffinity, SYS_sched_getaffinity, SYS_setpriority}},
};

#define LOAD(field)  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)

static void install(struct sock_filter *filter, size_t length)
{
	struct sock_fprog program = {(unsigned short)length, filter};

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	/* As a sandbox does it that was told to hold all threads. */
	MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
}

static void deny(const char *name)
{
	struct sock_filter filter[2 * MAX_CALLS + 2] = {LOAD(nr)};
	size_t length = 1;

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		if (strcmp(sets[i].name, name))
			continue;
		for (const int *call = sets[i].calls; *call; call++) {
			filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
									(unsigned)*call, 0, 1);
			filter[length++] = (struct sock_filter)RETURN(SECCOMP_RET_ERRNO | EPERM);
		}
		filter[length++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
		install(filter, length);
		return;
	}
	step_die("seccomp: there is no set of calls '%s'", name);
}

static void before_cuda(const char *name)
{
	struct guest_memory memory;

	deny(name);
	guest_memory_init(&memory);
	guest_memory_point(&memory);
}

static void after_cuda(const char *name)
{
	struct guest_memory memory;

	guest_memory_init(&memory);
	guest_memory_step(&memory);
	deny(name);
	guest_memory_point(&memory);
}

static struct guest_memory shared;
static volatile int over;

static void *launch_main(void *arg)
{
	uint32_t word;

	CALL(cuCtxSetCurrent(shared.kernels.ctx));
	while (!over) {
		CALL(cuMemcpyDtoH_v2(&word, shared.data, sizeof(word)));
		CALL(cuMemsetD32_v2(shared.data, word, 1));
	}
	return arg;
}

/* Threads that were told nothing: they are inside CUDA as the filter comes, and in the pause. */
static void threads_of_cuda(const char *name)
{
	pthread_t threads[4];

	guest_memory_init(&shared);
	for (int i = 0; i < 4; i++)
		CALL(pthread_create(&threads[i], NULL, launch_main, NULL));
	deny(name);
	guest_point();
	over = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	guest_memory_step(&shared);
	guest_memory_check(&shared);
}

static void on_signal(int sig)
{
	(void)sig;
	write(STDOUT_FILENO, "handled\n", 8) < 0 ? _exit(1) : (void)0;
}

/*
 * What it allows is what it does natively, and what sigaction() does under cudaw, and natively
 * raise() and abort(): to block signals, and ask for its number. Each other system call ends it.
 */
static void strict(const char *name)
{
	static struct sock_filter filter[] = {
		LOAD(nr),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 7, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigaction, 6, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		RETURN(SECCOMP_RET_KILL_PROCESS),
		RETURN(SECCOMP_RET_ALLOW),
	};
	struct sigaction act = {.sa_handler = on_signal};
	pid_t self = getpid();

	(void)name;
	install(filter, sizeof(filter) / sizeof(filter[0]));
	write(STDOUT_FILENO, "strict\n", 7) < 0 ? _exit(1) : (void)0;
	if (sigaction(SIGTERM, &act, NULL))
		_exit(2);
	kill(self, SIGTERM);
	if (signal(SIGUSR1, on_signal) == SIG_ERR)
		_exit(3);
	kill(self, SIGUSR1);
	_exit(0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(const char *name);
	} when[] = {{"before", before_cuda},
		    {"after", after_cuda},
		    {"beside", threads_of_cuda},
		    {"strict", strict}};

	setlinebuf(stdout);
	for (size_t i = 0; argc > 1 && i < sizeof(when) / sizeof(when[0]); i++)
		if (!strcmp(when[i].name, argv[1])) {
			when[i].run(argc > 2 ? argv[2] : "");
			return 0;
		}
	step_die("usage: seccomp before|after|beside SET, or seccomp strict");
}
