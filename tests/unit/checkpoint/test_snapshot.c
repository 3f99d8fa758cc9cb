/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots from inside the job: what is written is what is read, what the GPU's digests say is
 * unchanged is not asked for, and the names of files. Damaged and forged snapshots are tests/cli's.
 */
#include "common/system/forked.h"
#include "checkpoint/snapshot/manifest_write.h"
#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/files/io.h"
#include "checkpoint/snapshot/read.h"

#include "tests/check_suite.h"
#include "tests/unit/few_descriptors.h"
#include "tests/unit/no_uring.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNKS 12
#define BASE   0x600000000000UL

static char base[64], directory[80];
static char *memory; /* what is on the GPU */
static struct snapshot_error error;
static enum snapshot_codec codec = SNAPSHOT_RAW;
static const struct snapshot_facts facts = {.cuda = 13000};

static void setup(void)
{
	strcpy(base, "/tmp/test-snapshot-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	snprintf(directory, sizeof(directory), "%s/s", base);
	memory = aligned_alloc(SNAPSHOT_ALIGN, CHUNKS * SNAPSHOT_CHUNK);
	for (size_t i = 0; i < CHUNKS * SNAPSHOT_CHUNK / 8; i++)
		((uint64_t *)memory)[i] = i;
	memset(memory + 4 * SNAPSHOT_CHUNK, 0, SNAPSHOT_CHUNK);
	memcpy(memory + 7 * SNAPSHOT_CHUNK, memory + 6 * SNAPSHOT_CHUNK, SNAPSHOT_CHUNK);
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", base);
	ck_assert_int_eq(system(command), 0);
	free(memory);
}

/* The digest that the GPU would make; here any hash will do. */
static struct hash128 take_digest(size_t i)
{
	const char *chunk = memory + i * SNAPSHOT_CHUNK;

	if (!*chunk && !memcmp(chunk, chunk + 1, SNAPSHOT_CHUNK - 1))
		return (struct hash128){0};
	return hash_bytes(chunk, SNAPSHOT_CHUNK / 2);
}

static void take_digests(struct hash128 *digests)
{
	for (size_t i = 0; i < CHUNKS; i++)
		digests[i] = take_digest(i);
}

static bool occupies; /* the memory will be only in the snapshot */

/* Write all of memory; with @digests, incrementally, and only what the directory does not have. */
static int write_all(const struct hash128 *digests, struct snapshot_totals *totals)
{
	struct snapshot_region region = {BASE, CHUNKS * SNAPSHOT_CHUNK, 0};
	struct snapshot_run runs[CHUNKS];
	struct snapshot_source source = {
		.regions = &region, .nregions = 1, .runs = runs, .digests = digests};
	struct snapshot_writer *w;
	size_t done = 0;
	int ret = snapshot_begin(directory, digests, codec, CHUNKS * SNAPSHOT_CHUNK, &w, &error);

	if (ret)
		return ret;
	for (size_t i = 0; i < CHUNKS; i++) {
		uint64_t address = BASE + i * SNAPSHOT_CHUNK;

		if (!digests || (digests[i].low && !snapshot_has(w, address, digests[i])))
			runs[source.nruns++] = (struct snapshot_run){
				address, SNAPSHOT_CHUNK, memory + i * SNAPSHOT_CHUNK, 0, false};
	}
	ret = snapshot_write(w, &source, &done, NULL, &error);
	if (!ret)
		ck_assert_uint_eq(done, CHUNKS * SNAPSHOT_CHUNK);
	if (!ret && occupies)
		ret = snapshot_occupy(w, &error);
	if (!ret)
		ret = snapshot_finish(w, &facts, false, &error);
	*totals = *snapshot_totals(w);
	snapshot_end(w);
	return ret;
}

static int take(void *arg, const struct snapshot_chunk *chunk, const void *data,
		struct snapshot_error *ignored)
{
	char *to = (char *)arg + (chunk->address - BASE);

	(void)ignored;
	if (data)
		memcpy(to, data, SNAPSHOT_CHUNK);
	else
		memset(to, 0, SNAPSHOT_CHUNK);
	return 0;
}

/* The contents of each place, which stay where they were read to; without buffers and copies. */
static void assert_stays(int dir, const struct snapshot_index *index)
{
	size_t size = index->nplaces * SNAPSHOT_CHUNK, found = 0;
	char *into = aligned_alloc(SNAPSHOT_ALIGN, size + SNAPSHOT_CHUNK);
	struct snapshot_read what = {.dir = dir, .index = index, .into = into};
	bool full = false;

	what.full = &full;
	memset(into, 0xaa, size);
	ck_assert_int_eq(snapshot_read(&what, &error), 0);
	ck_assert(!full);
	for (size_t place = 0; place < index->nplaces; place++)
		for (uint32_t i = index->places[place]; i < index->places[place + 1];
		     i++, found++) {
			const struct snapshot_chunk *chunk = &index->chunks[index->order[i]];

			ck_assert_int_eq(memcmp(into + place * SNAPSHOT_CHUNK,
						memory + (chunk->address - BASE), SNAPSHOT_CHUNK),
					 0);
		}
	ck_assert_uint_eq(found, index->norder);
	free(into);
}

/* All is read and checked though there is no host memory for it, as behind the end of a file. */
static void assert_read_without_room(int dir, const struct snapshot_index *index)
{
	size_t size = index->nplaces * SNAPSHOT_CHUNK + SNAPSHOT_CHUNK, done = 0;
	int file = memfd_create("nothing", MFD_CLOEXEC);
	char *into = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	struct snapshot_read what = {.dir = dir, .index = index, .into = into, .done = &done};
	bool full = false;

	ck_assert_ptr_ne(into, MAP_FAILED);
	what.full = &full;
	ck_assert_int_eq(snapshot_read(&what, &error), 0);
	ck_assert_uint_eq(done, CHUNKS * SNAPSHOT_CHUNK);
	ck_assert(full || !index->nplaces);
	munmap(into, size);
	close(file);
}

/* Assert that what the directory has is what memory has. */
static void assert_read_back(void)
{
	char *copy = malloc(CHUNKS * SNAPSHOT_CHUNK);
	struct snapshot_index index;
	size_t done = 0;
	int dir = snapshot_dir_open(directory, &error);
	uint32_t next;

	ck_assert_int_ge(dir, 0);
	memset(copy, 0xaa, CHUNKS * SNAPSHOT_CHUNK);
	ck_assert_int_eq(snapshot_dir_numbers(dir, 1, &next, &error), 0);
	for (uint32_t number = next; number-- > 1;)
		if (!snapshot_index_load(dir, number, &index, &error))
			break;
	ck_assert_uint_eq(index.nchunks, CHUNKS);
	ck_assert_int_eq(snapshot_read(&(struct snapshot_read){.dir = dir,
							       .index = &index,
							       .take = take,
							       .arg = copy,
							       .done = &done},
				       &error),
			 0);
	ck_assert_uint_eq(done, CHUNKS * SNAPSHOT_CHUNK);
	ck_assert_int_eq(memcmp(copy, memory, CHUNKS * SNAPSHOT_CHUNK), 0);
	assert_stays(dir, &index);
	assert_read_without_room(dir, &index);
	snapshot_index_free(&index);
	snapshot_dir_close(dir);
	free(copy);
}

START_TEST(what_is_written_is_read)
{
	struct snapshot_totals totals;

	ck_assert_int_eq(write_all(NULL, &totals), 0);
	ck_assert_uint_eq(totals.zero, SNAPSHOT_CHUNK);
	ck_assert_uint_eq(totals.duplicate, SNAPSHOT_CHUNK);
	ck_assert_uint_eq(totals.written, (CHUNKS - 2) * SNAPSHOT_CHUNK);
	assert_read_back();
}
END_TEST

/* Of every codec some chunks at least: the first is compressed for sure. */
START_TEST(what_is_compressed_is_read)
{
	for (codec = SNAPSHOT_LZ4; codec <= SNAPSHOT_ZSTD; codec++) {
		struct snapshot_totals totals;

		ck_assert_int_eq(write_all(NULL, &totals), 0);
		ck_assert_uint_eq(totals.written, (CHUNKS - 2) * SNAPSHOT_CHUNK);
		ck_assert_uint_lt(totals.stored, totals.written);
		assert_read_back();
	}
}
END_TEST

/* Nothing that could not be in a process image, nor that is the kernel's. */
START_TEST(no_ring_stays)
{
	struct snapshot_totals totals;

	ck_assert_int_eq(write_all(NULL, &totals), 0);
	assert_read_back();
	ck_assert_int_eq(system("! ls -l /proc/$PPID/fd | grep io_uring"), 0);
	ck_assert_int_eq(system("! grep io_uring /proc/$PPID/maps"), 0);
	ck_assert_int_eq(system("! grep iou- /proc/$PPID/task/*/comm"), 0);
}
END_TEST

/* As in containers whose seccomp profile does not know io_uring. */
START_TEST(without_io_uring)
{
	struct snapshot_totals totals;

	refuse_io_uring(_i);
	ck_assert_int_eq(io_uring_queue_init(4, &(struct io_uring){0}, 0), -_i);
	ck_assert_int_eq(write_all(NULL, &totals), 0);
	assert_read_back();
	codec = SNAPSHOT_ZSTD;
	ck_assert_int_eq(write_all(NULL, &totals), 0);
	assert_read_back();
}
END_TEST

START_TEST(digests_tell_what_is_unchanged)
{
	struct hash128 digests[CHUNKS];
	struct snapshot_totals totals;

	take_digests(digests);
	ck_assert_int_eq(write_all(digests, &totals), 0);
	ck_assert_uint_eq(totals.unchanged, 0);
	memory[2 * SNAPSHOT_CHUNK] ^= 1;
	take_digests(digests);
	ck_assert_int_eq(write_all(digests, &totals), 0);
	ck_assert_uint_eq(totals.written, SNAPSHOT_CHUNK);
	ck_assert_uint_eq(totals.unchanged, (CHUNKS - 2) * SNAPSHOT_CHUNK);
	assert_read_back();
}
END_TEST

static void put_copy_in_its_place(void)
{
	char command[512];

	snprintf(command, sizeof(command), "cp -a %s %s.copy && rm -r %s && mv %s.copy %s",
		 directory, directory, directory, directory, directory);
	ck_assert_int_eq(system(command), 0);
}

/* The job may go on from a copy, elsewhere. */
START_TEST(a_copy_can_be_gone_on_from)
{
	struct hash128 digests[CHUNKS];
	struct snapshot_totals totals;
	char command[512];

	take_digests(digests);
	ck_assert_int_eq(write_all(digests, &totals), 0);
	put_copy_in_its_place();
	ck_assert_int_eq(write_all(digests, &totals), 0);
	ck_assert_uint_eq(totals.unchanged, (CHUNKS - 1) * SNAPSHOT_CHUNK);
	assert_read_back();
	/* But not from what is there of another one. */
	snprintf(command, sizeof(command), "sed -i s/13000/12000/ %s/manifest.json", directory);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(write_all(digests, &totals), 0);
	ck_assert_uint_eq(totals.unchanged, 0);
}
END_TEST

/* Its chunks are in other places, or have other contents. */
START_TEST(an_index_of_another_snapshot_is_not_used)
{
	struct hash128 digests[CHUNKS];
	struct snapshot_totals totals;
	char command[256];

	take_digests(digests);
	ck_assert_int_eq(write_all(digests, &totals), 0);
	snprintf(command, sizeof(command), "mv %s %s.other", directory, directory);
	ck_assert_int_eq(system(command), 0);
	memory[2 * SNAPSHOT_CHUNK] ^= 1;
	ck_assert_int_eq(write_all(digests, &totals), 0);
	snprintf(command, sizeof(command), "cp %s.other/index-1 %s", directory, directory);
	ck_assert_int_eq(system(command), 0);
	memory[2 * SNAPSHOT_CHUNK] ^= 1;
	ck_assert_int_eq(write_all(digests, &totals), 0);
	ck_assert_uint_eq(totals.unchanged, 0);
	assert_read_back();
}
END_TEST

/* Contents that nobody has are an error, not zeros. */
START_TEST(a_digest_without_contents_is_refused)
{
	struct snapshot_region region = {BASE, SNAPSHOT_CHUNK, 0};
	struct hash128 digest = {5, 6};
	struct snapshot_source source = {.regions = &region, .nregions = 1, .digests = &digest};
	struct snapshot_writer *w;
	size_t done = 0;

	ck_assert_int_eq(snapshot_begin(directory, true, SNAPSHOT_RAW, 0, &w, &error), 0);
	ck_assert(!snapshot_has(w, BASE, digest));
	ck_assert_int_eq(snapshot_write(w, &source, &done, NULL, &error), -EINVAL);
	snapshot_end(w);
}
END_TEST

/* To root every directory is open. */
START_TEST(a_directory_can_be_used_whatever_the_umask)
{
	struct stat st;
	int dir;

	if (!geteuid()) {
		ck_assert_int_eq(chown(base, 54321, 54321), 0);
		ck_assert_int_eq(seteuid(54321), 0);
	}
	umask(0777);
	dir = snapshot_dir_create(directory, geteuid(), getpid(), &error);
	ck_assert_msg(dir >= 0, "%s", error.text);
	ck_assert_int_eq(fstat(dir, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0700);
	snapshot_dir_close(dir);
	umask(022);
	seteuid(getuid());
}
END_TEST

static int read_memory(void *data, size_t size, uint64_t offset)
{
	if (offset == 3 * SNAPSHOT_CHUNK)
		return -EIO;
	memcpy(data, memory + offset, size);
	return 0;
}

/* What was spilled is read back in order to be saved. */
START_TEST(a_kept_directory_is_not_written)
{
	struct snapshot_source source = {0};
	struct snapshot_writer *w;
	size_t done = 0;
	bool cancel = false;
	int kept, dir;

	ck_assert_int_eq(snapshot_begin(directory, false, codec, 0, &w, &error), 0);
	ck_assert_int_eq(snapshot_write(w, &source, &done, &cancel, &error), 0);
	ck_assert_int_eq(snapshot_finish(w, &facts, false, &error), 0);
	kept = snapshot_keep(w, &error);
	ck_assert_int_ge(kept, 0);
	snapshot_end(w);
	ck_assert_int_eq(snapshot_dir_create(directory, geteuid(), getpid(), &error), -EWOULDBLOCK);
	dir = snapshot_dir_open(directory, &error);
	ck_assert_int_ge(dir, 0);
	snapshot_dir_close(dir);
	snapshot_dir_close(kept);
	dir = snapshot_dir_create(directory, geteuid(), getpid(), &error);
	ck_assert_int_ge(dir, 0);
	snapshot_dir_close(dir);
}
END_TEST

static bool none_wanted(const void *arg, enum snapshot_kind kind, uint32_t number)
{
	(void)arg, (void)kind, (void)number;
	return false;
}

START_TEST(a_part_that_others_read_stays)
{
	char parts[100], part[120];
	int dir, reader;

	snprintf(parts, sizeof(parts), "%s/parts-1", directory);
	snprintf(part, sizeof(part), "%s/7", parts);
	ck_assert(!mkdir(directory, 0700) && !mkdir(parts, 0700) && !mkdir(part, 0700));
	dir = open(directory, O_RDONLY | O_DIRECTORY);
	reader = snapshot_dir_open_part(dir, 1, 7, &error);
	ck_assert_int_ge(reader, 0);
	snapshot_dir_clean(dir, none_wanted, NULL);
	ck_assert_int_eq(access(part, F_OK), 0);
	snapshot_dir_close(reader);
	snapshot_dir_clean(dir, none_wanted, NULL);
	ck_assert_int_eq(access(parts, F_OK), -1);
	close(dir);
}
END_TEST

static void make_file(const char *in, const char *name)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", in, name);
	ck_assert_int_eq(close(open(path, O_WRONLY | O_CREAT, 0600)), 0);
}

/* As root cleans the directory of a user, who may have given such names to any directory. */
START_TEST(directories_that_are_only_called_so_stay)
{
	char image[100], foreign[100], parts[100], part[120];
	int dir;

	snprintf(image, sizeof(image), "%s/host-6", directory);
	snprintf(foreign, sizeof(foreign), "%s/host-7", directory);
	snprintf(parts, sizeof(parts), "%s/parts-1", directory);
	snprintf(part, sizeof(part), "%s/7", parts);
	ck_assert(!mkdir(directory, 0700) && !mkdir(image, 0700) && !mkdir(foreign, 0700) &&
		  !mkdir(parts, 0700) && !mkdir(part, 0700));
	for (int i = 0; i < 2; i++) {
		make_file(i ? foreign : image, "host.json");
		make_file(i ? foreign : image, "pages-1.img");
		make_file(i ? foreign : image, "shm-0");
	}
	make_file(foreign, "diary");
	make_file(part, "diary");
	if (geteuid() == 0)
		ck_assert_int_eq(chown(directory, 12345, -1), 0);
	dir = open(directory, O_RDONLY | O_DIRECTORY);
	snapshot_dir_clean(dir, none_wanted, NULL);
	ck_assert_int_eq(access(image, F_OK), -1);
	strcat(foreign, "/diary");
	ck_assert_int_eq(access(foreign, F_OK), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(access(part, F_OK), 0);
	close(dir);
}
END_TEST

/* A restore elsewhere would not look whether they are the same there. */
START_TEST(what_the_program_maps_must_be_known)
{
	const struct snapshot_source source = {0};
	const struct snapshot_totals totals = {0};
	const struct snapshot_manifest_parts parts = {.source = &source, .totals = &totals};
	size_t size;
	char *text = snapshot_manifest_make(&parts, &facts, &size);

	ck_assert_ptr_nonnull(strstr(text, "libc.so.6"));
	free(text);
	take_descriptors(false);
	ck_assert_ptr_null(snapshot_manifest_make(&parts, &facts, &size));
	ck_assert_int_eq(errno, EMFILE);
	allow_descriptors(64);
}
END_TEST

START_TEST(contents_may_come_from_a_file)
{
	struct snapshot_region region = {BASE, CHUNKS * SNAPSHOT_CHUNK, 0};
	struct snapshot_run runs[] = {{BASE, 3 * SNAPSHOT_CHUNK, NULL, 0, false},
				      {BASE + 4 * SNAPSHOT_CHUNK, (CHUNKS - 4) * SNAPSHOT_CHUNK,
				       NULL, 4 * SNAPSHOT_CHUNK, false}};
	struct snapshot_source source = {
		.regions = &region, .nregions = 1, .runs = runs, .nruns = 2, .read = read_memory};
	struct snapshot_writer *w;
	size_t done = 0;

	memset(memory + 3 * SNAPSHOT_CHUNK, 0, SNAPSHOT_CHUNK);
	ck_assert_int_eq(snapshot_begin(directory, false, SNAPSHOT_RAW, 0, &w, &error), 0);
	ck_assert_int_eq(snapshot_write(w, &source, &done, NULL, &error), 0);
	ck_assert_int_eq(snapshot_finish(w, &facts, false, &error), 0);
	snapshot_end(w);
	assert_read_back();

	runs[0].size += SNAPSHOT_CHUNK;
	ck_assert_int_eq(snapshot_begin(directory, false, SNAPSHOT_RAW, 0, &w, &error), 0);
	ck_assert_int_eq(snapshot_write(w, &source, &done, NULL, &error), -EIO);
	ck_assert_ptr_nonnull(strstr(error.text, "Input/output error"));
	snapshot_end(w);
	assert_read_back();
}
END_TEST

/* What comes later: its chunks are in the order of their runs. */
struct coming {
	pthread_mutex_t lock;
	pthread_cond_t came;
	size_t ready, last; /* chunks that are there, and the first that never will be */
	struct snapshot_run runs[CHUNKS];
	struct hash128 digests[CHUNKS];
};

static int wait_for_chunk(void *arg, size_t chunk)
{
	struct coming *c = arg;
	int ret;

	pthread_mutex_lock(&c->lock);
	while (chunk >= c->ready && c->ready < c->last)
		pthread_cond_wait(&c->came, &c->lock);
	ret = chunk < c->ready ? 0 : -ECANCELED;
	pthread_mutex_unlock(&c->lock);
	return ret;
}

static void *let_come(void *arg)
{
	struct coming *c = arg;

	while (c->ready < c->last) {
		size_t i = c->ready;

		usleep(1000);
		c->digests[i] = take_digest(i);
		c->runs[i].host = memory + i * SNAPSHOT_CHUNK;
		c->runs[i].nothing = i == 4; /* zeros */
		pthread_mutex_lock(&c->lock);
		c->ready++;
		pthread_cond_broadcast(&c->came);
		pthread_mutex_unlock(&c->lock);
	}
	return NULL;
}

/* Write what comes up to the chunk @last. */
static int write_coming(size_t last)
{
	struct snapshot_region region = {BASE, CHUNKS * SNAPSHOT_CHUNK, 0};
	struct coming c = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .last = last};
	struct snapshot_source source = {.regions = &region,
					 .nregions = 1,
					 .runs = c.runs,
					 .nruns = CHUNKS,
					 .digests = c.digests,
					 .wait = wait_for_chunk,
					 .arg = &c};
	struct snapshot_writer *w;
	pthread_t thread;
	size_t done = 0;
	int ret;

	for (size_t i = 0; i < CHUNKS; i++)
		c.runs[i] = (struct snapshot_run){BASE + i * SNAPSHOT_CHUNK, SNAPSHOT_CHUNK, NULL,
						  0, true};
	ck_assert_int_eq(snapshot_begin(directory, false, SNAPSHOT_RAW, 0, &w, &error), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, let_come, &c), 0);
	ret = snapshot_write(w, &source, &done, NULL, &error);
	pthread_join(thread, NULL);
	if (!ret)
		ret = snapshot_finish(w, &facts, false, &error);
	snapshot_end(w);
	return ret;
}

START_TEST(contents_may_come_later)
{
	struct hash128 digests[CHUNKS];
	struct snapshot_totals totals;

	ck_assert_int_eq(write_coming(CHUNKS), 0);
	assert_read_back();
	/* The digests that came with them are in the index. */
	memory[5 * SNAPSHOT_CHUNK] ^= 1;
	take_digests(digests);
	ck_assert_int_eq(write_all(digests, &totals), 0);
	ck_assert_uint_eq(totals.written, SNAPSHOT_CHUNK);
	ck_assert_int_eq(write_coming(7), -ECANCELED);
	assert_read_back();
}
END_TEST

/* How many descriptors are in the directory, or of it. */
static size_t descriptors(void)
{
	char link[64], path[128];
	size_t count = 0;

	for (int fd = 0; fd < 256; fd++) {
		ssize_t n;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, path, sizeof(path) - 1);
		if (n > 0 && !strncmp(path, directory, strlen(directory)))
			count++;
	}
	return count;
}

/* A child lets go of all; how many descriptors the parent has, and the child, in @arg. */
static int fork_at_the_last(void *arg, size_t chunk)
{
	int *counts = arg;
	pid_t pid;

	if (chunk < CHUNKS - 1)
		return 0;
	/* That of the directory, of the data of a thread at least. */
	while (descriptors() < 2)
		usleep(100);
	counts[0] = descriptors();
	pid = fork();
	if (!pid) {
		forked_let_go();
		_exit(descriptors());
	}
	waitpid(pid, &counts[1], 0);
	return 0;
}

START_TEST(a_child_has_no_file_of_it)
{
	struct snapshot_region region = {BASE, CHUNKS * SNAPSHOT_CHUNK, 0};
	struct snapshot_run run = {BASE, CHUNKS * SNAPSHOT_CHUNK, memory, 0, false};
	int counts[2] = {0, -1};
	struct snapshot_source source = {.regions = &region,
					 .nregions = 1,
					 .runs = &run,
					 .nruns = 1,
					 .wait = fork_at_the_last,
					 .arg = counts};
	struct snapshot_writer *w;
	size_t done = 0;

	ck_assert_int_eq(snapshot_begin(directory, false, SNAPSHOT_RAW, 0, &w, &error), 0);
	ck_assert_int_eq(snapshot_write(w, &source, &done, NULL, &error), 0);
	snapshot_end(w);
	ck_assert_int_ge(counts[0], 2);
	ck_assert_int_eq(counts[1], 0);
}
END_TEST

START_TEST(a_cancelled_write_leaves_nothing)
{
	struct snapshot_region region = {BASE, CHUNKS * SNAPSHOT_CHUNK, 0};
	struct snapshot_run run = {BASE, CHUNKS * SNAPSHOT_CHUNK, memory, 0, false};
	struct snapshot_source source = {
		.regions = &region, .nregions = 1, .runs = &run, .nruns = 1};
	struct snapshot_writer *w;
	bool cancel = true;
	size_t done = 0;
	uint32_t next;
	int dir;

	ck_assert_int_eq(snapshot_begin(directory, false, SNAPSHOT_RAW, 0, &w, &error), 0);
	ck_assert_int_eq(snapshot_write(w, &source, &done, &cancel, &error), -ECANCELED);
	ck_assert_str_eq(error.text, "cancelled");
	snapshot_end(w);
	dir = snapshot_dir_open(directory, &error);
	ck_assert_int_eq(snapshot_dir_numbers(dir, 1, &next, &error), 0);
	ck_assert_uint_eq(next, 1);
	snapshot_dir_close(dir);
}
END_TEST

/* The descriptor of what @path names. */
static int find_descriptor(const char *path)
{
	struct stat wanted, found;
	int fd = 3;

	ck_assert_int_eq(stat(path, &wanted), 0);
	while (fstat(fd, &found) || found.st_ino != wanted.st_ino || found.st_dev != wanted.st_dev)
		ck_assert_int_lt(fd++, 1024);
	return fd;
}

/* The program has closed the directory, and one of its own has the number. */
START_TEST(another_directory_is_left_alone)
{
	char other[80], name[100];
	struct snapshot_writer *w;
	int fd, own;

	snprintf(other, sizeof(other), "%s/other", base);
	ck_assert_int_eq(mkdir(other, 0700), 0);
	snprintf(name, sizeof(name), "%s/manifest.new", other);
	close(open(name, O_WRONLY | O_CREAT, 0600));
	ck_assert_int_eq(snapshot_begin(directory, false, SNAPSHOT_RAW, 0, &w, &error), 0);
	fd = find_descriptor(directory);
	own = open(other, O_RDONLY | O_DIRECTORY);
	ck_assert_int_eq(dup2(own, fd), fd);
	snapshot_end(w);
	ck_assert_int_eq(access(name, F_OK), 0);
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	close(fd);
	close(own);
}
END_TEST

static size_t syncs;
static bool sync_fails;  /* of a directory, once its manifest is the new one */
static ino_t sync_inode; /* look whether this file is synced */
static bool inode_synced;

static bool is_committed(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISDIR(st.st_mode) &&
	       !faccessat(fd, SNAPSHOT_MANIFEST, F_OK, 0) &&
	       faccessat(fd, SNAPSHOT_MANIFEST_NEW, F_OK, 0);
}

/* Comes before the C library's. */
int fsync(int fd)
{
	struct stat st;

	__atomic_fetch_add(&syncs, 1, __ATOMIC_RELAXED);
	if (sync_inode && !fstat(fd, &st) && st.st_ino == sync_inode)
		inode_synced = true;
	if (sync_fails && is_committed(fd)) {
		errno = EIO;
		return -1;
	}
	return syscall(SYS_fsync, fd);
}

static bool has_index(unsigned int number)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/index-%u", directory, number);
	return !access(path, F_OK);
}

/* The new manifest is in force, and the one before is after a crash, perhaps: both stay whole. */
START_TEST(a_directory_that_cannot_be_synced_keeps_both)
{
	struct snapshot_totals totals;

	ck_assert_int_eq(write_all(NULL, &totals), 0);
	ck_assert(has_index(1));
	memory[2 * SNAPSHOT_CHUNK] ^= 1;
	sync_fails = true;
	ck_assert_int_eq(write_all(NULL, &totals), -EIO);
	ck_assert_str_eq(error.text, "manifest.json: Input/output error");
	ck_assert(has_index(1));
	assert_read_back();
	sync_fails = false;
	ck_assert_int_eq(write_all(NULL, &totals), 0);
	ck_assert(!has_index(1));
	assert_read_back();
}
END_TEST

/* The memory stays where it is, so others may write there. */
START_TEST(a_directory_that_cannot_be_synced_is_not_in_use)
{
	struct snapshot_totals totals;
	char path[128];

	snprintf(path, sizeof(path), "%s/" SNAPSHOT_IN_USE, directory);
	occupies = true;
	ck_assert_int_eq(write_all(NULL, &totals), 0);
	ck_assert_int_eq(access(path, F_OK), 0);
	sync_fails = true;
	ck_assert_int_eq(write_all(NULL, &totals), -EIO);
	ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

/* Whoever copied the directory has not synced what is kept from there, perhaps. */
START_TEST(what_is_kept_of_a_copy_is_synced)
{
	struct hash128 digests[CHUNKS];
	struct snapshot_totals totals;
	char path[128] = "";
	struct stat st;

	take_digests(digests);
	ck_assert_int_eq(write_all(digests, &totals), 0);
	put_copy_in_its_place();
	for (int i = 1; i <= SNAPSHOT_IO_THREADS; i++) {
		snprintf(path, sizeof(path), "%s/data-%d", directory, i);
		if (!stat(path, &st) && st.st_size)
			break;
	}
	sync_inode = st.st_ino;
	ck_assert_int_eq(write_all(digests, &totals), 0);
	ck_assert_uint_eq(totals.unchanged, (CHUNKS - 1) * SNAPSHOT_CHUNK);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert(inode_synced);
}
END_TEST

static void make_part(const char *whole, int number)
{
	snprintf(directory, sizeof(directory), "%s/parts-%d", whole, number);
	ck_assert_int_eq(mkdir(directory, 0700), 0);
	snprintf(directory, sizeof(directory), "%s/parts-%d/7", whole, number);
}

/*
 * A part that was not there before has the files of the last one that this process wrote, and its name is safe on disk.
 * Those beside it may be of snapshots that failed, or that others put there, with any number.
 */
START_TEST(a_part_inherits_what_this_process_wrote)
{
	struct hash128 digests[CHUNKS];
	struct snapshot_totals totals;
	char whole[sizeof(directory)], command[256];
	struct stat st;

	take_digests(digests);
	strcpy(whole, directory);
	ck_assert_int_eq(mkdir(whole, 0700), 0);
	for (int number = 7; number <= 10; number++) {
		make_part(whole, number);
		ck_assert_int_eq(write_all(digests, &totals), 0);
		memory[2 * SNAPSHOT_CHUNK] ^= 1;
		take_digests(digests);
	}
	snprintf(command, sizeof(command),
		 "mkdir -p %s/parts-11/7 && cp -a %s/parts-10 %s/parts-12 && "
		 "sed -i s/13000/12000/ %s/parts-12/7/manifest.json",
		 whole, whole, whole, whole);
	ck_assert_int_eq(system(command), 0);
	make_part(whole, 13);
	snprintf(command, sizeof(command), "%s/parts-13", whole);
	ck_assert_int_eq(stat(command, &st), 0);
	sync_inode = st.st_ino;
	snapshot_inherit(directory);
	ck_assert(inode_synced);
	ck_assert_int_eq(write_all(digests, &totals), 0);
	ck_assert_uint_eq(totals.written, SNAPSHOT_CHUNK);
	ck_assert_uint_eq(totals.unchanged, (CHUNKS - 2) * SNAPSHOT_CHUNK);
	assert_read_back();
}
END_TEST

/* At the chunk in the middle; those before it may be written. */
static int cancel_in_the_middle(void *arg, size_t chunk)
{
	if (chunk == CHUNKS / 2)
		__atomic_store_n((bool *)arg, true, __ATOMIC_RELAXED);
	return 0;
}

/* Whoever cancels it waits for it to end. */
START_TEST(a_cancelled_write_is_not_synced)
{
	struct snapshot_region region = {BASE, CHUNKS * SNAPSHOT_CHUNK, 0};
	struct snapshot_run run = {BASE, CHUNKS * SNAPSHOT_CHUNK, memory, 0, false};
	struct snapshot_source source = {
		.regions = &region, .nregions = 1, .runs = &run, .nruns = 1};
	struct snapshot_writer *w;
	bool cancel = false;
	size_t done = 0;

	ck_assert_int_eq(snapshot_begin(directory, false, SNAPSHOT_RAW, 0, &w, &error), 0);
	ck_assert_int_eq(snapshot_write(w, &source, &done, &cancel, &error), 0);
	ck_assert_uint_gt(syncs, 0);
	snapshot_end(w);
	syncs = 0;
	done = 0;
	source.wait = cancel_in_the_middle;
	source.arg = &cancel;
	ck_assert_int_eq(snapshot_begin(directory, false, SNAPSHOT_RAW, 0, &w, &error), 0);
	ck_assert_int_eq(snapshot_write(w, &source, &done, &cancel, &error), -ECANCELED);
	ck_assert_uint_gt(done, 0);
	ck_assert_uint_eq(syncs, 0);
	snapshot_end(w);
}
END_TEST

/* Whoever waits for it to be read waits for ever. */
START_TEST(a_pipe_in_the_manifests_place_is_replaced)
{
	struct snapshot_totals totals;
	char path[128];

	ck_assert_int_eq(write_all(NULL, &totals), 0);
	snprintf(path, sizeof(path), "%s/" SNAPSHOT_MANIFEST_NEW, directory);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(write_all(NULL, &totals), 0);
	assert_read_back();
}
END_TEST

/* It is none that was written here, whatever it has: it costs the program no memory. */
START_TEST(a_manifest_of_any_size_is_not_read)
{
	struct hash128 digests[CHUNKS];
	struct snapshot_totals totals;
	struct rusage before, after;
	char path[128];

	take_digests(digests);
	ck_assert_int_eq(write_all(digests, &totals), 0);
	snprintf(path, sizeof(path), "%s/" SNAPSHOT_MANIFEST, directory);
	ck_assert_int_eq(truncate(path, 1L << 30), 0);
	ck_assert_int_eq(getrusage(RUSAGE_SELF, &before), 0);
	ck_assert_int_eq(write_all(digests, &totals), 0);
	ck_assert_int_eq(getrusage(RUSAGE_SELF, &after), 0);
	ck_assert_uint_eq(totals.unchanged, 0);
	ck_assert_int_lt(after.ru_maxrss, before.ru_maxrss + (512 << 10));
	assert_read_back();
}
END_TEST

START_TEST(names)
{
	static const char *const wrong[] = {"data-",     "data-01", "data--1", "data-1000000000",
					    "data- 1",   "data-1 ", "index",   "../data-1",
					    "data-1/..", "host-+1", "",        "manifest.json"};
	enum snapshot_kind kind;
	uint32_t number;

	ck_assert(snapshot_parse_name("data-1", &kind, &number));
	ck_assert(snapshot_parse_name("index-999999999", &kind, &number));
	ck_assert_int_eq(kind, SNAPSHOT_INDEX);
	ck_assert_uint_eq(number, SNAPSHOT_NUMBER_MAX);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(!snapshot_parse_name(wrong[i], &kind, &number), "%s", wrong[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("snapshot");
	TCase *tc = tcase_create("snapshot");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, what_is_written_is_read);
	tcase_add_test(tc, what_is_compressed_is_read);
	tcase_add_test(tc, no_ring_stays);
	tcase_add_loop_test(tc, without_io_uring, EPERM, EPERM + 1);
	tcase_add_loop_test(tc, without_io_uring, ENOSYS, ENOSYS + 1);
	tcase_add_test(tc, digests_tell_what_is_unchanged);
	tcase_add_test(tc, a_copy_can_be_gone_on_from);
	tcase_add_test(tc, an_index_of_another_snapshot_is_not_used);
	tcase_add_test(tc, a_digest_without_contents_is_refused);
	tcase_add_test(tc, a_directory_can_be_used_whatever_the_umask);
	tcase_add_test(tc, a_kept_directory_is_not_written);
	tcase_add_test(tc, a_part_that_others_read_stays);
	tcase_add_test(tc, directories_that_are_only_called_so_stay);
	tcase_add_test(tc, contents_may_come_from_a_file);
	tcase_add_test(tc, contents_may_come_later);
	tcase_add_test(tc, a_child_has_no_file_of_it);
	tcase_add_test(tc, a_cancelled_write_leaves_nothing);
	tcase_add_test(tc, another_directory_is_left_alone);
	tcase_add_test(tc, a_directory_that_cannot_be_synced_keeps_both);
	tcase_add_test(tc, a_directory_that_cannot_be_synced_is_not_in_use);
	tcase_add_test(tc, what_is_kept_of_a_copy_is_synced);
	tcase_add_test(tc, a_part_inherits_what_this_process_wrote);
	tcase_add_test(tc, a_cancelled_write_is_not_synced);
	tcase_add_test(tc, a_pipe_in_the_manifests_place_is_replaced);
	tcase_add_test(tc, a_manifest_of_any_size_is_not_read);
	tcase_add_test(tc, what_the_program_maps_must_be_known);
	tcase_add_test(tc, names);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
