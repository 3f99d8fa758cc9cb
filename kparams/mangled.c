/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types of a function's parameters, from its name as the Itanium C++ ABI mangles it
 * (https://itanium-cxx-abi.github.io/cxx-abi/abi.html, section 5.1), as far as they matter here: a
 * pointer, a pointer to a function, a number, or something else.
 *
 * The parser has to follow the whole grammar, since a type may refer to an earlier part of the
 * name: S_, S0_... to the first, second... component that the ABI counts, T_, T0_... to a template
 * argument. So it keeps the type of each component and each argument, and counts components exactly
 * as the ABI does ("is a candidate for substitution" below). A component that is T_ itself stands
 * for the letters: it may come from a function in whose scope a lambda was written, and be used for
 * the kernel that takes the lambda. Template arguments may be packs: lists, linked in a pool.
 *
 * If the parser does not understand a part of the name, it fails, and the types are unknown.
 */
#include "kparams/mangled.h"
#include "common/ascii.h"

#include <errno.h>
#include <stdlib.h>

static const struct list no_args = {NOT_LINKED, NOT_LINKED, 0};

static void parse_encoding(struct parser *p, struct list *params);
static bool parse_name(struct parser *p, bool names_function);

/* Make @type a candidate for substitution. */
static struct type candidate(struct parser *p, struct type type)
{
	if (p->ncomponents == MAX_COMPONENTS)
		fail(p);
	if (!p->failed)
		p->components[p->ncomponents++] = type;
	return type;
}

static void append(struct parser *p, struct list *list, struct type type)
{
	if (p->npool == MAX_COMPONENTS)
		fail(p);
	if (p->failed)
		return;
	p->pool[p->npool] = (struct link){type, NOT_LINKED};
	if (list->count++)
		p->pool[list->last].next = p->npool;
	else
		list->first = p->npool;
	list->last = p->npool++;
}

/* The function's template argument @n; a lambda's own, and a later one, are not known. */
static struct type template_argument(struct parser *p, int n)
{
	struct type type = plain(KP_ANYTHING);
	int at = p->args.first;

	if (n < p->args.count) {
		for (int i = 0; i < n; i++)
			at = p->pool[at].next;
		type = p->pool[at].type;
	}
	type.argument = n + 1;
	if (type.pack)
		p->spent = type;
	return type;
}

static struct type parse_substitution(struct parser *p)
{
	int n;

	expect(p, "S");
	/* std::allocator, std::string and so on: all are classes. */
	if (*p->pos && strchr("absiod", *p->pos)) {
		p->pos++;
		return plain(KP_ANYTHING);
	}
	n = parse_index(p, 36);
	if (n >= p->ncomponents)
		fail(p);
	if (p->failed)
		return plain(KP_ANYTHING);
	if (p->components[n].argument)
		return template_argument(p, p->components[n].argument - 1);
	if (p->components[n].pack)
		p->spent = p->components[n];
	return p->components[n];
}

/* T_: an argument of the template. */
struct type kp_mangled_template_param(struct parser *p)
{
	int n;

	expect(p, "T");
	if (accept(p, "L")) {
		parse_index(p, 10);
		parse_index(p, 10);
		return plain(KP_ANYTHING);
	}
	n = parse_index(p, 10);
	return p->failed ? plain(KP_ANYTHING) : template_argument(p, n);
}

struct type kp_mangled_literal(struct parser *p)
{
	expect(p, "L");
	if (accept(p, "_Z")) {
		parse_encoding(p, NULL);
		expect(p, "E");
		return plain(KP_ANYTHING);
	}
	kp_mangled_type(p);
	while (ascii_is_alnum(*p->pos) && *p->pos != 'E')
		p->pos++;
	expect(p, "E");
	return plain(KP_ANYTHING);
}

struct type kp_mangled_template_arg(struct parser *p)
{
	struct type pack = {.holds = KP_ANYTHING, .pack = true, .first = NOT_LINKED};

	if (accept(p, "X")) {
		kp_mangled_expression(p);
		expect(p, "E");
		return plain(KP_ANYTHING);
	}
	if (*p->pos == 'L')
		return kp_mangled_literal(p);
	if (accept(p, "J")) {
		struct list list = no_args;

		while (more(p, "E"))
			append(p, &list, kp_mangled_template_arg(p));
		pack.first = list.first;
		pack.count = list.count;
		return pack;
	}
	return kp_mangled_type(p);
}

/* I...E. From here on T_ means the arguments of the function's own template. */
void kp_mangled_template_args(struct parser *p, bool of_function)
{
	struct list list = no_args;

	enter(p);
	expect(p, "I");
	if (of_function)
		p->args = list;
	while (more(p, "E")) {
		struct type arg = kp_mangled_template_arg(p);

		append(p, &list, arg);
		if (of_function)
			p->args = list;
	}
	p->depth--;
}

/* Ut_, Ul...E_ */
static void parse_unnamed(struct parser *p)
{
	if (accept(p, "Ul")) {
		while (more(p, "E"))
			kp_mangled_type(p);
	} else {
		expect(p, "Ut");
	}
	if (!accept(p, "_")) {
		parse_number(p);
		expect(p, "_");
	}
}

/* True if it is a constructor, a destructor or a conversion: these mangle no return type. */
static bool parse_unqualified_name(struct parser *p)
{
	bool special = false;

	accept(p, "L");
	if (ascii_is_digit(*p->pos)) {
		parse_source_name(p);
	} else if (*p->pos == 'U') {
		parse_unnamed(p);
	} else if (*p->pos == 'C' || *p->pos == 'D') {
		p->pos++;
		parse_number(p);
		special = true;
	} else if (accept(p, "cv")) {
		kp_mangled_type(p);
		special = true;
	} else if (accept(p, "li")) {
		parse_source_name(p);
	} else {
		parse_operator_name(p);
	}
	while (accept(p, "B"))
		parse_source_name(p);
	return special;
}

/* One component of N...E. *@templated: it is a list of arguments; *@special: see above. */
static void parse_component(struct parser *p, bool names_function, bool *templated, bool *special)
{
	*templated = false;
	if (*p->pos == 'I') {
		kp_mangled_template_args(p, names_function);
		*templated = true;
	} else if (*p->pos == 'T') {
		kp_mangled_template_param(p);
	} else if (p->pos[0] == 'D' && (p->pos[1] == 't' || p->pos[1] == 'T')) {
		p->pos += 2;
		kp_mangled_expression(p);
		expect(p, "E");
	} else {
		*special = parse_unqualified_name(p);
	}
}

static bool parse_nested_name(struct parser *p, bool names_function)
{
	bool templated = false, special = false, first = true;

	expect(p, "N");
	while (*p->pos == 'r' || *p->pos == 'V' || *p->pos == 'K')
		p->pos++;
	if (*p->pos == 'R' || *p->pos == 'O')
		p->pos++;
	if (accept(p, "St")) {
		first = false; /* std by itself is no candidate */
	} else if (*p->pos == 'S') {
		parse_substitution(p);
		first = false;
	}
	while (more(p, "E")) {
		parse_component(p, names_function, &templated, &special);
		/* Each prefix is a candidate; the whole is one only if it names a type. */
		if (*p->pos != 'E')
			candidate(p, plain(KP_ANYTHING));
		first = false;
	}
	if (first)
		fail(p);
	return templated && !special;
}

static void parse_discriminator(struct parser *p)
{
	if (accept(p, "__")) {
		parse_number(p);
		expect(p, "_");
	} else if (p->pos[0] == '_' && ascii_is_digit(p->pos[1])) {
		p->pos += 2;
	}
}

static bool parse_local_name(struct parser *p, bool names_function)
{
	bool templated = false;

	expect(p, "Z");
	parse_encoding(p, NULL);
	expect(p, "E");
	if (accept(p, "s")) {
		parse_discriminator(p);
		return false;
	}
	if (accept(p, "d"))
		parse_index(p, 10);
	templated = parse_name(p, names_function);
	parse_discriminator(p);
	return templated;
}

/*
 * A name: of the function itself, of one inside it, or of a type. True if it ends in template
 * arguments, so that a function of that name has its return type mangled.
 */
static bool parse_name(struct parser *p, bool names_function)
{
	bool templated = false;

	enter(p);
	if (*p->pos == 'N') {
		templated = parse_nested_name(p, names_function);
	} else if (*p->pos == 'Z') {
		templated = parse_local_name(p, names_function);
	} else {
		bool special = false, substituted = false;

		if (p->pos[0] == 'S' && p->pos[1] != 't') {
			parse_substitution(p);
			substituted = true;
		} else {
			accept(p, "St");
			special = parse_unqualified_name(p);
		}
		if (*p->pos == 'I') {
			if (!substituted)
				candidate(p, plain(KP_ANYTHING));
			kp_mangled_template_args(p, names_function);
			templated = !special;
		}
	}
	p->depth--;
	return templated;
}

static struct type parse_function_type(struct parser *p)
{
	expect(p, "F");
	accept(p, "Y");
	while (more(p, "E"))
		if (!accept(p, "RE") && !accept(p, "OE"))
			kp_mangled_type(p);
		else
			p->pos--; /* the E of "RE" closes the list */
	return candidate(p, plain(IS_FUNCTION));
}

static struct type parse_array_type(struct parser *p)
{
	expect(p, "A");
	if (ascii_is_digit(*p->pos))
		parse_number(p);
	else if (*p->pos != '_')
		kp_mangled_expression(p);
	expect(p, "_");
	kp_mangled_type(p);
	return candidate(p, plain(KP_ANYTHING));
}

/* Dp: the type that follows, once for each member of the pack in it. */
static struct type parse_expansion(struct parser *p)
{
	struct type type;

	p->spent = (struct type){.count = -1};
	type = kp_mangled_type(p);
	if (!type.pack) {
		type.pack = true;
		type.first = NOT_LINKED;
		type.count = p->spent.count;
	}
	return candidate(p, type);
}

static struct type parse_d_type(struct parser *p)
{
	char which = p->pos[1];

	if (which && strchr("defhisuac", which)) {
		p->pos += 2;
		return plain(which == 'a' || which == 'c' ? KP_ANYTHING : KP_NO_POINTER);
	}
	if (accept(p, "Dn"))
		return plain(KP_POINTER); /* of nullptr, always */
	if (accept(p, "DF")) {
		parse_number(p);
		if (!accept(p, "_") && !accept(p, "b"))
			expect(p, "x");
		return plain(KP_NO_POINTER);
	}
	if (accept(p, "Dp"))
		return parse_expansion(p);
	if (accept(p, "Do"))
		return parse_function_type(p);
	if (accept(p, "Dv")) {
		parse_number(p);
		expect(p, "_");
		kp_mangled_type(p);
		return candidate(p, plain(KP_ANYTHING));
	}
	if (accept(p, "Dt") || accept(p, "DT")) {
		kp_mangled_expression(p);
		expect(p, "E");
		return candidate(p, plain(KP_ANYTHING));
	}
	fail(p);
	return plain(KP_ANYTHING);
}

/* P, R, O: a pointer or reference to the type that follows. */
static struct type parse_pointer(struct parser *p)
{
	struct type to;

	p->pos++;
	to = kp_mangled_type(p);
	return candidate(p, plain(to.holds == IS_FUNCTION ? KP_CODE : KP_POINTER));
}

/* r, V, K: all of them together make one further candidate. */
static struct type parse_qualified(struct parser *p)
{
	struct type type;

	while (*p->pos == 'r' || *p->pos == 'V' || *p->pos == 'K')
		p->pos++;
	type = kp_mangled_type(p);
	return candidate(p, type);
}

static struct type parse_s_or_t_type(struct parser *p)
{
	bool substitution = *p->pos == 'S';
	struct type type = substitution ? parse_substitution(p) : kp_mangled_template_param(p);

	if (*p->pos == 'I') {
		if (!substitution)
			candidate(p, type);
		kp_mangled_template_args(p, false);
		return candidate(p, plain(KP_ANYTHING));
	}
	return substitution ? type : candidate(p, type);
}

static struct type parse_pointer_to_member(struct parser *p)
{
	expect(p, "M");
	kp_mangled_type(p);
	kp_mangled_type(p);
	return candidate(p, plain(KP_ANYTHING));
}

static struct type parse_vendor_type(struct parser *p)
{
	expect(p, "u");
	parse_source_name(p);
	if (*p->pos == 'I')
		kp_mangled_template_args(p, false);
	return candidate(p, plain(KP_ANYTHING));
}

static struct type parse_class(struct parser *p)
{
	parse_name(p, false);
	return candidate(p, plain(KP_ANYTHING));
}

static struct type parse_any_type(struct parser *p)
{
	char c = *p->pos;

	if (c && strchr("vwbcahstijlmxynofdegz", c)) {
		p->pos++;
		return plain(KP_NO_POINTER);
	}
	switch (c) {
	case 'r':
	case 'V':
	case 'K':
		return parse_qualified(p);
	case 'P':
	case 'R':
	case 'O':
		return parse_pointer(p);
	case 'F':
		return parse_function_type(p);
	case 'A':
		return parse_array_type(p);
	case 'M':
		return parse_pointer_to_member(p);
	case 'D':
		return parse_d_type(p);
	case 'C':
	case 'G':
		p->pos++;
		kp_mangled_type(p);
		return candidate(p, plain(KP_ANYTHING));
	case 'u':
		return parse_vendor_type(p);
	case 'T':
		if (p->pos[1] == 's' || p->pos[1] == 'u' || p->pos[1] == 'e') {
			p->pos += 2; /* struct, union, enum */
			return parse_class(p);
		}
		return parse_s_or_t_type(p);
	case 'S':
		return p->pos[1] == 't' ? parse_class(p) : parse_s_or_t_type(p);
	default:
		return parse_class(p);
	}
}

struct type kp_mangled_type(struct parser *p)
{
	struct type type;

	enter(p);
	type = p->failed ? plain(KP_ANYTHING) : parse_any_type(p);
	p->depth--;
	return type;
}

static bool at_end_of_encoding(const struct parser *p)
{
	return !*p->pos || *p->pos == 'E' || *p->pos == '.';
}

/*
 * A function's name and its types, or a variable's name. The types are appended to @params, which
 * is NULL for an encoding inside another; the outer one's template arguments are not touched.
 */
static void parse_encoding(struct parser *p, struct list *params)
{
	struct list args = p->args;

	enter(p);
	if (parse_name(p, true) && !at_end_of_encoding(p))
		kp_mangled_type(p); /* the return type */
	if (!accept(p, "v"))
		while (!at_end_of_encoding(p)) {
			struct type type = kp_mangled_type(p);

			if (params)
				append(p, params, type);
		}
	p->args = args;
	p->depth--;
}

/* Write what @type holds to @holds, as often as it has parameters; returns the new count or -1. */
static int flatten(const struct parser *p, struct type type, uint8_t *holds, size_t max, int n)
{
	int at = type.first;

	if (type.count < 0)
		return -1;
	for (int i = 0; i < (type.pack ? type.count : 1); i++) {
		uint8_t one = type.holds;

		if (at != NOT_LINKED) {
			one = p->pool[at].type.holds;
			at = p->pool[at].next;
		}
		if ((size_t)n == max)
			return -1;
		holds[n++] = one == IS_FUNCTION ? KP_CODE : one;
	}
	return n;
}

int kp_mangled_params(const char *name, uint8_t *holds, size_t max)
{
	struct list params = no_args;
	struct parser *p;
	int n = 0;

	if (strncmp(name, "_Z", 2))
		return -ENOTSUP;
	p = malloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->pos = name + 2;
	p->depth = p->ncomponents = p->npool = 0;
	p->failed = false;
	p->args = no_args;
	parse_encoding(p, &params);
	if (p->failed || (*p->pos && *p->pos != '.'))
		n = -1;
	for (int at = params.first; n >= 0 && at != NOT_LINKED; at = p->pool[at].next)
		n = flatten(p, p->pool[at].type, holds, max, n);
	free(p);
	return n < 0 ? -ENOTSUP : n;
}
