/* SPDX-License-Identifier: Apache-2.0 */
#include "kparams/mangled.h"
#include "common/ascii.h"

static void parse_unresolved_name(struct parser *p)
{
	if (ascii_is_digit(*p->pos)) {
		parse_source_name(p);
	} else {
		accept(p, "on");
		parse_operator_name(p);
	}
	if (*p->pos == 'I')
		kp_mangled_template_args(p, false);
}

/*
 * sr: a member of something that depends on template parameters: of a type, or of a scope given by
 * a row of plain names, which ends in an E and has no candidates for substitution.
 */
static void parse_scope(struct parser *p)
{
	bool names = ascii_is_digit(*p->pos);

	if (accept(p, "N"))
		names = true;
	if (!ascii_is_digit(*p->pos)) {
		kp_mangled_type(p);
		if (*p->pos == 'I')
			kp_mangled_template_args(p, false);
	}
	while (names && more(p, "E"))
		parse_unresolved_name(p);
	parse_unresolved_name(p);
}

/* fp_, fp0_, fpT; fL1p_ for one of an enclosing function, whose fL is still there. */
static void parse_function_param(struct parser *p, bool enclosing)
{
	if (enclosing) {
		p->pos += 2;
		parse_number(p);
		expect(p, "p");
	} else if (accept(p, "T")) {
		return; /* this */
	}
	while (*p->pos == 'r' || *p->pos == 'V' || *p->pos == 'K')
		p->pos++;
	parse_index(p, 10);
}

static void parse_expressions_to_end(struct parser *p)
{
	while (more(p, "E"))
		kp_mangled_expression(p);
}

/* Expressions that are more than an operator and its operands. False if it is another. */
static bool parse_special_expression(struct parser *p)
{
	if (accept(p, "sr")) {
		parse_scope(p);
	} else if (accept(p, "cl") || accept(p, "il")) {
		parse_expressions_to_end(p);
	} else if (accept(p, "tl")) {
		kp_mangled_type(p);
		parse_expressions_to_end(p);
	} else if (accept(p, "cv")) {
		kp_mangled_type(p);
		if (accept(p, "_"))
			parse_expressions_to_end(p);
		else
			kp_mangled_expression(p);
	} else if (accept(p, "dc") || accept(p, "sc") || accept(p, "rc") || accept(p, "cc")) {
		kp_mangled_type(p);
		kp_mangled_expression(p);
	} else if (accept(p, "st") || accept(p, "at") || accept(p, "ti")) {
		kp_mangled_type(p);
	} else if (accept(p, "dt") || accept(p, "pt")) {
		kp_mangled_expression(p);
		parse_unresolved_name(p);
	} else if (accept(p, "sP")) {
		while (more(p, "E"))
			kp_mangled_template_arg(p);
	} else {
		return false;
	}
	return true;
}

/* Take one of @names, two letters each, with a space behind each. */
static bool accept_any(struct parser *p, const char *names)
{
	for (; *names; names += 3) {
		if (!strncmp(p->pos, names, 2)) {
			p->pos += 2;
			return true;
		}
	}
	return false;
}

static void parse_operator(struct parser *p)
{
	static const char unary[] = "ps ng ad de co nt pp mm sZ sz az sp te nx tw ";
	static const char binary[] = "pl mi ml dv rm an eo or ls rs lt gt le ge eq ne aa oo ss ix "
				     "cm ds aS pm ";

	if (accept(p, "pp_") || accept(p, "mm_") || accept_any(p, unary)) {
		kp_mangled_expression(p);
	} else if (accept_any(p, binary)) {
		kp_mangled_expression(p);
		kp_mangled_expression(p);
	} else if (accept(p, "qu")) {
		kp_mangled_expression(p);
		kp_mangled_expression(p);
		kp_mangled_expression(p);
	} else if (accept(p, "fl") || accept(p, "fr")) { /* (... + x) */
		parse_operator_name(p);
		kp_mangled_expression(p);
	} else if (accept(p, "fL") || accept(p, "fR")) { /* (x + ... + y) */
		parse_operator_name(p);
		kp_mangled_expression(p);
		kp_mangled_expression(p);
	} else {
		fail(p);
	}
}

void kp_mangled_expression(struct parser *p)
{
	enter(p);
	accept(p, "gs");
	if (*p->pos == 'L')
		kp_mangled_literal(p);
	else if (*p->pos == 'T')
		kp_mangled_template_param(p);
	else if (ascii_is_digit(*p->pos) || !strncmp(p->pos, "on", 2))
		parse_unresolved_name(p);
	else if (accept(p, "fp"))
		parse_function_param(p, false);
	else if (p->pos[0] == 'f' && p->pos[1] == 'L' && ascii_is_digit(p->pos[2]))
		parse_function_param(p, true);
	else if (!parse_special_expression(p))
		parse_operator(p);
	p->depth--;
}
