/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels in PTX text:
 *
 *	.visible .entry NAME(
 *		.param .align 8 .b8 NAME_param_0[24],
 *		.param .u64 .ptr .global .align 16 NAME_param_1
 *	)
 *
 * Everything else is skipped. A parameter is aligned to its `.align`, or else to its size; an
 * `.align` behind `.ptr` is that of the pointee. Offsets count from the start of the parameter
 * buffer, which itself is aligned to 16 bytes at least.
 */
#include "kparams/internal.h"
#include "common/ascii.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BUFFER      65535
#define KNOWN_ALIGNMENT 16 /* of the parameter buffer, on every architecture */

struct word {
	const char *text;
	size_t len;
};

struct ptx {
	const char *start, *pos, *end;
	/* The next of each, at or after pos; end if there is none. See next_entry(). */
	const char *next_slash, *next_quote;
	struct kp_error *err;
};

/* A parameter as it is being read. */
struct declared {
	bool typed, reference, pointer, aligned;
	uint32_t element, align;
	uint64_t count;
	uint8_t space;
};

static const struct {
	const char *name;
	uint8_t size; /* 0: a texture, sampler or surface reference */
} types[] = {
	{".b8", 1},         {".u8", 1},      {".s8", 1},    {".b16", 2},    {".u16", 2},
	{".s16", 2},        {".f16", 2},     {".bf16", 2},  {".b32", 4},    {".u32", 4},
	{".s32", 4},        {".f32", 4},     {".f16x2", 4}, {".bf16x2", 4}, {".b64", 8},
	{".u64", 8},        {".s64", 8},     {".f64", 8},   {".b128", 16},  {".texref", 0},
	{".samplerref", 0}, {".surfref", 0},
};

/* State spaces of pointers, numbered as in cubins. */
static const char *const spaces[] = {NULL, ".local", ".shared", ".const", ".global", ".generic"};

static int bad(const struct ptx *ptx, int code, const char *what)
{
	return kp_fail(ptx->err, code, ptx->pos - ptx->start, "%s", what);
}

static bool is_word_char(char c)
{
	return ascii_is_alnum(c) || c == '_' || c == '$' || c == '.' || c == '%';
}

/* The next @c at or after @from; the end if there is none. */
static const char *find(const struct ptx *ptx, const char *from, char c)
{
	const char *found = memchr(from, c, ptx->end - from);

	return found ? found : ptx->end;
}

static void skip_comment(struct ptx *ptx)
{
	const char *at = ptx->pos + 2;

	if (ptx->pos[1] == '/') {
		ptx->pos = find(ptx, at, '\n');
		return;
	}
	do {
		at = find(ptx, at, '*');
		at += at < ptx->end;
	} while (at < ptx->end && *at != '/');
	ptx->pos = at < ptx->end ? at + 1 : ptx->end;
}

static bool at_comment(const struct ptx *ptx)
{
	return ptx->end - ptx->pos >= 2 && ptx->pos[0] == '/' &&
	       (ptx->pos[1] == '/' || ptx->pos[1] == '*');
}

static void skip_space(struct ptx *ptx)
{
	while (ptx->pos < ptx->end) {
		if (ascii_is_space(*ptx->pos))
			ptx->pos++;
		else if (at_comment(ptx))
			skip_comment(ptx);
		else
			return;
	}
}

/* The next word; of no length if there is none. */
static struct word next_word(struct ptx *ptx)
{
	struct word word;

	skip_space(ptx);
	word.text = ptx->pos;
	while (ptx->pos < ptx->end && is_word_char(*ptx->pos))
		ptx->pos++;
	word.len = ptx->pos - word.text;
	return word;
}

static bool accept(struct ptx *ptx, char c)
{
	skip_space(ptx);
	if (ptx->pos == ptx->end || *ptx->pos != c)
		return false;
	ptx->pos++;
	return true;
}

static bool is(struct word word, const char *text)
{
	return word.len == strlen(text) && !memcmp(word.text, text, word.len);
}

static bool to_number(struct word word, uint64_t *out)
{
	uint64_t n = 0;

	if (!word.len || word.len > 9)
		return false;
	for (size_t i = 0; i < word.len; i++) {
		if (!ascii_is_digit(word.text[i]))
			return false;
		n = 10 * n + (word.text[i] - '0');
	}
	*out = n;
	return true;
}

/* Take ".align N". */
static int read_align(struct ptx *ptx, struct declared *d)
{
	uint64_t n;

	if (!to_number(next_word(ptx), &n) || !n || n & (n - 1) || n > 4096)
		return bad(ptx, -EBADMSG, "an alignment that is not a small power of two");
	/* Behind .ptr it is not the parameter's. */
	if (!d->pointer) {
		d->aligned = true;
		d->align = n;
	}
	return 0;
}

/* Take one word that begins with a dot. */
static int read_attribute(struct ptx *ptx, struct word word, struct declared *d)
{
	if (is(word, ".align"))
		return read_align(ptx, d);
	if (is(word, ".ptr")) {
		d->pointer = true;
		d->space = 5;
		return 0;
	}
	for (size_t i = 1; d->pointer && i < sizeof(spaces) / sizeof(spaces[0]); i++) {
		if (is(word, spaces[i])) {
			d->space = i;
			return 0;
		}
	}
	for (size_t i = 0; !d->typed && i < sizeof(types) / sizeof(types[0]); i++) {
		if (is(word, types[i].name)) {
			d->typed = true;
			d->element = types[i].size;
			d->reference = !types[i].size;
			return 0;
		}
	}
	return kp_fail(ptx->err, -ENOTSUP, word.text - ptx->start, "a parameter with %.*s",
		       word.len < 40 ? (int)word.len : 40, word.text);
}

static int read_param(struct ptx *ptx, struct declared *d)
{
	struct word word = next_word(ptx);
	int ret;

	*d = (struct declared){.count = 1};
	if (!is(word, ".param"))
		return bad(ptx, -EBADMSG, "expected .param");
	for (word = next_word(ptx); word.len && word.text[0] == '.'; word = next_word(ptx)) {
		ret = read_attribute(ptx, word, d);
		if (ret)
			return ret;
	}
	if (!word.len || !d->typed)
		return bad(ptx, -EBADMSG, "a parameter without a type or a name");
	if (accept(ptx, '[') && (!to_number(next_word(ptx), &d->count) || !accept(ptx, ']')))
		return bad(ptx, -EBADMSG, "an array of unknown size as parameter");
	if (!d->aligned)
		d->align = d->element;
	return 0;
}

/* Lay out one more parameter at the end of the buffer, @size bytes long up to now. */
static int place(const struct ptx *ptx, const struct declared *d, uint64_t *size,
		 struct kp_param *param)
{
	uint64_t offset;

	*param = (struct kp_param){.offset = KP_NO_OFFSET, .space = d->space};
	if (d->reference)
		return 0;
	offset = (*size + d->align - 1) & ~(uint64_t)(d->align - 1);
	*size = offset + d->element * d->count;
	if (*size > MAX_BUFFER)
		return bad(ptx, -EBADMSG, "more than 65,535 bytes of parameters");
	param->offset = offset;
	param->size = d->element * d->count;
	return 0;
}

/* Read a kernel, from behind its ".entry". */
static int read_entry(struct ptx *ptx, struct kp_param *params, struct kp_table *table)
{
	struct word name = next_word(ptx);
	struct kp_kernel *kernel;
	bool exact = true;
	uint64_t size = 0;
	uint32_t n = 0;
	int ret;

	if (!name.len)
		return bad(ptx, -EBADMSG, ".entry without a name");
	if (accept(ptx, '(') && !accept(ptx, ')')) {
		do {
			struct declared declared;

			if (n == KP_MAX_PARAMS)
				return bad(ptx, -ENOTSUP, "more than 4,096 parameters");
			ret = read_param(ptx, &declared);
			if (!ret)
				ret = place(ptx, &declared, &size, &params[n]);
			if (ret)
				return ret;
			exact &= declared.align <= KNOWN_ALIGNMENT;
			n++;
		} while (accept(ptx, ','));
		if (!accept(ptx, ')'))
			return bad(ptx, -EBADMSG, "a list of parameters without an end");
	}
	kernel = kp_table_add(table, name.text, name.len, params, n);
	if (!kernel)
		return bad(ptx, -ENOMEM, "no memory");
	kernel->exact_offsets = exact;
	return 0;
}

static const char *find_entry(const struct ptx *ptx)
{
	const char *found = memmem(ptx->pos, ptx->end - ptx->pos, ".entry", 6);

	return found ? found : ptx->end;
}

static bool is_entry(const struct ptx *ptx, const char *at)
{
	const char *behind = at + strlen(".entry");

	return (at == ptx->start || !is_word_char(at[-1])) && behind < ptx->end &&
	       !is_word_char(*behind);
}

/*
 * Move behind the next ".entry" that is in no comment and no string; false at the end. Texts have
 * hundreds of megabytes, nearly all of it function bodies: so search for the three things that
 * matter, and do not read every word.
 */
static bool next_entry(struct ptx *ptx)
{
	const char *entry = find_entry(ptx);

	while (entry < ptx->end) {
		if (ptx->next_slash < ptx->pos)
			ptx->next_slash = find(ptx, ptx->pos, '/');
		if (ptx->next_quote < ptx->pos)
			ptx->next_quote = find(ptx, ptx->pos, '"');
		if (ptx->next_slash < entry && ptx->next_slash < ptx->next_quote) {
			ptx->pos = ptx->next_slash;
			if (at_comment(ptx))
				skip_comment(ptx);
			else
				ptx->pos++;
		} else if (ptx->next_quote < entry) {
			ptx->pos = find(ptx, ptx->next_quote + 1, '"');
			ptx->pos += ptx->pos < ptx->end;
		} else {
			ptx->pos = entry + strlen(".entry");
			if (is_entry(ptx, entry))
				return true;
		}
		if (entry < ptx->pos)
			entry = find_entry(ptx);
	}
	return false;
}

static struct ptx begin(const char *text, size_t size, struct kp_error *err)
{
	struct ptx ptx = {.start = text, .pos = text, .err = err};
	/* A text in a container ends in a NUL, and padding. */
	const char *nul = memchr(text, '\0', size);

	ptx.end = nul ? nul : text + size;
	return ptx;
}

int kp_ptx_read(const char *text, size_t size, struct kp_table *table, struct kp_error *err)
{
	struct ptx ptx = begin(text, size, err);
	struct kp_param *params = malloc(KP_MAX_PARAMS * sizeof(*params));
	int ret = 0;

	if (!params)
		return bad(&ptx, -ENOMEM, "no memory");
	ptx.next_slash = find(&ptx, text, '/');
	ptx.next_quote = find(&ptx, text, '"');
	while (!ret && next_entry(&ptx))
		ret = read_entry(&ptx, params, table);
	free(params);
	return ret;
}

int kp_ptx_info(const char *text, size_t size, struct kp_image_info *info, struct kp_error *err)
{
	struct ptx ptx = begin(text, size, err);
	struct word target;
	uint64_t arch;
	char suffix = 0;

	if (!is(next_word(&ptx), ".version"))
		return kp_fail(err, -ENOTSUP, 0, "neither a fatbin nor a cubin nor PTX");
	next_word(&ptx);
	if (!is(next_word(&ptx), ".target"))
		return bad(&ptx, -EBADMSG, "no .target behind .version");
	target = next_word(&ptx);
	if (target.len > 3 && ascii_is_alpha(target.text[target.len - 1])) {
		suffix = target.text[target.len - 1];
		target.len--;
	}
	if (target.len < 4 || memcmp(target.text, "sm_", 3))
		return bad(&ptx, -ENOTSUP, "a .target that does not begin with sm_");
	target.text += 3;
	target.len -= 3;
	if (!to_number(target, &arch))
		return bad(&ptx, -ENOTSUP, "a .target that does not begin with sm_");
	info->kind = KP_PTX;
	info->arch = arch;
	info->suffix = suffix;
	return 0;
}
