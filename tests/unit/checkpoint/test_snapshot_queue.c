/* SPDX-License-Identifier: Apache-2.0 */
/* Requests in flight, with a ring and without: all are done, whatever the kernel makes of them. */
#include "checkpoint/snapshot/files/io.h"
#include "checkpoint/snapshot/files/queue.h"

#include "tests/check_suite.h"
#include "tests/unit/no_uring.h"
#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE     (4 * SNAPSHOT_ALIGN)
#define REQUESTS 8

static struct snapshot_queue queue;
static struct snapshot_flight flight;
static char *memory;
static struct ownfd file;

static int new_file(void)
{
	char path[] = "/tmp/test-queue-XXXXXX";
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	unlink(path);
	return fd;
}

static void setup(void)
{
	ownfd_set(&file, new_file());
	memory = aligned_alloc(SNAPSHOT_ALIGN, REQUESTS * SIZE);
	for (size_t i = 0; i < REQUESTS * SIZE; i++)
		memory[i] = i / 7;
}

static void teardown(void)
{
	free(memory);
	close(file.fd);
}

static bool ringed; /* whether there is to be a ring */

/* A container's filter, or one of ours. */
static bool is_filtered(void)
{
	return !system("grep -q 'Seccomp:[^0]*[12]' /proc/$PPID/status");
}

static void begin(bool wanted)
{
	struct io_uring ring;

	ringed = wanted;
	if (!wanted) {
		refuse_io_uring(EPERM);
	} else if (!is_filtered() && !io_uring_queue_init(4, &ring, 0)) {
		io_uring_queue_exit(&ring);
	} else {
		ringed = false; /* this kernel does not let us */
	}
	snapshot_queue_init(&queue, 2);
}

static void *flight_main(void *work)
{
	snapshot_flight_init(&queue, &flight);
	ck_assert_int_eq(flight.ringed, ringed);
	((void (*)(void))work)();
	snapshot_flight_fini(&flight);
	return NULL;
}

/* What the tests do with the queue, in a thread that is not its owner. */
static void in_thread(void (*work)(void))
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, flight_main, (void *)work), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

static struct snapshot_request requests[REQUESTS];

static void submit_all(bool write)
{
	for (size_t i = 0; i < REQUESTS; i++) {
		requests[i] = (struct snapshot_request){.write = write,
							.file = &file,
							.data = memory + i * SIZE,
							.size = SIZE,
							.offset = i * SIZE};
		snapshot_queue_submit(&queue, &flight, &requests[i]);
	}
}

static void take_all(ssize_t result)
{
	size_t taken = 0;

	for (struct snapshot_request *r; (r = snapshot_queue_take(&queue, &flight, true)); taken++)
		ck_assert_int_eq(r->result, result);
	ck_assert_uint_eq(taken, REQUESTS);
	ck_assert_ptr_null(snapshot_queue_take(&queue, &flight, false));
}

static void write_and_read(void)
{
	char *copy = malloc(REQUESTS * SIZE);

	memcpy(copy, memory, REQUESTS * SIZE);
	submit_all(true);
	take_all(SIZE);
	memset(memory, 0, REQUESTS * SIZE);
	submit_all(false);
	take_all(SIZE);
	ck_assert_int_eq(memcmp(copy, memory, REQUESTS * SIZE), 0);
	free(copy);
}

START_TEST(all_are_done)
{
	begin(_i);
	in_thread(write_and_read);
	ck_assert_uint_eq(queue.bytes, 0);
	ck_assert_uint_eq(queue.done, 2 * REQUESTS * SIZE);
	snapshot_queue_fini(&queue);
}
END_TEST

/* It would be the program's end, for a system call that it never made. */
START_TEST(no_filter_is_provoked)
{
	filter_io_uring(SECCOMP_RET_KILL_PROCESS);
	ck_assert(is_filtered());
	begin(true);
	in_thread(write_and_read);
	snapshot_queue_fini(&queue);
}
END_TEST

static void read_past_the_end(void)
{
	submit_all(true);
	take_all(SIZE);
	ck_assert_int_eq(ftruncate(file.fd, REQUESTS * SIZE - 100), 0);
	submit_all(false);
	for (struct snapshot_request *r; (r = snapshot_queue_take(&queue, &flight, true));)
		ck_assert_int_eq(r->result, r == &requests[REQUESTS - 1] ? SIZE - 100 : SIZE);
}

START_TEST(a_short_read_says_how_much)
{
	begin(_i);
	in_thread(read_past_the_end);
	snapshot_queue_fini(&queue);
}
END_TEST

static void write_to_nowhere(void)
{
	struct ownfd good = file;

	ownfd_set(&file, open("/dev/full", O_WRONLY));
	submit_all(true);
	take_all(-ENOSPC);
	close(file.fd);
	submit_all(true);
	take_all(-EBADF);
	file = good;
}

START_TEST(errors_are_told)
{
	begin(_i);
	in_thread(write_to_nowhere);
	snapshot_queue_fini(&queue);
}
END_TEST

/* The program has closed ours, and its own has the number. */
static void write_when_another_has_the_number(void)
{
	int other = new_file();

	ck_assert_int_eq(dup2(other, file.fd), file.fd);
	submit_all(true);
	take_all(-EBADF);
	ck_assert_int_eq(lseek(other, 0, SEEK_END), 0);
	close(other);
}

START_TEST(nothing_goes_into_another_file)
{
	begin(_i);
	in_thread(write_when_another_has_the_number);
	snapshot_queue_fini(&queue);
}
END_TEST

/* The limit lies in the middle of a request: it is done in part, and then refused. */
static void write_beyond_the_limit(void)
{
	struct rlimit limit = {2 * SIZE + SNAPSHOT_ALIGN, RLIM_INFINITY};

	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	submit_all(true);
	for (struct snapshot_request *r; (r = snapshot_queue_take(&queue, &flight, true));)
		ck_assert_int_eq(r->result, r < requests + 2 ? (ssize_t)SIZE : -EFBIG);
}

START_TEST(a_size_limit_is_an_error)
{
	sigset_t size_limit;

	sigemptyset(&size_limit);
	sigaddset(&size_limit, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &size_limit, NULL);
	begin(_i);
	in_thread(write_beyond_the_limit);
	snapshot_queue_fini(&queue);
}
END_TEST

/* A program that closes all descriptors takes the ring with them. */
static void write_after_the_ring_is_gone(void)
{
	close(flight.ring.ring_fd);
	write_and_read();
	ck_assert(flight.broken);
}

START_TEST(a_ring_that_breaks_is_done_without)
{
	begin(true);
	if (ringed)
		in_thread(write_after_the_ring_is_gone);
	snapshot_queue_fini(&queue);
}
END_TEST

/* So nothing of a ring can stay in the caller's thread. */
START_TEST(its_owner_gets_no_ring)
{
	begin(true);
	snapshot_flight_init(&queue, &flight);
	ck_assert(!flight.ringed);
	ck_assert_uint_eq(snapshot_flight_depth(&queue, &flight), 1);
	submit_all(true);
	/* It is done when it is submitted. */
	for (size_t i = 0; i < REQUESTS; i++)
		ck_assert_ptr_nonnull(snapshot_queue_take(&queue, &flight, false));
	snapshot_flight_fini(&flight);
	snapshot_queue_fini(&queue);
}
END_TEST

static void fork_and_look(void)
{
	pid_t child;
	int status;

	child = fork();
	if (!child)
		_exit(!system("ls -l /proc/$PPID/fd | grep -q io_uring") ||
		      !system("grep -q io_uring /proc/$PPID/maps"));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	if (ringed)
		ck_assert_int_eq(system("ls -l /proc/$PPID/fd | grep -q io_uring"), 0);
}

START_TEST(a_child_does_not_have_the_ring)
{
	begin(true);
	in_thread(fork_and_look);
	snapshot_queue_fini(&queue);
}
END_TEST

static void submit_and_look(void)
{
	submit_all(true);
	take_all(SIZE);
}

START_TEST(one_thread_needs_no_ring)
{
	begin(true);
	queue.threads = 1;
	ringed = false;
	in_thread(submit_and_look);
	snapshot_queue_fini(&queue);
}
END_TEST

static void read_until_there_is_a_rate(void)
{
	double start = clock_ms() / 1e3, rate;

	do {
		submit_all(false);
		take_all(SIZE);
		rate = queue.rate;
		ck_assert(!rate || clock_ms() / 1e3 - start >= 0.1);
	} while (!rate);
}

START_TEST(bursts_make_no_rate)
{
	begin(_i);
	in_thread(write_and_read);
	queue.rate = queue.done = queue.busy = 0;
	in_thread(read_until_there_is_a_rate);
	snapshot_queue_fini(&queue);
}
END_TEST

static void known(size_t bytes, double rate)
{
	queue.bytes = bytes;
	queue.rate = rate;
}

START_TEST(time_is_spared_only_where_the_disk_has_work)
{
	size_t mib = 1 << 20;

	snapshot_queue_init(&queue, 4);
	/* Nothing is known of the disk. */
	known(16 * mib, 0);
	ck_assert(!snapshot_queue_spares(&queue, 2 * mib, 0.001));
	/* 1 GiB/s: 32 MiB are 31.25 ms of it. */
	known(32 * mib, 1024 * mib);
	ck_assert(snapshot_queue_spares(&queue, 2 * mib, 0.0078));
	ck_assert(!snapshot_queue_spares(&queue, 2 * mib, 0.0079));
	/* Idle: four threads with 2 MiB in 3.9 ms each make 2 GiB/s. */
	known(0, 1024 * mib);
	ck_assert(snapshot_queue_spares(&queue, 2 * mib, 0.0038));
	ck_assert(!snapshot_queue_spares(&queue, 2 * mib, 0.0040));
	/* The first one is still being measured. */
	ck_assert(!snapshot_queue_spares(&queue, 2 * mib, 0));
	snapshot_queue_fini(&queue);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("snapshot_queue");
	TCase *tc = tcase_create("snapshot_queue");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, all_are_done, 0, 2);
	tcase_add_test(tc, no_filter_is_provoked);
	tcase_add_loop_test(tc, a_short_read_says_how_much, 0, 2);
	tcase_add_loop_test(tc, errors_are_told, 0, 2);
	tcase_add_loop_test(tc, nothing_goes_into_another_file, 0, 2);
	tcase_add_loop_test(tc, a_size_limit_is_an_error, 0, 2);
	tcase_add_test(tc, a_ring_that_breaks_is_done_without);
	tcase_add_test(tc, its_owner_gets_no_ring);
	tcase_add_test(tc, a_child_does_not_have_the_ring);
	tcase_add_test(tc, one_thread_needs_no_ring);
	tcase_add_loop_test(tc, bursts_make_no_rate, 0, 2);
	tcase_add_test(tc, time_is_spared_only_where_the_disk_has_work);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
