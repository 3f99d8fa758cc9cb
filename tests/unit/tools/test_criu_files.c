/* SPDX-License-Identifier: Apache-2.0 */
/* The list of files in a CRIU image: written here as CRIU writes it, whole and damaged. */
#include "tools/process/criu/criu_files.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMON 0x54564319u
#define FILES  0x56303138u
#define REMAP  0x59133954u

static char base[] = "/tmp/test-criu-files-XXXXXX";
static int directory;

/* Bytes that are put together; the messages of Protocol Buffers nest. */
struct bytes {
	uint8_t data[8192];
	size_t n;
};

static void put(struct bytes *b, const void *data, size_t n)
{
	ck_assert_uint_le(b->n + n, sizeof(b->data));
	memcpy(b->data + b->n, data, n);
	b->n += n;
}

static void put_u32(struct bytes *b, uint32_t value)
{
	put(b, &value, sizeof(value));
}

static void put_varint(struct bytes *b, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		put(b, &(uint8_t){(uint8_t)value | 0x80}, 1);
	put(b, &(uint8_t){(uint8_t)value}, 1);
}

static void put_number(struct bytes *b, uint32_t field, uint64_t value)
{
	put_varint(b, field << 3);
	put_varint(b, value);
}

static void put_bytes(struct bytes *b, uint32_t field, const void *data, size_t n)
{
	put_varint(b, field << 3 | 2);
	put_varint(b, n);
	put(b, data, n);
}

static void put_message(struct bytes *image, const struct bytes *message)
{
	put_u32(image, message->n);
	put(image, message->data, message->n);
}

static struct bytes image(uint32_t magic)
{
	struct bytes b = {.n = 0};

	put_u32(&b, COMMON);
	put_u32(&b, magic);
	return b;
}

/* A regular file; the fields that nobody asks for are of all kinds. */
static void put_file(struct bytes *files, uint32_t id, const char *name, uint32_t mode,
		     int64_t size, bool external)
{
	struct bytes reg = {.n = 0}, entry = {.n = 0};

	put_number(&reg, 1, id);
	put_number(&reg, 2, S_ISDIR(mode) ? O_RDONLY | O_DIRECTORY : O_WRONLY | O_APPEND);
	put_number(&reg, 3, UINT64_MAX);
	put_bytes(&reg, 5, "\x08\x00", 2);
	put_bytes(&reg, 6, name, strlen(name));
	if (size >= 0)
		put_number(&reg, 8, size);
	if (external)
		put_number(&reg, 9, 1);
	put_number(&reg, 10, mode);
	put_varint(&reg, 90 << 3 | 1);
	put(&reg, "8 bytes.", 8);
	put_varint(&reg, 91 << 3 | 5);
	put(&reg, "four", 4);
	put_number(&entry, 1, 1);
	put_number(&entry, 2, id);
	put_bytes(&entry, 3, reg.data, reg.n);
	put_message(files, &entry);
}

static void put_socket(struct bytes *files, const char *name, size_t len, uint32_t uid,
		       bool deleted)
{
	struct bytes perms = {.n = 0}, socket = {.n = 0}, entry = {.n = 0};

	put_number(&perms, 1, 0700);
	put_number(&perms, 2, uid);
	put_bytes(&socket, 11, name, len);
	put_bytes(&socket, 13, perms.data, perms.n);
	put_number(&socket, 15, deleted);
	put_number(&entry, 1, 5);
	put_bytes(&entry, 16, socket.data, socket.n);
	put_message(files, &entry);
}

static void store(const char *name, const struct bytes *b)
{
	int fd = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, b->data, b->n), b->n);
	close(fd);
}

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(base));
	directory = open(base, O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(directory, 0);
}

static void teardown(void)
{
	unlinkat(directory, "files.img", 0);
	unlinkat(directory, "remap-fpath.img", 0);
	close(directory);
	rmdir(base);
}

/* What every test of damage begins with. */
static struct bytes good(void)
{
	struct bytes files = image(FILES), deleted = image(REMAP), entry = {.n = 0};

	put_number(&entry, 1, 9);
	put_number(&entry, 2, 100);
	put_message(&deleted, &entry);
	store("remap-fpath.img", &deleted);
	put_file(&files, 7, "/data/log", S_IFREG | 0644, 1234, false);
	put_file(&files, 8, "/data", S_IFDIR | 0755, -1, false);
	put_file(&files, 9, "/tmp/gone", S_IFREG | 0600, 5, false);
	put_file(&files, 10, "inherited", S_IFREG | 0600, 5, true);
	put_socket(&files, "/run/a", 6, 1000, false);
	put_socket(&files, "\0abstract", 9, 0, false);
	put_socket(&files, "/run/deleted", 12, 0, true);
	store("files.img", &files);
	return files;
}

START_TEST(what_has_to_be_there)
{
	struct criu_files files;

	good();
	ck_assert_int_eq(criu_files_read(directory, &files), 0);
	ck_assert_uint_eq(files.n, 3);
	ck_assert_str_eq(files.list[0].path, "/data/log");
	ck_assert_uint_eq(files.list[0].mode, S_IFREG | 0644);
	ck_assert(files.list[0].sized && files.list[0].written);
	ck_assert_uint_eq(files.list[0].size, 1234);
	ck_assert_str_eq(files.list[1].path, "/data");
	ck_assert(!files.list[1].sized && !files.list[1].written && !files.list[1].socket);
	ck_assert_str_eq(files.list[2].path, "/run/a");
	ck_assert(files.list[2].socket);
	ck_assert_uint_eq(files.list[2].uid, 1000);
	ck_assert(!files.terminal);
	criu_files_free(&files);
	criu_files_free(&files);
}
END_TEST

START_TEST(a_terminal_is_seen)
{
	struct bytes b = good(), entry = {.n = 0};
	struct criu_files files;

	put_number(&entry, 1, 11);
	put_message(&b, &entry);
	store("files.img", &b);
	ck_assert_int_eq(criu_files_read(directory, &files), 0);
	ck_assert(files.terminal);
	ck_assert_uint_eq(files.n, 3);
	criu_files_free(&files);
}
END_TEST

START_TEST(no_file_is_deleted_without_a_list)
{
	struct criu_files files;

	good();
	unlinkat(directory, "remap-fpath.img", 0);
	ck_assert_int_eq(criu_files_read(directory, &files), 0);
	ck_assert_uint_eq(files.n, 4);
	criu_files_free(&files);
	unlinkat(directory, "files.img", 0);
	ck_assert_int_eq(criu_files_read(directory, &files), -ENOENT);
	ck_assert_ptr_null(files.list);
}
END_TEST

START_TEST(many_files)
{
	struct bytes b = image(FILES);
	struct criu_files files;
	char name[16];

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "/%d", i);
		put_file(&b, i, name, S_IFREG, i, false);
	}
	store("files.img", &b);
	ck_assert_int_eq(criu_files_read(directory, &files), 0);
	ck_assert_uint_eq(files.n, 100);
	ck_assert_str_eq(files.list[99].path, "/99");
	criu_files_free(&files);
}
END_TEST

/* At each length it is refused, or is whole up to a message's end. */
START_TEST(a_truncated_image_is_refused)
{
	struct bytes b = good();
	size_t whole = b.n, refused = 0;
	struct criu_files files;

	for (b.n = 0; b.n < whole; b.n++) {
		int ret;

		store("files.img", &b);
		ret = criu_files_read(directory, &files);
		ck_assert_msg(!ret || ret == -EBADMSG, "%zu bytes: %d", b.n, ret);
		ck_assert_msg(ret || b.n >= 8, "%zu bytes were taken", b.n);
		refused += ret != 0;
		if (!ret)
			criu_files_free(&files);
	}
	ck_assert_uint_eq(refused, whole - 7);
}
END_TEST

START_TEST(another_magic_is_refused)
{
	struct bytes b = image(REMAP);
	struct criu_files files;

	store("files.img", &b);
	ck_assert_int_eq(criu_files_read(directory, &files), -EBADMSG);
	good();
	b = image(FILES);
	store("remap-fpath.img", &b);
	ck_assert_int_eq(criu_files_read(directory, &files), -EBADMSG);
}
END_TEST

/* Lengths beyond the end and up to 2^64, numbers that do not end, groups. */
START_TEST(hostile_messages_are_refused)
{
	static const struct {
		const char *bytes;
		size_t n;
	} messages[] = {
		{"\x1a\x05xxxx", 6},
		{"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},
		{"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12},
		{"\x08", 1},
		{"\x0b\x0c", 2},
		{"\x09xxx", 4},
		{"\x1a\x04\x32\x7fxx", 6},
	};
	struct criu_files files;

	for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
		struct bytes b = image(FILES), message = {.n = 0};

		put(&message, "\x08\x01", 2);
		put(&message, messages[i].bytes, messages[i].n);
		put_message(&b, &message);
		store("files.img", &b);
		ck_assert_msg(criu_files_read(directory, &files) == -EBADMSG, "message %zu", i);
		ck_assert_ptr_null(files.list);
	}
}
END_TEST

START_TEST(random_bytes_never_crash)
{
	struct bytes whole = good();
	struct criu_files files;

	srandom(4);
	for (int i = 0; i < 3000; i++) {
		struct bytes b = whole;

		for (int k = random() % 6; k >= 0; k--)
			b.data[8 + random() % (b.n - 8)] = random();
		store("files.img", &b);
		if (!criu_files_read(directory, &files))
			criu_files_free(&files);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("criu_files");
	TCase *tcase = tcase_create("criu_files");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, what_has_to_be_there);
	tcase_add_test(tcase, a_terminal_is_seen);
	tcase_add_test(tcase, no_file_is_deleted_without_a_list);
	tcase_add_test(tcase, many_files);
	tcase_add_test(tcase, a_truncated_image_is_refused);
	tcase_add_test(tcase, another_magic_is_refused);
	tcase_add_test(tcase, hostile_messages_are_refused);
	tcase_add_test(tcase, random_bytes_never_crash);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
