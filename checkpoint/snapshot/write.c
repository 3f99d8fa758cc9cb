/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/write.h"
#include "checkpoint/snapshot/manifest_write.h"
#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/in_use.h"
#include "checkpoint/snapshot/files/io.h"
#include "checkpoint/snapshot/known.h"
#include "checkpoint/snapshot/files/lane.h"
#include "checkpoint/snapshot/read.h"
#include "common/text.h"
#include "common/system/write_signals.h"
#include "common/system/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct snapshot_writer {
	struct ownfd dir;
	bool finished;
	uint32_t first; /* the index's number, and the first lane's; the others follow */
	struct snapshot_header header;
	struct hash128 index_hash;
	struct snapshot_chunk *chunks;
	struct hash128 zero_hash;
	struct snapshot_lanes shared; /* by the lanes */
	struct snapshot_lane lanes[SNAPSHOT_IO_THREADS];
	size_t nlanes; /* taken by threads */
	struct snapshot_index old;
	struct snapshot_known known;
	const struct snapshot_source *source;
	struct snapshot_totals totals;

	/* For snapshot_write(). */
	struct workers workers;
	pthread_mutex_t lock; /* of known, totals and error */
	struct snapshot_error *error;
};

/* -1 if the program has closed it. */
static int dir_of(const struct snapshot_writer *w)
{
	return ownfd_get(&w->dir);
}

/*
 * The last two snapshots that this process wrote. An incremental one can build on them, in the same
 * directory or a copy of it, in this process or one that was restored from it. With an image, the
 * last one may not have been committed.
 */
static struct written {
	uint32_t index;
	struct hash128 index_hash, manifest; /* of the files */
} last, earlier;

/* True if the manifest there is one that we wrote, byte for byte; @written is then that one. */
static bool find_written(int dir, struct written *written)
{
	struct snapshot_error ignored;
	struct hash128 hash;
	size_t size;
	char *text;

	if (!last.index || snapshot_io_read_file(dir, SNAPSHOT_MANIFEST, SNAPSHOT_MANIFEST_MAX,
						 &text, &size, &ignored))
		return false;
	hash = hash_bytes(text, size);
	free(text);
	*written = hash_equal(hash, last.manifest) ? last : earlier;
	return written->index && hash_equal(hash, written->manifest);
}

static bool is_written(int dir)
{
	struct written ignored;

	return find_written(dir, &ignored);
}

void snapshot_inherit(const char *path)
{
	snapshot_dir_inherit(path, is_written);
}

/*
 * Check that the disk has room for the least that @bytes may take if none are zeros or duplicates.
 */
static int check_room(int dir, size_t bytes, enum snapshot_codec codec,
		      struct snapshot_error *error)
{
	char needed[FORMAT_SIZE], free[FORMAT_SIZE];
	struct statvfs st;
	size_t room;

	if (codec != SNAPSHOT_RAW)
		bytes = bytes / SNAPSHOT_CHUNK * SNAPSHOT_ALIGN;
	if (fstatvfs(dir, &st))
		return 0; /* then writing finds a full disk */
	room = st.f_bavail * st.f_frsize;
	if (room >= bytes)
		return 0;
	return snapshot_fail(error, -ENOSPC, "%s of disk needed, %s free",
			     format_bytes(needed, bytes), format_bytes(free, room));
}

static bool none_wanted(const void *arg, enum snapshot_kind kind, uint32_t number)
{
	(void)arg, (void)kind, (void)number;
	return false;
}

/* Make manifest.new: if we are killed, it marks the files there as a snapshot's. */
static int make_empty(int dir, struct snapshot_error *error)
{
	int fd;

	snapshot_dir_clean(dir, none_wanted, NULL);
	fd = openat(dir, SNAPSHOT_MANIFEST_NEW, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return snapshot_fail(error, -errno, SNAPSHOT_MANIFEST_NEW ": %s",
				     error_text(errno));
	fchmod(fd, 0600);
	close(fd);
	return 0;
}

/*
 * Load the index of @base. If it is damaged, or another than the one that was written, everything is
 * written anew.
 */
static void load_base(struct snapshot_writer *w, const struct written *base)
{
	struct snapshot_error ignored;

	if (snapshot_index_load(dir_of(w), base->index, &w->old, &ignored))
		return;
	if (!hash_equal(w->old.file_hash, base->index_hash))
		snapshot_index_free(&w->old);
}

int snapshot_begin(const char *path, bool incremental, enum snapshot_codec codec, size_t bytes,
		   struct snapshot_writer **writer, struct snapshot_error *error)
{
	struct snapshot_writer *w = calloc(1, sizeof(*w));
	struct written base;
	int dir, ret;

	if (!w)
		return snapshot_fail(error, -ENOMEM, "out of memory");
	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->shared.lock, NULL);
	w->shared.codec = codec;
	dir = snapshot_dir_create(path, geteuid(), getpid(), error);
	if (dir < 0) {
		free(w);
		return dir;
	}
	ownfd_set(&w->dir, dir);
	ret = faccessat(dir, SNAPSHOT_MANIFEST, F_OK, 0) ? make_empty(dir, error) : 0;
	if (!ret)
		ret = snapshot_dir_numbers(dir, SNAPSHOT_IO_THREADS, &w->first, error);
	w->shared.dir = &w->dir;
	for (uint32_t i = 0; i < SNAPSHOT_IO_THREADS; i++)
		snapshot_lane_init(&w->lanes[i], w->first + i);
	if (!ret && incremental && find_written(dir, &base)) {
		load_base(w, &base);
		last = base;
	}
	if (!ret && snapshot_known_init(&w->known, dir, &w->old))
		ret = snapshot_fail(error, -ENOMEM, "out of memory");
	if (!ret && !w->old.nchunks)
		ret = check_room(dir, bytes, codec, error);
	if (ret)
		snapshot_end(w);
	else
		*writer = w;
	return ret;
}

bool snapshot_has(const struct snapshot_writer *w, uint64_t address, struct hash128 digest)
{
	return snapshot_known_has(&w->known, address, digest);
}

static size_t count_chunks(const struct snapshot_source *source)
{
	size_t n = 0;

	for (size_t i = 0; i < source->nregions; i++)
		n += source->regions[i].size / SNAPSHOT_CHUNK;
	return n;
}

static int plan_chunks(struct snapshot_writer *w, struct snapshot_error *error)
{
	const struct snapshot_source *source = w->source;
	size_t n = count_chunks(source), i = 0;
	char *zeros = calloc(1, SNAPSHOT_CHUNK);

	w->chunks = calloc(n + 1, sizeof(*w->chunks));
	if (n > SNAPSHOT_CHUNKS_MAX || !w->chunks || !zeros ||
	    snapshot_known_plan(&w->known, w->chunks, n)) {
		free(zeros);
		return snapshot_fail(error, -ENOMEM, "out of memory for %zu chunks", n);
	}
	w->zero_hash = hash_bytes(zeros, SNAPSHOT_CHUNK);
	free(zeros);
	for (size_t r = 0; r < source->nregions; r++)
		for (size_t at = 0; at < source->regions[r].size; at += SNAPSHOT_CHUNK, i++)
			w->chunks[i].address = source->regions[r].address + at;
	memcpy(w->header.magic, SNAPSHOT_MAGIC, sizeof(w->header.magic));
	w->header.version = SNAPSHOT_PLAIN;
	w->header.chunk_size = SNAPSHOT_CHUNK;
	w->header.nchunks = n;
	if (getrandom(w->header.id, sizeof(w->header.id), 0) != sizeof(w->header.id))
		return snapshot_fail(error, -EIO, "getrandom: %s", error_text(errno));
	return 0;
}

static const struct snapshot_run *find_run(const struct snapshot_source *source, uint64_t address)
{
	size_t low = 0, high = source->nruns;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (source->runs[mid].address + source->runs[mid].size <= address)
			low = mid + 1;
		else
			high = mid;
	}
	return low < source->nruns && source->runs[low].address <= address ? &source->runs[low]
									   : NULL;
}

/* Wait until chunk @i is there. */
static int await_chunk(struct snapshot_writer *w, size_t i, struct snapshot_error *error)
{
	const struct snapshot_source *source = w->source;
	int ret = source->wait ? source->wait(source->arg, i) : 0;

	if (ret)
		return snapshot_fail(error, ret, "the memory to save did not arrive");
	if (source->digests)
		w->chunks[i].digest = source->digests[i];
	return 0;
}

/*
 * Put the contents of @chunk in *@data; NULL for zeros, and for contents that the previous snapshot
 * has.
 */
static int get_data(struct snapshot_writer *w, struct snapshot_lane *lane,
		    const struct snapshot_chunk *chunk, const char **data,
		    struct snapshot_error *error)
{
	const struct snapshot_run *run = find_run(w->source, chunk->address);
	int ret;

	*data = NULL;
	if (!run || run->nothing)
		return 0;
	*data = run->host ? run->host + (chunk->address - run->address) : lane->buffer;
	if (run->host)
		return 0;
	if (!lane->buffer)
		*data = lane->buffer = snapshot_io_buffer();
	if (!lane->buffer)
		return snapshot_fail(error, -ENOMEM, "out of memory");
	ret = w->source->read(lane->buffer, SNAPSHOT_CHUNK,
			      run->offset + (chunk->address - run->address));
	return ret ? snapshot_fail(error, ret, "reading the memory to save: %s", error_text(-ret))
		   : 0;
}

static int take_chunk(struct snapshot_writer *w, struct snapshot_lane *lane, size_t i,
		      struct snapshot_error *error)
{
	struct snapshot_chunk *chunk = &w->chunks[i];
	const char *data;
	enum snapshot_novelty novelty;
	int ret = await_chunk(w, i, error);

	if (!ret)
		ret = get_data(w, lane, chunk, &data, error);
	if (ret)
		return ret;
	if (data)
		chunk->hash = hash_bytes(data, SNAPSHOT_CHUNK);
	else if (hash_equal(chunk->digest, (struct hash128){0}))
		chunk->hash = w->zero_hash;
	pthread_mutex_lock(&w->lock);
	if (hash_equal(chunk->hash, w->zero_hash)) {
		w->totals.zero += SNAPSHOT_CHUNK;
		novelty = SNAPSHOT_SEEN_HERE;
	} else {
		novelty = data ? snapshot_known_add(&w->known, i)
			       : snapshot_known_digest(&w->known, i);
		w->totals.duplicate += novelty == SNAPSHOT_SEEN_HERE ? SNAPSHOT_CHUNK : 0;
		w->totals.unchanged += novelty == SNAPSHOT_SEEN_BEFORE ? SNAPSHOT_CHUNK : 0;
		w->totals.written += novelty == SNAPSHOT_NEW ? SNAPSHOT_CHUNK : 0;
	}
	pthread_mutex_unlock(&w->lock);
	if (novelty == SNAPSHOT_NEW && !data)
		return snapshot_fail(error, -EINVAL,
				     "0x%" PRIx64 ": the previous snapshot does not have it",
				     chunk->address);
	if (novelty == SNAPSHOT_NEW)
		return snapshot_lane_put(&w->shared, lane, chunk, data, error);
	__atomic_fetch_add(w->shared.done, SNAPSHOT_CHUNK, __ATOMIC_RELAXED);
	return 0;
}

static void *write_main(void *arg)
{
	struct snapshot_writer *w = arg;
	struct snapshot_lane *lane = &w->lanes[__atomic_fetch_add(&w->nlanes, 1, __ATOMIC_RELAXED)];
	struct snapshot_error error;
	int ret = 0, end;
	size_t i;

	snapshot_flight_init(&w->shared.queue, &lane->flight);
	while (!ret && workers_next(&w->workers, &i))
		ret = take_chunk(w, lane, i, &error);
	/* After a failure the file is removed, so it is not synced. */
	end = snapshot_lane_finish(&w->shared, lane, ret || !workers_go_on(&w->workers), &error);
	snapshot_flight_fini(&lane->flight);
	if (!ret)
		ret = end;
	if (ret) {
		pthread_mutex_lock(&w->lock);
		if (!w->workers.result)
			*w->error = error;
		workers_fail(&w->workers, ret);
		pthread_mutex_unlock(&w->lock);
	}
	return NULL;
}

/* The checksum comes last: it covers all the rest. */
static int write_index(struct snapshot_writer *w, struct snapshot_error *error)
{
	size_t chunks = w->header.nchunks * sizeof(*w->chunks), size = sizeof(w->header) + chunks;
	char name[SNAPSHOT_NAME_SIZE], *data = malloc(size);
	int ret;

	if (!data)
		return snapshot_fail(error, -ENOMEM, "out of memory");
	memcpy(data, &w->header, sizeof(w->header));
	memcpy(data + sizeof(w->header), w->chunks, chunks);
	w->header.checksum = hash_bytes(data, size);
	memcpy(data, &w->header, sizeof(w->header));
	w->index_hash = hash_bytes(data, size);
	snapshot_name(SNAPSHOT_INDEX, w->first, name);
	ret = snapshot_io_write_file(dir_of(w), name, data, size, error);
	free(data);
	return ret;
}

int snapshot_write(struct snapshot_writer *w, const struct snapshot_source *source, size_t *done,
		   const bool *cancel, struct snapshot_error *error)
{
	struct write_signals signals;
	int ret;

	w->source = source;
	w->shared.done = done;
	w->error = error;
	w->workers = (struct workers){.count = count_chunks(source), .cancel = cancel};
	w->totals.bytes = w->workers.count * SNAPSHOT_CHUNK;
	ret = plan_chunks(w, error);
	if (ret)
		return ret;
	snapshot_fail(error, 0, "cancelled");
	write_signals_block(&signals);
	snapshot_queue_init(&w->shared.queue, workers_threads(&w->workers, SNAPSHOT_IO_THREADS));
	ret = workers_run(&w->workers, SNAPSHOT_IO_THREADS, write_main, w);
	snapshot_queue_fini(&w->shared.queue);
	for (size_t i = 0; i < SNAPSHOT_IO_THREADS; i++)
		w->totals.stored += w->lanes[i].size;
	if (!ret) {
		snapshot_known_settle(&w->known);
		ret = write_index(w, error);
	}
	write_signals_unblock(&signals);
	return ret;
}

const struct snapshot_totals *snapshot_totals(const struct snapshot_writer *w)
{
	return &w->totals;
}

static bool is_named(const void *arg, enum snapshot_kind kind, uint32_t number)
{
	const struct snapshot_manifest_parts *parts = arg;

	if (kind == SNAPSHOT_INDEX)
		return number == parts->index;
	for (size_t i = 0; kind == SNAPSHOT_DATA && i < parts->nfiles; i++)
		if (parts->files[i] == number)
			return true;
	return false;
}

static int compare_numbers(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * Put the size of a data file in *@size. One that is kept is synced: the directory may be a copy of
 * ours, which nobody has synced. Returns 0 or a negative errno.
 */
static int settle_file(const struct snapshot_writer *w, uint32_t number, size_t *size,
		       struct snapshot_error *error)
{
	char name[SNAPSHOT_NAME_SIZE];
	struct stat st;
	int fd, ret = 0;

	snapshot_name(SNAPSHOT_DATA, number, name);
	fd = openat(dir_of(w), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || (number < w->first && fsync(fd)))
		ret = snapshot_fail(error, -errno, "%s: %s", name, error_text(errno));
	else
		*size = st.st_size;
	if (fd >= 0)
		close(fd);
	return ret;
}

/* The files of the chunks, by number. Returns 0 or a negative errno. */
static int list_files(struct snapshot_writer *w, uint32_t *files, size_t *sizes, size_t *count,
		      struct snapshot_error *error)
{
	size_t n = 0;
	int ret;

	for (size_t i = 0; i < w->header.nchunks; i++)
		if (w->chunks[i].codec != SNAPSHOT_ZERO)
			files[n++] = w->chunks[i].file;
	qsort(files, n, sizeof(*files), compare_numbers);
	*count = 0;
	for (size_t i = 0; i < n; i++) {
		if (*count && files[*count - 1] == files[i])
			continue;
		ret = settle_file(w, files[i], &sizes[*count], error);
		if (ret)
			return ret;
		files[(*count)++] = files[i];
	}
	return 0;
}

static int commit(struct snapshot_writer *w, const struct snapshot_manifest_parts *parts,
		  const struct snapshot_facts *facts, struct snapshot_error *error)
{
	struct write_signals signals;
	size_t size;
	char *text = snapshot_manifest_make(parts, facts, &size);
	int ret;

	if (!text)
		return snapshot_fail(error, -errno, "its manifest cannot be made: %s",
				     error_text(errno));
	write_signals_block(&signals);
	ret = snapshot_io_write_file(dir_of(w), SNAPSHOT_MANIFEST_NEW, text, size, error);
	write_signals_unblock(&signals);
	if (!ret && !parts->image)
		ret = snapshot_dir_commit(dir_of(w), error);
	if (!ret) {
		w->finished = true;
		earlier = last;
		last = (struct written){w->first, w->index_hash, hash_bytes(text, size)};
	}
	if (!ret && !parts->image)
		ret = snapshot_dir_sync(dir_of(w), error);
	if (!ret && !parts->image)
		snapshot_dir_clean(dir_of(w), is_named, parts);
	free(text);
	return ret;
}

int snapshot_occupy(struct snapshot_writer *w, struct snapshot_error *error)
{
	return snapshot_in_use_set(dir_of(w), error);
}

uint32_t snapshot_number(const struct snapshot_writer *w)
{
	return w->first;
}

const uint8_t *snapshot_id(const struct snapshot_writer *w)
{
	return w->header.id;
}

int snapshot_finish(struct snapshot_writer *w, const struct snapshot_facts *facts, bool image,
		    struct snapshot_error *error)
{
	size_t n = w->header.nchunks + 1;
	uint32_t *files = calloc(n, sizeof(*files));
	size_t *sizes = calloc(n, sizeof(*sizes));
	struct snapshot_manifest_parts parts = {.source = w->source,
						.totals = &w->totals,
						.index = w->first,
						.image = image,
						.index_hash = w->index_hash,
						.files = files,
						.file_sizes = sizes};
	int ret = -ENOMEM;

	memcpy(parts.id, w->header.id, sizeof(parts.id));
	if (files && sizes)
		ret = list_files(w, files, sizes, &parts.nfiles, error);
	else
		snapshot_fail(error, ret, "out of memory");
	if (!ret)
		ret = commit(w, &parts, facts, error);
	/* Also of the new snapshot, if only its sync failed: the memory stays where it is. */
	if (ret)
		snapshot_in_use_clear(dir_of(w), getpid());
	free(files);
	free(sizes);
	return ret;
}

int snapshot_keep(struct snapshot_writer *w, struct snapshot_error *error)
{
	int dir = dir_of(w), ret = snapshot_dir_share(dir, error);

	/* The memory then stays where it is. */
	if (ret) {
		snapshot_in_use_clear(dir, getpid());
		return ret;
	}
	ownfd_set(&w->dir, -1);
	return dir;
}

void snapshot_end(struct snapshot_writer *w)
{
	char name[SNAPSHOT_NAME_SIZE];
	int dir;

	if (!w)
		return;
	for (size_t i = 0; i < SNAPSHOT_IO_THREADS; i++)
		snapshot_lane_fini(&w->shared, &w->lanes[i], w->finished);
	snapshot_name(SNAPSHOT_INDEX, w->first, name);
	if (!w->finished) {
		unlinkat(dir_of(w), name, 0);
		unlinkat(dir_of(w), SNAPSHOT_MANIFEST_NEW, 0);
		snapshot_in_use_clear(dir_of(w), getpid());
	}
	dir = dir_of(w);
	if (dir >= 0)
		snapshot_dir_close(dir);
	snapshot_known_free(&w->known);
	snapshot_index_free(&w->old);
	pthread_mutex_destroy(&w->shared.lock);
	pthread_mutex_destroy(&w->lock);
	free(w->chunks);
	free(w);
}
