/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_KPARAMS_MANGLED_H
#define CUDAW_KPARAMS_MANGLED_H
/*
 * The parser of mangled C++ names (mangled.c) and its part for the expressions in template
 * arguments (mangled_expr.c), of which only the end matters.
 */
#include "kparams/internal.h"
#include "common/ascii.h"

#define MAX_COMPONENTS 4096
#define MAX_DEPTH      256
#define NOT_LINKED     (-1)

/* Besides enum kp_holds: a function, which only a pointer or reference can refer to. */
#define IS_FUNCTION 4

struct type {
	uint8_t holds;
	bool pack;
	int first;    /* pack: its types in the pool, or NOT_LINKED if all are like `holds` */
	int count;    /* pack: how many, or -1 if that is not known */
	int argument; /* of T_, 2 of T0_...: it is that of the template around its use; else 0 */
};

struct link {
	struct type type;
	int next;
};

struct list {
	int first, last, count;
};

struct parser {
	const char *pos;
	int depth;
	bool failed;
	struct list args;  /* template arguments of the function being named */
	struct type spent; /* the last pack that was named, for the expansion around it */
	int ncomponents, npool;
	struct type components[MAX_COMPONENTS];
	struct link pool[MAX_COMPONENTS];
};

struct type kp_mangled_type(struct parser *p);
struct type kp_mangled_template_param(struct parser *p);
struct type kp_mangled_template_arg(struct parser *p);
void kp_mangled_template_args(struct parser *p, bool of_function);
struct type kp_mangled_literal(struct parser *p);
void kp_mangled_expression(struct parser *p);

static inline struct type plain(uint8_t holds)
{
	return (struct type){.holds = holds, .first = NOT_LINKED};
}

/* A failed parser is at the end of its text, so that every loop ends. */
static inline void fail(struct parser *p)
{
	p->failed = true;
	p->pos = "";
}

static inline bool accept(struct parser *p, const char *text)
{
	size_t len = strlen(text);

	if (strncmp(p->pos, text, len))
		return false;
	p->pos += len;
	return true;
}

static inline void expect(struct parser *p, const char *text)
{
	if (!accept(p, text))
		fail(p);
}

/* True while a list goes on; takes the @close that ends it. */
static inline bool more(struct parser *p, const char *close)
{
	if (accept(p, close))
		return false;
	if (!*p->pos)
		fail(p);
	return !p->failed;
}

static inline void enter(struct parser *p)
{
	if (++p->depth > MAX_DEPTH)
		fail(p);
}

static inline int parse_number(struct parser *p)
{
	int n = 0;

	if (!ascii_is_digit(*p->pos))
		fail(p);
	while (ascii_is_digit(*p->pos)) {
		n = 10 * n + (*p->pos++ - '0');
		if (n > 1 << 20)
			fail(p);
	}
	return n;
}

/* The index between S or T and its underscore: nothing is 0, "0" is 1, "Z" is 36 in base 36. */
static inline int parse_index(struct parser *p, int base)
{
	int n = 0;

	if (accept(p, "_"))
		return 0;
	while (ascii_is_digit(*p->pos) || ascii_is_upper(*p->pos)) {
		int digit = ascii_is_digit(*p->pos) ? *p->pos - '0' : *p->pos - 'A' + 10;

		p->pos++;
		n = base * n + digit;
		if (digit >= base || n > MAX_COMPONENTS)
			fail(p);
	}
	expect(p, "_");
	return n + 1;
}

static inline void parse_source_name(struct parser *p)
{
	int len = parse_number(p);

	if (p->failed || strnlen(p->pos, len) < (size_t)len)
		fail(p);
	else
		p->pos += len;
}

/* Two letters that stand for an operator. */
static inline void parse_operator_name(struct parser *p)
{
	if (ascii_is_lower(p->pos[0]) && ascii_is_alpha(p->pos[1]))
		p->pos += 2;
	else
		fail(p);
}

#endif
