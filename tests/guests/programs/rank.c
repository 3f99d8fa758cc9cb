/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a job whose launcher (mpirun) waits for it, gives it its stdin and tells it of signals.
 */
#include "tests/guests/programs/guest.h"

#include <fcntl.h>

static volatile sig_atomic_t told;

static void on_signal(int sig)
{
	told = sig;
}

static const char *rank(void)
{
	const char *text = getenv("OMPI_COMM_WORLD_RANK");

	return text ? text : "alone";
}

/* The rank of that number has come as far as the others, who wait for it here. */
static void await_rank(const char *number)
{
	const char *directory = getenv("TMPDIR");
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/guest-rank-%d-%s", directory ? directory : "/tmp",
		 (int)getppid(), number);
	if (!strcmp(rank(), number)) {
		MUST(fd = open(path, O_CREAT | O_WRONLY, 0600));
		close(fd);
	} else {
		while (unlink(path))
			step_sleep_ms(1);
	}
}

/* All have made their first calls when the first one says where it is. */
static void memory_of_a_rank(void)
{
	struct guest_memory memory;

	guest_memory_init(&memory);
	await_rank("0");
	await_rank("1");
	printf("rank %s\n", rank());
	guest_memory_point(&memory);
}

/* The launcher ends the other one, which has said its name. */
static void fails(void)
{
	printf("rank %s\n", rank());
	fflush(stdout);
	await_rank("0");
	if (!strcmp(rank(), "1"))
		exit(3);
	step_sleep_ms(60000);
}

/* The launcher passes SIGUSR2 on to both, once both handle it. */
static void is_told(void)
{
	signal(SIGUSR2, on_signal);
	printf("rank %s\n", rank());
	fflush(stdout);
	await_rank("1");
	if (!strcmp(rank(), "0"))
		kill(getppid(), SIGUSR2);
	while (!told)
		step_sleep_ms(1);
	printf("rank %s was told by %d\n", rank(), (int)told);
}

int main(int argc, char **argv)
{
	static const struct guest_way ways[] = {
		{"memory", memory_of_a_rank}, {"fails", fails}, {"told", is_told}};

	GUEST_RUN(ways, argc, argv);
	return 0;
}
