/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/manifest_read.h"

#include "checkpoint/snapshot/files/io.h"
#include "common/json_out.h"
#include "common/text.h"
#include "common/gpu/gpu.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAME    SNAPSHOT_MANIFEST
#define INTEGER ((1UL << 60) - 1) /* the largest */

/* Report a value of the manifest that is not as expected. */
static int bad(struct snapshot_error *error, const char *key, const char *expected,
	       const json_t *found)
{
	char *text = found ? json_dumps(found, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII)
			   : NULL;

	snapshot_fail(error, 0, NAME ": %s: expected %s, found %.80s", key, expected,
		      text ? text : "nothing");
	free(text);
	return -EBADMSG;
}

static int get_number(const json_t *object, const char *key, uint64_t most, uint64_t *value,
		      struct snapshot_error *error)
{
	const json_t *number = json_object_get(object, key);
	char expected[64];

	snprintf(expected, sizeof(expected), "an integer from 0 to %" PRIu64, most);
	if (!json_is_integer(number) || json_integer_value(number) < 0 ||
	    (uint64_t)json_integer_value(number) > most)
		return bad(error, key, expected, number);
	*value = json_integer_value(number);
	return 0;
}

static int get_array(const json_t *object, const char *key, size_t most, json_t **array,
		     struct snapshot_error *error)
{
	json_t *found = json_object_get(object, key);

	if (!json_is_array(found) || json_array_size(found) > most)
		return bad(error, key, "an array that is not too long", found);
	*array = found;
	return 0;
}

const char *snapshot_manifest_bytes(const json_t *object, const char *key, char *buf, size_t size)
{
	const char *string = json_string_value(key ? json_object_get(object, key) : object);

	return json_decode(string ? string : "", buf, size);
}

const char *snapshot_manifest_text(const json_t *object, const char *key, char *buf, size_t size)
{
	char bytes[4096];

	format_copy(buf, size, snapshot_manifest_bytes(object, key, bytes, sizeof(bytes)));
	return buf;
}

/* Exactly 32 hexadecimal digits, as two numbers, the first 16 in @high. */
static int get_hex(const json_t *object, const char *key, uint64_t *high, uint64_t *low,
		   struct snapshot_error *error)
{
	const json_t *value = json_object_get(object, key);
	const char *text = json_string_value(value);

	if (!text || strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32 ||
	    sscanf(text, "%16" SCNx64 "%16" SCNx64, high, low) != 2)
		return bad(error, key, "32 hexadecimal digits", value);
	return 0;
}

bool snapshot_manifest_has_part(const struct snapshot_manifest *m, int pid)
{
	for (size_t i = 0; i < m->nparts; i++)
		if (m->parts[i] == pid)
			return true;
	return false;
}

static int get_devices(struct snapshot_manifest *m, struct snapshot_error *error)
{
	json_t *array, *object;
	uint64_t memory, major, minor;
	size_t i;
	int ret = get_array(m->root, "devices", GPU_MAX, &array, error);

	if (ret)
		return ret;
	m->devices = calloc(json_array_size(array) + 1, sizeof(*m->devices));
	if (!m->devices)
		return snapshot_fail(error, -ENOMEM, "out of memory");
	json_array_foreach(array, i, object) {
		struct gpu *device = &m->devices[i];
		uint64_t held = 0;

		if (get_number(object, "memory", INTEGER, &memory, error) ||
		    get_number(object, "major", 1000, &major, error) ||
		    get_number(object, "minor", 1000, &minor, error) ||
		    (json_object_get(object, "held") &&
		     get_number(object, "held", INTEGER, &held, error)))
			return -EBADMSG;
		m->held[i] = held;
		*device = (struct gpu){.memory = memory, .major = major, .minor = minor};
		snapshot_manifest_text(object, "uuid", device->uuid, sizeof(device->uuid));
		snapshot_manifest_text(object, "name", device->name, sizeof(device->name));
	}
	m->ndevices = json_array_size(array);
	return 0;
}

static int get_regions(struct snapshot_manifest *m, struct snapshot_error *error)
{
	json_t *array, *object;
	uint64_t address, size, device, end = 0;
	size_t i;
	int ret = get_array(m->root, "regions", SNAPSHOT_CHUNKS_MAX, &array, error);

	if (ret)
		return ret;
	m->regions = calloc(json_array_size(array) + 1, sizeof(*m->regions));
	if (!m->regions)
		return snapshot_fail(error, -ENOMEM, "out of memory");
	json_array_foreach(array, i, object) {
		if (get_number(object, "address", INTEGER, &address, error) ||
		    get_number(object, "size", SNAPSHOT_CHUNKS_MAX * SNAPSHOT_CHUNK, &size,
			       error) ||
		    get_number(object, "device", GPU_MAX, &device, error))
			return -EBADMSG;
		if (address % SNAPSHOT_CHUNK || size % SNAPSHOT_CHUNK || !size)
			return bad(error, "regions", "multiples of 2 MiB", object);
		if (device >= m->ndevices)
			return bad(error, "regions", "one of the devices", object);
		if (address < end)
			return bad(error, "regions", "no overlap, and ascending addresses", object);
		end = address + size;
		m->regions[i] = (struct snapshot_region){address, size, device};
	}
	m->nregions = json_array_size(array);
	return 0;
}

static int check_mappings(const json_t *object, struct snapshot_error *error)
{
	uint64_t address, size, offset;
	json_t *array, *mapping;
	size_t i;
	int ret = get_array(object, "mappings", SNAPSHOT_CHUNKS_MAX, &array, error);

	if (ret)
		return ret;
	json_array_foreach(array, i, mapping) {
		if (get_number(mapping, "address", INTEGER, &address, error) ||
		    get_number(mapping, "size", INTEGER, &size, error) ||
		    get_number(mapping, "offset", INTEGER, &offset, error))
			return -EBADMSG;
	}
	return 0;
}

/* Each object is one of the regions, and both are in ascending order. */
static int check_objects(const struct snapshot_manifest *m, struct snapshot_error *error)
{
	json_t *array, *object;
	uint64_t address;
	size_t i, region = 0;
	int ret = get_array(m->root, "objects", m->nregions, &array, error);

	if (ret)
		return ret;
	json_array_foreach(array, i, object) {
		if (get_number(object, "address", INTEGER, &address, error))
			return -EBADMSG;
		while (region < m->nregions && m->regions[region].address < address)
			region++;
		if (region == m->nregions || m->regions[region].address != address)
			return bad(error, "objects", "the address of a region, ascending", object);
		region++;
		ret = check_mappings(object, error);
		if (ret)
			return ret;
	}
	return 0;
}

static int get_data(struct snapshot_manifest *m, struct snapshot_error *error)
{
	json_t *array, *object;
	uint64_t number, size;
	size_t i;
	int ret = get_array(m->root, "data", SNAPSHOT_CHUNKS_MAX, &array, error);

	if (ret)
		return ret;
	m->data = calloc(json_array_size(array) + 1, sizeof(*m->data));
	if (!m->data)
		return snapshot_fail(error, -ENOMEM, "out of memory");
	json_array_foreach(array, i, object) {
		if (get_number(object, "number", SNAPSHOT_NUMBER_MAX, &number, error) ||
		    get_number(object, "size", INTEGER, &size, error))
			return -EBADMSG;
		if (i && number <= m->data[i - 1].number)
			return bad(error, "data", "ascending numbers", object);
		m->data[i] = (struct snapshot_data){number, size};
	}
	m->ndata = json_array_size(array);
	return 0;
}

static int get_totals(struct snapshot_manifest *m, struct snapshot_error *error)
{
	const json_t *totals = json_object_get(m->root, "totals");
	const struct {
		const char *key;
		size_t *value;
	} fields[] = {
		{"bytes", &m->totals.bytes},         {"zero", &m->totals.zero},
		{"duplicate", &m->totals.duplicate}, {"unchanged", &m->totals.unchanged},
		{"written", &m->totals.written},     {"stored", &m->totals.stored},
	};
	uint64_t value;

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (get_number(totals, fields[i].key, INTEGER, &value, error))
			return -EBADMSG;
		*fields[i].value = value;
	}
	return 0;
}

static int get_index(struct snapshot_manifest *m, struct snapshot_error *error)
{
	const json_t *index = json_object_get(m->root, "index");
	uint64_t number;

	if (get_number(index, "number", SNAPSHOT_NUMBER_MAX, &number, error) ||
	    get_hex(index, "hash", &m->index_hash.high, &m->index_hash.low, error))
		return -EBADMSG;
	m->index = number;
	m->image = json_is_true(json_object_get(m->root, "image"));
	return 0;
}

static int get_heads(struct snapshot_manifest *m, struct snapshot_error *error)
{
	const json_t *process = json_object_get(m->root, "process");
	uint64_t created, pid, cuda, gpus = 0, id[2];

	if (get_number(m->root, "created", 1UL << 40, &created, error) ||
	    get_number(process, "pid", INT32_MAX, &pid, error) ||
	    get_number(m->root, "cuda", INT32_MAX, &cuda, error) ||
	    (json_object_get(m->root, "gpus") &&
	     get_number(m->root, "gpus", INT32_MAX, &gpus, error)) ||
	    get_hex(m->root, "id", &id[0], &id[1], error))
		return -EBADMSG;
	m->created = created;
	m->pid = pid;
	m->cuda = cuda;
	m->gpus = gpus;
	for (int i = 0; i < 16; i++)
		m->id[i] = id[i / 8] >> (56 - i % 8 * 8);
	snapshot_manifest_text(m->root, "cudaw", m->cudaw, sizeof(m->cudaw));
	snapshot_manifest_text(m->root, "driver", m->driver, sizeof(m->driver));
	return 0;
}

/* The ids are different, and its own is one of them. */
static int get_parts(struct snapshot_manifest *m, struct snapshot_error *error)
{
	json_t *array, *value;
	size_t i;
	int ret = get_array(m->root, "parts", SNAPSHOT_PARTS_MAX, &array, error);

	if (ret)
		return ret;
	json_array_foreach(array, i, value) {
		json_int_t pid = json_is_integer(value) ? json_integer_value(value) : 0;

		if (pid <= 0 || pid > INT32_MAX || snapshot_manifest_has_part(m, pid))
			return bad(error, "parts", "different process ids", array);
		m->parts[m->nparts++] = pid;
	}
	if (m->nparts < 2 || !snapshot_manifest_has_part(m, m->pid))
		return bad(error, "parts", "several process ids with that of this process", array);
	return 0;
}

enum kind { A_TEXT, TEXT_OR_NULL, TEXTS, A_NUMBER, A_TIME, A_BOOLEAN };

static bool is_text(const json_t *value)
{
	const char *text = json_string_value(value);

	/*
	 * A character above U+00FF does not stand for a byte; its UTF-8 begins with 0xc4 or more.
	 */
	while (text && *text && (unsigned char)*text < 0xc4)
		text++;
	return text && !*text;
}

static bool is_kind(const json_t *value, enum kind kind)
{
	const json_t *text;
	size_t i;

	switch (kind) {
	case A_TEXT:
		return is_text(value);
	case TEXT_OR_NULL:
		return is_text(value) || json_is_null(value);
	case TEXTS:
		json_array_foreach(value, i, text) {
			if (!is_text(text))
				return false;
		}
		return json_is_array(value);
	case A_NUMBER:
		return json_is_integer(value) && json_integer_value(value) >= 0 &&
		       (uint64_t)json_integer_value(value) <= INTEGER;
	case A_TIME:
		return json_is_number(value) && json_number_value(value) >= 0;
	default:
		return json_is_boolean(value);
	}
}

/* The values that no function above checks while it uses them. */
static const struct field {
	const char *in; /* the object that has the key; NULL: the manifest */
	bool each;      /* "in" is an array, and each of its objects has the key */
	const char *key;
	enum kind kind;
} manifest_fields[] = {
	{NULL, false, "cudaw", A_TEXT},
	{NULL, false, "driver", TEXT_OR_NULL},
	{NULL, false, "image", A_BOOLEAN},
	{"process", false, "uid", A_NUMBER},
	{"process", false, "job", A_TEXT},
	{"process", false, "name", TEXT_OR_NULL},
	{"process", false, "command", TEXTS},
	{"process", false, "exe", TEXT_OR_NULL},
	{"process", false, "cwd", TEXT_OR_NULL},
	{"process", false, "runtime_dir", TEXT_OR_NULL},
	{"devices", true, "uuid", A_TEXT},
	{"devices", true, "name", A_TEXT},
	{"contexts", true, "device", A_NUMBER},
	{"contexts", true, "primary", A_BOOLEAN},
	{"phases", true, "name", A_TEXT},
	{"phases", true, "ms", A_TIME},
	{"files", true, "path", A_TEXT},
	{"files", true, "size", A_NUMBER},
	{"files", true, "build_id", TEXT_OR_NULL},
};

static int check_field(const json_t *object, const struct field *field,
		       struct snapshot_error *error)
{
	static const char *const texts[] = {
		[A_TEXT] = "a string of U+0001 to U+00FF",
		[TEXT_OR_NULL] = "a string of U+0001 to U+00FF, or null",
		[TEXTS] = "an array of strings of U+0001 to U+00FF",
		[A_NUMBER] = "an integer from 0 to 2^60 - 1",
		[A_TIME] = "a number from 0 on",
		[A_BOOLEAN] = "true or false",
	};
	const json_t *value = json_object_get(object, field->key);
	char name[64];

	if (is_kind(value, field->kind))
		return 0;
	snprintf(name, sizeof(name), "%s%s%s", field->in ? field->in : "", field->in ? "." : "",
		 field->key);
	return bad(error, name, texts[field->kind], value);
}

static int check_fields(const struct snapshot_manifest *m, const struct field *field,
			struct snapshot_error *error)
{
	const json_t *in = field->in ? json_object_get(m->root, field->in) : m->root, *object;
	size_t i;

	if (!field->each)
		return check_field(in, field, error);
	if (!json_is_array(in))
		return bad(error, field->in, "an array", in);
	json_array_foreach(in, i, object) {
		if (check_field(object, field, error))
			return -EBADMSG;
	}
	return 0;
}

static int check_rest(const struct snapshot_manifest *m, struct snapshot_error *error)
{
	for (size_t i = 0; i < sizeof(manifest_fields) / sizeof(manifest_fields[0]); i++)
		if (check_fields(m, &manifest_fields[i], error))
			return -EBADMSG;
	return 0;
}

/* Format and version come first: everything else may differ in another version. */
static int check_format(const json_t *root, const char *text, size_t size, uint64_t *version,
			struct snapshot_error *error)
{
	const char *format = json_string_value(json_object_get(root, "format"));
	bool sealed = snapshot_is_sealed(text, size);

	if (!format || strcmp(format, SNAPSHOT_FORMAT))
		return bad(error, "format", "\"" SNAPSHOT_FORMAT "\"",
			   json_object_get(root, "format"));
	if (get_number(root, "version", INT32_MAX, version, error))
		return -EBADMSG;
	/*
	 * A newer version ends with its checksum, too. If that does not match, the version itself
	 * is damaged.
	 */
	if (*version > SNAPSHOT_VERSION && sealed)
		return snapshot_fail(error, -ENOTSUP,
				     NAME ": version %" PRIu64 " is newer than this cudaw, which "
					  "knows %d",
				     *version, SNAPSHOT_VERSION);
	if (*version < SNAPSHOT_PLAIN)
		return bad(error, "version", "1 to 4", json_object_get(root, "version"));
	if (!sealed)
		return snapshot_fail(error, -EBADMSG,
				     NAME ": damaged: its checksum is not that of its contents");
	return 0;
}

int snapshot_manifest_load(int dir, const char *name, struct snapshot_manifest *manifest,
			   struct snapshot_error *error)
{
	struct snapshot_manifest m = {0};
	uint64_t version = 0;
	json_error_t json;
	size_t size;
	char *text;
	int ret = snapshot_io_read_file(dir, name, SNAPSHOT_MANIFEST_MAX, &text, &size, error);

	if (ret == -ENOENT)
		return snapshot_fail(error, ret,
				     NAME ": it is missing: this is not a snapshot, or it was "
					  "never finished");
	if (ret)
		return ret;
	m.root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &json);
	if (!json_is_object(m.root))
		ret = snapshot_fail(error, -EBADMSG, NAME ": line %d: expected JSON: %.100s",
				    json.line, json.text);
	else
		ret = check_format(m.root, text, size, &version, error);
	free(text);
	if (!ret)
		ret = get_heads(&m, error);
	if (!ret && version >= SNAPSHOT_VERSION)
		ret = get_parts(&m, error);
	if (!ret)
		ret = get_devices(&m, error);
	if (!ret)
		ret = get_regions(&m, error);
	if (!ret && version >= SNAPSHOT_OBJECTS)
		ret = check_objects(&m, error);
	if (!ret)
		ret = get_data(&m, error);
	if (!ret)
		ret = get_totals(&m, error);
	if (!ret)
		ret = get_index(&m, error);
	if (!ret)
		ret = check_rest(&m, error);
	if (ret)
		snapshot_manifest_free(&m);
	else
		*manifest = m;
	return ret;
}

void snapshot_manifest_free(struct snapshot_manifest *m)
{
	json_decref(m->root);
	free(m->devices);
	free(m->regions);
	free(m->data);
	memset(m, 0, sizeof(*m));
}

bool snapshot_manifest_names(const void *arg, enum snapshot_kind kind, uint32_t number)
{
	const struct snapshot_manifest *m = arg;

	if (kind != SNAPSHOT_DATA)
		return number == m->index &&
		       (kind == SNAPSHOT_INDEX || (kind == SNAPSHOT_HOST && m->image) ||
			(kind == SNAPSHOT_PARTS && m->nparts));
	for (size_t i = 0; i < m->ndata; i++)
		if (m->data[i].number == number)
			return true;
	return false;
}
