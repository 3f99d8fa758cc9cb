/* SPDX-License-Identifier: Apache-2.0 */
/* System V IPC, sessions and process groups that are in the way of an image of processes. */
#include "tests/unit/tools/outside_world.h"

#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

START_TEST(memory_that_criu_does_not_take)
{
	int id = shmget(IPC_PRIVATE, 4096, 0600);

	ck_assert_ptr_ne(shmat(id, NULL, 0), (void *)-1);
	ck_assert_int_eq(shmctl(id, IPC_RMID, NULL), 0);
	ck_assert_msg(is_refused_for("has System V shared memory"), "%s", why);
	ck_assert(!is_a_reason("has used the System V shared memory", getpid(), NULL));
}
END_TEST

static int make_memory(void)
{
	int id = shmget(IPC_PRIVATE, 4096, 0600);

	ck_assert_int_eq(shmdt(shmat(id, NULL, 0)), 0);
	return id;
}

static int make_message_queue(void)
{
	const struct {
		long type;
		char text;
	} message = {1, 'x'};
	int id = msgget(IPC_PRIVATE, 0600);

	ck_assert_int_eq(msgsnd(id, &message, sizeof(message.text), 0), 0);
	return id;
}

static int make_semaphores(void)
{
	struct sembuf add = {.sem_num = 1, .sem_op = 1};
	int id = semget(IPC_PRIVATE, 2, 0600);

	ck_assert_int_eq(semop(id, &add, 1), 0);
	return id;
}

static int remove_memory(int id)
{
	return shmctl(id, IPC_RMID, NULL);
}

static int remove_message_queue(int id)
{
	return msgctl(id, IPC_RMID, NULL);
}

static int remove_semaphores(int id)
{
	return semctl(id, 0, IPC_RMID);
}

static const struct {
	int (*make)(void);
	int (*remove)(int id);
	const char *text;
} unattached[] = {
	{make_memory, remove_memory, "shared memory %d (shmget)"},
	{make_message_queue, remove_message_queue, "message queue %d (msgget)"},
	{make_semaphores, remove_semaphores, "semaphores %d (semget)"},
};

/* Whether it was the last process to use it. */
START_TEST(what_is_not_attached_is_found)
{
	int id = unattached[_i].make(), status;
	bool found, of_another;
	char text[64];

	snprintf(text, sizeof(text), unattached[_i].text, id);
	found = is_a_reason(text, getpid(), NULL);
	if (!fork())
		_exit(is_a_reason(text, getpid(), NULL));
	ck_assert_int_gt(wait(&status), 0);
	of_another = status;
	ck_assert_int_eq(unattached[_i].remove(id), 0);
	ck_assert(found && !of_another);
	ck_assert(!is_a_reason(text, getpid(), NULL));
}
END_TEST

/*
 * In a process that leads a session and has nothing open: whether a process in its session is refused
 * once the parent of that has ended. An exit status.
 */
static int refuses_an_orphan(void)
{
	pid_t between;
	int refused;

	setsid();
	close_range(0, ~0U, 0);
	if (!is_refused_for("") || *why)
		return 2;
	between = fork();
	if (!between) {
		if (!fork())
			while (pause())
				;
		_exit(0);
	}
	waitpid(between, NULL, 0);
	refused = is_refused_for("which the job has, but is not below its first process");
	signal(SIGUSR1, SIG_IGN);
	kill(0, SIGUSR1); /* the orphan, which is in its group */
	return !refused;
}

START_TEST(processes_of_the_session_are_below_it)
{
	int status;
	pid_t leader = fork();

	if (!leader)
		_exit(refuses_an_orphan());
	ck_assert_int_eq(waitpid(leader, &status, 0), leader);
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

/* Of a process that has begun a session and has made this one since it was looked at. An exit status. */
static int is_found_outside(void)
{
	pid_t late;
	int ends[2];

	setsid();
	close_range(0, ~0U, 0);
	find_tree();
	if (pipe(ends))
		return 2;
	late = fork();
	if (!late)
		while (pause())
			;
	*why = '\0';
	outside_find(&tree, (pid_t[]){getpid()}, 1, &ports, NULL, keep_first, NULL);
	kill(late, SIGKILL);
	return *why ? 1 : 0;
}

START_TEST(one_that_it_has_made_meanwhile_is_not_outside)
{
	int status;
	pid_t leader = fork();

	if (!leader)
		_exit(is_found_outside());
	ck_assert_int_eq(waitpid(leader, &status, 0), leader);
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

/* Have a child, and leave its session. */
static void leave_child_behind(void)
{
	if (!fork())
		wait_for_signal(NULL);
	setsid();
}

/* Adopt the child of a process that has begun a session and has ended. */
static void adopt(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!fork()) {
		setsid();
		if (!fork())
			while (pause())
				;
		_exit(0);
	}
	wait(NULL);
}

/* In a process whose child does that, and then it itself: only a child of a child is in the way. An exit status. */
static int refuses_what_has(void (*happened)(void))
{
	static const char text[] = ": a restore could not put it there";
	char session[80];
	int fds[2], status;
	char byte;

	snprintf(session, sizeof(session), "is in the session %d, which the job has", getsid(0));

	ck_assert_int_eq(pipe(fds), 0);
	if (!fork()) {
		happened();
		ck_assert_int_eq(write(fds[1], "x", 1), 1);
		wait_for_signal(NULL);
	}
	ck_assert_int_eq(read(fds[0], &byte, 1), 1);
	status = !is_a_reason(text, getpid(), NULL);
	status |= is_a_reason(session, getpid(), NULL) ? 2 : 0;
	end_children();
	wait(NULL);
	happened();
	status |= is_a_reason(text, getpid(), NULL) ? 4 : 0;
	/* What it has left, others are in, too. */
	status |= is_a_reason(session, getpid(), NULL) != (happened == leave_child_behind) ? 8 : 0;
	end_children();
	return status;
}

START_TEST(processes_are_in_sessions_that_can_be_made)
{
	int status;
	pid_t child = fork();

	if (!child)
		_exit(refuses_what_has(_i ? adopt : leave_child_behind));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("outside_ids");
	TCase *tc = tcase_create("outside_ids");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, memory_that_criu_does_not_take);
	tcase_add_loop_test(tc, what_is_not_attached_is_found, 0,
			    sizeof(unattached) / sizeof(unattached[0]));
	tcase_add_test(tc, processes_of_the_session_are_below_it);
	tcase_add_test(tc, one_that_it_has_made_meanwhile_is_not_outside);
	tcase_add_loop_test(tc, processes_are_in_sessions_that_can_be_made, 0, 2);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
