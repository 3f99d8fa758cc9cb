/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/criu_files.h"

#include "checkpoint/snapshot/files/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMON_MAGIC 0x54564319u
#define FILES_MAGIC  0x56303138u
#define REMAP_MAGIC  0x59133954u
#define IMAGE_MAX    (256UL << 20)

/* The numbers of fields and types in CRIU's .proto files. */
enum { FILE_TYPE = 1, FILE_ID = 2, FILE_REG = 3, FILE_SOCKET = 16 };
enum { TYPE_REG = 1, TYPE_SOCKET = 5, TYPE_TTY = 11 };
enum { REG_FLAGS = 2, REG_NAME = 6, REG_SIZE = 8, REG_EXTERNAL = 9, REG_MODE = 10 };
enum { SOCKET_NAME = 11, SOCKET_PERMS = 13, SOCKET_DELETED = 15, PERMS_UID = 2 };
enum { REMAP_ORIGINAL = 1 };
enum { WIRE_NUMBER = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* A part of an image. Reading beyond its end sets bad and yields zeros. */
struct reader {
	const uint8_t *at, *end;
	bool bad;
};

struct field {
	uint32_t number;
	uint64_t value;       /* WIRE_NUMBER */
	struct reader inside; /* WIRE_BYTES */
};

static struct reader take(struct reader *r, uint64_t size)
{
	struct reader part = {.at = r->at, .end = r->at};

	if (size > (uint64_t)(r->end - r->at)) {
		r->bad = true;
		r->at = r->end;
	} else {
		part.end = r->at += size;
	}
	return part;
}

static uint32_t take_u32(struct reader *r)
{
	struct reader bytes = take(r, sizeof(uint32_t));
	uint32_t value = 0;

	if (bytes.at != bytes.end)
		memcpy(&value, bytes.at, sizeof(value));
	return value;
}

static uint64_t take_varint(struct reader *r)
{
	uint64_t value = 0;

	for (int shift = 0; shift < 64; shift += 7) {
		struct reader byte = take(r, 1);

		if (byte.at == byte.end)
			return 0;
		value |= (uint64_t)(*byte.at & 0x7f) << shift;
		if (*byte.at < 0x80)
			return value;
	}
	r->bad = true;
	return 0;
}

/* The next field of a message; false at its end, or if it is malformed. */
static bool take_field(struct reader *r, struct field *field)
{
	uint64_t key;

	if (r->bad || r->at == r->end)
		return false;
	key = take_varint(r);
	*field = (struct field){.number = key >> 3};
	switch (key & 7) {
	case WIRE_NUMBER:
		field->value = take_varint(r);
		break;
	case WIRE_FIXED64:
		take(r, 8);
		break;
	case WIRE_FIXED32:
		take(r, 4);
		break;
	case WIRE_BYTES:
		field->inside = take(r, take_varint(r));
		break;
	default:
		r->bad = true;
	}
	return !r->bad;
}

/* The next message of an image. */
static bool take_message(struct reader *image, struct reader *message)
{
	if (image->bad || image->at == image->end)
		return false;
	*message = take(image, take_u32(image));
	return !image->bad;
}

/* The whole image in *@text, to be freed, and its messages. -ENOENT: there is none. */
static int open_image(int directory, const char *name, uint32_t magic, char **text,
		      struct reader *image)
{
	struct snapshot_error error;
	size_t size;
	int ret = snapshot_io_read_file(directory, name, IMAGE_MAX, text, &size, &error);

	if (ret)
		return ret;
	image->at = (const uint8_t *)*text;
	image->end = image->at + size;
	if (take_u32(image) == COMMON_MAGIC && take_u32(image) == magic)
		return 0;
	free(*text);
	return -EBADMSG;
}

struct ids {
	uint32_t *list;
	size_t n;
};

/* Make room for one more element in an array that grows by doubling. */
static int grow(void **array, size_t n, size_t size)
{
	void *bigger;

	if (n & (n - 1) || n == 1)
		return 0;
	bigger = realloc(*array, (n ? 2 * n : 2) * size);
	if (!bigger)
		return -ENOMEM;
	*array = bigger;
	return 0;
}

/* The ids of deleted files, which CRIU restores itself. */
static int read_deleted(int directory, struct ids *ids)
{
	struct reader image = {0}, message;
	struct field field;
	char *text;
	int ret = open_image(directory, "remap-fpath.img", REMAP_MAGIC, &text, &image);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	while (!ret && take_message(&image, &message)) {
		while (!ret && take_field(&message, &field)) {
			if (field.number != REMAP_ORIGINAL)
				continue;
			ret = grow((void **)&ids->list, ids->n, sizeof(*ids->list));
			if (!ret)
				ids->list[ids->n++] = field.value;
		}
		image.bad |= message.bad;
	}
	free(text);
	return image.bad ? -EBADMSG : ret;
}

static void set_path(struct criu_file *file, const struct reader *name)
{
	snprintf(file->path, sizeof(file->path), "%.*s", (int)(name->end - name->at),
		 (const char *)name->at);
}

/* False if the file does not come from the file system. */
static bool take_regular(struct reader *message, struct criu_file *file)
{
	bool external = false;
	struct field field;

	*file = (struct criu_file){0};
	while (take_field(message, &field)) {
		if (field.number == REG_NAME)
			set_path(file, &field.inside);
		else if (field.number == REG_FLAGS)
			file->written = (field.value & O_ACCMODE) != O_RDONLY;
		else if (field.number == REG_MODE)
			file->mode = field.value;
		else if (field.number == REG_EXTERNAL)
			external = field.value;
		else if (field.number == REG_SIZE) {
			file->sized = true;
			file->size = field.value;
		}
	}
	return !external && *file->path == '/';
}

/* False if it has no path in the file system. */
static bool take_socket(struct reader *message, struct criu_file *file)
{
	bool deleted = false;
	struct field field, perm;

	*file = (struct criu_file){.socket = true};
	while (take_field(message, &field)) {
		if (field.number == SOCKET_NAME)
			set_path(file, &field.inside);
		else if (field.number == SOCKET_DELETED)
			deleted = field.value;
		while (field.number == SOCKET_PERMS && take_field(&field.inside, &perm))
			if (perm.number == PERMS_UID)
				file->uid = perm.value;
	}
	return !deleted && *file->path == '/';
}

static bool has(const struct ids *ids, uint32_t id)
{
	for (size_t i = 0; i < ids->n; i++)
		if (ids->list[i] == id)
			return true;
	return false;
}

static int take_file(struct reader *message, const struct ids *deleted, struct criu_files *files)
{
	struct reader regular = {0}, socket = {0};
	uint32_t type = 0, id = 0;
	struct field field;
	int ret;

	while (take_field(message, &field)) {
		if (field.number == FILE_TYPE)
			type = field.value;
		else if (field.number == FILE_ID)
			id = field.value;
		else if (field.number == FILE_REG)
			regular = field.inside;
		else if (field.number == FILE_SOCKET)
			socket = field.inside;
	}
	files->terminal |= type == TYPE_TTY;
	ret = grow((void **)&files->list, files->n, sizeof(*files->list));
	if (ret)
		return ret;
	if (type == TYPE_REG && !has(deleted, id))
		files->n += take_regular(&regular, &files->list[files->n]);
	else if (type == TYPE_SOCKET)
		files->n += take_socket(&socket, &files->list[files->n]);
	return message->bad || regular.bad || socket.bad ? -EBADMSG : 0;
}

int criu_files_read(int directory, struct criu_files *files)
{
	struct reader image = {0}, message;
	struct ids deleted = {0};
	char *text = NULL;
	int ret;

	*files = (struct criu_files){0};
	ret = read_deleted(directory, &deleted);
	if (!ret)
		ret = open_image(directory, "files.img", FILES_MAGIC, &text, &image);
	if (!ret) {
		while (!ret && take_message(&image, &message))
			ret = take_file(&message, &deleted, files);
		if (image.bad)
			ret = -EBADMSG;
		free(text);
	}
	free(deleted.list);
	if (ret)
		criu_files_free(files);
	return ret;
}

void criu_files_free(struct criu_files *files)
{
	free(files->list);
	*files = (struct criu_files){0};
}
