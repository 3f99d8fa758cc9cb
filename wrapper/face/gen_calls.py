#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generate the typed code of the driver face from the toolkit's cuda.h.

usage: gen_calls.py --cuda-include DIR --exports LIST --calls RULES --words WORDS -o OUTDIR

Reads the preprocessed cuda.h (with __CUDA_API_VERSION_INTERNAL, under which every ABI version of
a function is declared under its exported name), the export list, the rules of driver.calls and
the words of driver.words.
Writes OUTDIR/calls.h (pointers to the real functions, prototypes of the hooks) and
OUTDIR/calls.c (the functions that pass the gate, and the table of all exports).
"""
import argparse
import collections
import fnmatch
import os
import re
import subprocess
import sys

CLASSES = ("pass", "bare", "hook", "wait", "wait_hook", "gate")
# Treated so only in a mode (wrapper/face/modes.h), and otherwise as "gate".
MODES = ("image", "check", "rewrite", "translated")
WITH_WORDS = ("check", "rewrite")
# Beside any class: see driver.calls.
AGAIN, SYNCED, ACROSS, STAGED, RESTS, MANAGED, RANK, NOTED, FOUND, ROOM = (
    "again", "synced", "across", "staged", "rests", "managed", "rank", "noted", "found", "room")
BESIDE = (AGAIN, SYNCED, ACROSS, STAGED, RESTS, MANAGED, RANK, NOTED, FOUND, ROOM)
# Beside a class, with words of these lines alone.
OWN_WORDS = (RANK, NOTED, FOUND, ROOM)
HOOKS = ("bare", "hook", "wait_hook", "image", "translated")
STAGES = ("check", "before", "after", "synced", "across", "rank", "noted", "found", "room")
# What "across" adds for each parameter of these types.
PLACES = {"CUstream": "across_stream", "CUcontext": "across_context"}

COLUMNS = 100
INCLUDES = '''\
#include "calls.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/growth.h"
#include "vmem/addresses/translate.h"
#include "common/protocol/quota.h"
#include "wrapper/face/driver.h"
#include "wrapper/hooks/sharing/across.h"
#include "wrapper/hooks/driver_allocs.h"
#include "wrapper/hooks/host_functions.h"
#include "wrapper/hooks/managed/managed.h"
#include "wrapper/hooks/ordered/memory.h"
#include "wrapper/hooks/rank_kernels.h"
#include "wrapper/hooks/ordered/pool_events.h"
#include "wrapper/hooks/ordered/pool_streams.h"
#include "wrapper/hooks/sharing/sync_memops.h"
#include "wrapper/kernels/check.h"
#include "wrapper/translated/after.h"
#include "wrapper/translated/before.h"
#include "wrapper/translated/graphs.h"
#include "wrapper/translated/launch_attributes.h"
#include "wrapper/translated/node_readback.h"
#include "wrapper/translated/rewrite.h"
#include "wrapper/translated/windows.h"
'''

# A line of driver.calls: the patterns of its functions, the class, and lists of (word, arguments); beside
# has such a list for each of BESIDE that the line names.
Rule = collections.namedtuple("Rule", "patterns kind uses later beside")
# Why @step is taken once more: if there was no memory, and with an expression in room after a wait
# for others to give some; or if the devices that the statements in across add lack access. If they
# cannot get that, the call staged is made.
Mend = collections.namedtuple("Mend", "step again room across staged", defaults=([], None))
# C of words, by stages: if an expression of synced is true, the function waits for the default stream;
# if one of rank is false, the call is refused; noted are statements before the call, and found behind one
# that succeeded.
Beside = collections.namedtuple("Beside", "synced rank noted found", defaults=((), (), (), ()))
# A word of driver.words: its parameters, and for each of STAGES a list of C.
Word = collections.namedtuple("Word", "params stages")


def read_lines(path):
    with open(path) as f:
        for number, line in enumerate(f, 1):
            line = line.split("#")[0].strip()
            if line:
                yield number, line


def split_list(text):
    """The parts of @text between commas that stand in no parentheses and in no string."""
    parts, depth, quoted = [""], 0, False
    for char in text:
        quoted ^= char == '"'
        if not quoted:
            depth += (char in "([") - (char in ")]")
        if char == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def split_use(text):
    """(name, arguments) of 'NAME(ARGUMENTS)', or None."""
    match = re.fullmatch(r"([A-Z][A-Z0-9_]*)\((.*)\)", text)
    return match and (match.group(1), split_list(match.group(2)))


def read_words(path):
    """{name: Word}"""
    words, word = {}, None
    for number, line in read_lines(path):
        key, _, text = line.partition(" ")
        use = split_use(text) if key == "word" else None
        if use and use[0] not in words:
            word = words[use[0]] = Word(use[1], {stage: [] for stage in STAGES})
        elif word and key in STAGES and text:
            word.stages[key].append(text)
        else:
            sys.exit(f"{path}:{number}: expected 'word NAME(PARAMETERS)' with a new name, or C "
                     f"behind {', '.join(STAGES)}, found '{line}'")
    return words


def read_uses(where, text, words, stages):
    """[(Word, arguments)] of @text; each word has C for one of @stages."""
    uses = []
    for part in split_list(text):
        name, arguments = split_use(part) or (part, [])
        if name not in words or len(arguments) != len(words[name].params):
            sys.exit(f"{where}: {part} is not a word of driver.words with as many arguments")
        if not any(words[name].stages[stage] for stage in stages):
            sys.exit(f"{where}: driver.words has no C for {name} under {' or '.join(stages)}")
        uses.append((words[name], arguments))
    return uses


def expand(pattern):
    """The patterns that one with a {LIST} stands for."""
    match = re.fullmatch(r"(.*)\{(.*)\}(.*)", pattern)
    return [match[1] + middle + match[3] for middle in match[2].split(",")] if match else [pattern]


def read_beside(where, text, words):
    """{kind: [(Word, arguments)]} of the parts behind the class."""
    beside = {}
    for kind, _, uses in (part.partition(" ") for part in text):
        if kind not in BESIDE or kind in beside or (kind in OWN_WORDS) != bool(uses) and kind != ACROSS:
            sys.exit(f"{where}: expected one of {', '.join(BESIDE)} once, and words behind it if it is "
                     f"{' or '.join(OWN_WORDS)}, found '{kind} {uses}'")
        beside[kind] = read_uses(where, uses, words, (kind,))
    return beside


def read_rules(path, words):
    rules = []
    for number, line in read_lines(path):
        pattern, text = (line.split(None, 1) + [""])[:2]
        where = f"{path}:{number}"
        treated, *beside = [part.strip() for part in text.split(";")]
        kind, _, uses = treated.partition(" ")
        if kind not in CLASSES + MODES or (kind in WITH_WORDS) != bool(uses):
            sys.exit(f"{where}: expected 'NAME CLASS' with a class of {', '.join(CLASSES + MODES)}, and words "
                     f"behind it if it is {' or '.join(WITH_WORDS)}, found '{line}'")
        uses, _, later = re.sub(r"^then ", " then ", uses).partition(" then ")
        rules.append(Rule(expand(pattern), kind, read_uses(where, uses, words, ("check", "before")),
                          read_uses(where, later, words, ("after",)), read_beside(where, beside, words)))
    return rules


def read_prototypes(include):
    cpp = [*os.environ.get("CC", "cc").split(), "-E", "-P", "-x", "c", "-D__CUDA_API_VERSION_INTERNAL",
           f"-I{include}", f"{include}/cuda.h"]
    text = subprocess.run(cpp, check=True, capture_output=True, text=True).stdout
    prototypes = {}
    for name, params in re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;{]*)\)\s*;", text):
        prototypes[name] = split_params(name, " ".join(params.split()))
    return prototypes


def split_params(name, params):
    """[(declaration, parameter name)] of a parameter list without function-pointer types."""
    if params in ("", "void"):
        return []
    result = []
    for param in params.split(","):
        param = param.strip()
        match = re.search(r"(\w+)\s*(\[\w*\])?$", param)
        if "(" in param or not match:
            sys.exit(f"cuda.h: {name}: cannot read parameter '{param}'")
        result.append((param, match.group(1)))
    return result


def classify(name, rules):
    """The line that decides on @name."""
    for rule in rules:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in rule.patterns):
            return rule
    return Rule([name], "pass", [], [], {})


def synced_memory(name, rule):
    """The expressions of the memory that @name touches, if it is to wait for it."""
    return steps_of(name, rule.uses, "synced") if SYNCED in rule.beside else []


def own_words(name, kind, rule):
    """The C of the words of @kind, one of OWN_WORDS."""
    return steps_of(name, rule.beside.get(kind, ()), kind)


def places_of(prototype):
    """Statements that add where a call runs, by the types of its parameters."""
    return [f"{PLACES[kind]}(&across, {name});" for kind, name in
            ((declaration.rsplit(None, 1)[0], name) for declaration, name in prototype)
            if kind in PLACES]


def steps_across(name, prototype, rule):
    """Statements that add the devices that the call concerns, by the words behind "across", or else of
    the class; none: it is not "across", or has no such words."""
    if ACROSS not in rule.beside:
        return []
    steps = steps_of(name, rule.beside[ACROSS] or rule.uses, ACROSS)
    return steps and steps + places_of(prototype)


def staged_call(name, prototype):
    """The call that makes a copy without access, if it is asynchronous in the parameter hStream."""
    asynchronous = any(argument == "hStream" for _, argument in prototype)
    how = ["ACROSS_ASYNC"] * asynchronous + ["ACROSS_PER_THREAD"] * name.endswith(("_ptds", "_ptsz"))
    return (f"across_staged(&across, {'hStream' if asynchronous else 'NULL'}, "
            f"{' | '.join(how) or '0'})")


def last_parenthesis(text):
    """Where the parenthesis opens that the last one of @text closes."""
    depth = 0
    for at in range(text.rindex(")"), -1, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if not depth:
            return at
    return 0


def tabs(column):
    return "\t" * (column // 8) + " " * (column % 8)


def wrap(indent, text):
    """The lines of @text, a call or a declaration: they break behind the commas in its last
    parentheses, and continue at the column of the first argument."""
    lines, start = [], "\t" * indent
    if 8 * indent + len(text) <= COLUMNS:
        return [start + text]
    opens, closes = last_parenthesis(text), text.rindex(")")
    column = 8 * indent + opens + 1
    arguments = split_list(text[opens + 1:closes])
    line, used = start + text[:opens + 1], column
    for i, argument in enumerate(arguments):
        argument += "," if i + 1 < len(arguments) else text[closes:]
        if used > column and used + 1 + len(argument) > COLUMNS:
            lines.append(line)
            line, used = tabs(column), column
        if used == column and used + len(argument) > COLUMNS:
            first, *others = re.split(r" (?=[?:] )", argument)
            lines += [line + first, *(tabs(column + 8) + other for other in others)]
            line, used = tabs(column), column
            continue
        space = " " if used > column else ""
        line += space + argument
        used += len(space + argument)
    return lines + [line] * bool(line.strip())


def steps_of(name, uses, stage):
    """The C of @uses for a stage, with the arguments in place."""
    steps = []
    for word, arguments in uses:
        values = dict(zip(word.params, arguments), CALL=f'"{name}"')
        pattern = r"\b(" + "|".join(values) + r")\b"
        steps += [re.sub(pattern, lambda match: values[match.group()], text)
                  for text in word.stages[stage]]
    return steps


def blocks(steps):
    """[[step]]: statements with the expression that follows them, which may fail."""
    result, block = [], []
    for step in steps:
        block.append(step)
        if not step.endswith(";"):
            result.append(block)
            block = []
    return result + ([block] if block else [])


def once_more(indent, mend):
    """Statements that take the step of @mend once more if it failed for a reason that we mend."""
    lines = []
    if mend.again:
        lines += ["\t" * indent + "if (ret == CUDA_ERROR_OUT_OF_MEMORY && memory_give_back())",
                  *wrap(indent + 1, f"ret = {mend.step};")]
    for room in mend.room:
        lines += ["\t" * indent + "for (struct growth_try try = GROWTH_TRY;",
                  *wrap(indent, f"     try.more && ret == CUDA_ERROR_OUT_OF_MEMORY && {room};) {{"),
                  "\t" * (indent + 1) + "gate_exit();",
                  "\t" * (indent + 1) + "growth_wait(&try);",
                  "\t" * (indent + 1) + "if (!gate_enter(GATE_HOLD))",
                  "\t" * (indent + 2) + "return gate_refusal();",
                  *wrap(indent + 1, f"ret = {mend.step};"), "\t" * indent + "}"]
    if mend.across:
        lines += ["\t" * indent + "if (ret == CUDA_ERROR_INVALID_VALUE) {",
                  "\t" * (indent + 1) + "struct across across = {0};", "",
                  *["\t" * (indent + 1) + step for step in mend.across],
                  "\t" * (indent + 1) + "if (across_grant(&across))",
                  *wrap(indent + 2, f"ret = {mend.step};")]
        if mend.staged:
            lines += ["\t" * (indent + 1) + "else", *wrap(indent + 2, f"ret = {mend.staged};")]
        lines += ["\t" * indent + "}"]
    return lines


def body(steps, checks, mend):
    """Statements that take @steps in turn until one fails; @checks come first, if checks are on. The
    step of @mend is taken once more if need be."""
    lines = []
    for i, step in enumerate(checks):
        lines += ["\tif (!ret && check_is_on)" if i else "\tif (check_is_on)",
                  *wrap(2, f"ret = {step};")]
    for i, block in enumerate(blocks(steps)):
        code = [step if step.endswith(";") else f"ret = {step};" for step in block]
        retried = mend.step in block
        guarded = bool(i or checks)
        brace = guarded and (len(code) > 1 or retried)
        lines += ["\tif (!ret)" + " {" * brace] * guarded
        lines += [line for step in code for line in wrap(1 + guarded, step)]
        lines += once_more(1 + guarded, mend) if retried else []
        lines += ["\t}"] * brace
    return lines


def enter(gate, rest):
    """Statements that enter the gate as @gate. @rest: the call that answers while the process is at
    rest, or None."""
    refused = [f"\tif (!gate_enter({gate}))", "\t\treturn gate_refusal();"]
    if not rest:
        return refused
    return ["\tif (!gate_enter(GATE_ASK)) {", f"\t\tif (gate_rests() && {rest})", "\t\t\treturn ret;",
            *["\t" + line for line in refused], "\t}"]


def gated(prefix, name, prototype, steps, mend, beside, checks=(), gate="GATE_HOLD", rest=None):
    """A function that passes the gate and takes @steps, one of which is the real call, and @checks
    before them if checks are on. @rest: as for enter()."""
    synced = beside.synced
    declarations = ", ".join(p for p, _ in prototype) or "void"
    static = "" if prefix == "call" else "static "
    copies = any("&copies" in step for step in steps)
    stream = "CU_STREAM_PER_THREAD" if name.endswith("_ptds") else "CU_STREAM_LEGACY"
    taken = {"ret", "copies", "waits", "across", "more"} & {a for _, a in prototype}
    if taken:
        sys.exit(f"cuda.h: {name} has a parameter '{taken.pop()}', as the generated code has a variable")
    return [*wrap(0, f"{static}CUresult {prefix}_{name}({declarations})"), "{",
            *["\tstruct copies copies;"] * copies,
            "\tCUresult ret = CUDA_SUCCESS;" if checks else "\tCUresult ret;",
            *["\tbool waits;"] * bool(synced), "",
            *enter(gate, rest),
            *[line for step in beside.rank
              for line in [*wrap(1, f"if (rank_kernels_are_known() && !{step})"), "\t\treturn gate_refusal();"]],
            *[line for step in beside.noted for line in wrap(1, step)],
            *["\tcopies_init(&copies);"] * copies,
            *["\tquota_begin();"] * bool(mend.room),
            *["\tmemory_try_begins();"] * mend.again,
            *[f"\twaits = {' || '.join(synced)};"] * bool(synced),
            *body(steps, checks, mend),
            *["\tif (!ret && waits)", f"\t\tret = sync_memops_wait({stream});"] * bool(synced),
            *[line for step in beside.found for line in ["\tif (!ret)", *wrap(2, step)]],
            *["\tcopies_free(&copies);"] * copies,
            "\tgate_exit();", "\treturn ret;", "}", ""]


def functions_of_modes(name, prototype, rule, again, room, across, staged, beside):
    """Code, and the functions bound in the modes MODE_IMAGES, MODE_CHECK and MODE_TRANSLATED. Where
    addresses are translated, memory is the driver's own, and no copy needs access."""
    arguments = ", ".join(a for _, a in prototype)
    if rule.kind == "image":
        return [], f"(void *)hook_{name}, 0, 0"
    if rule.kind == "translated":
        hook = f"hook_{name}({arguments})"
        return (gated("translated", name, prototype, [hook], Mend(hook, again, room), beside),
                f"0, 0, (void *)translated_{name}")
    if rule.kind not in WITH_WORDS:
        return [], "0, 0, 0"
    call = f"real.{name}({arguments})"
    checks = steps_of(name, rule.uses, "check") if rule.kind == "check" else []
    steps = steps_of(name, rule.uses, "before") + [call] + steps_of(name, rule.later, "after")
    code = (gated("checked", name, prototype, checks + [call], Mend(call, again, room, across, staged),
                  beside) if checks else [])
    return (code + gated("translated", name, prototype, steps, Mend(call, again, room), beside, checks),
            f"0, {f'(void *)checked_{name}' if checks else '0'}, (void *)translated_{name}")


def function_of_managed(name, prototype, rule, again, room):
    """Code, and the function bound in MODE_MANAGED. Pointers are rewritten, as the driver may get them."""
    step = f"managed_{name}({', '.join(a for _, a in prototype)})"
    steps = steps_of(name, rule.uses, "before") + [step]
    return gated("served", name, prototype, steps, Mend(step, again, room), Beside()), f"(void *)served_{name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda-include", required=True)
    parser.add_argument("--exports", required=True)
    parser.add_argument("--calls", required=True)
    parser.add_argument("--words", required=True)
    parser.add_argument("-o", dest="out", required=True)
    args = parser.parse_args()

    rules = read_rules(args.calls, read_words(args.words))
    prototypes = read_prototypes(args.cuda_include)
    names = [line for _, line in read_lines(args.exports)]
    for rule in rules:
        for pattern in rule.patterns:
            if SYNCED in rule.beside and not synced_memory(pattern, rule):
                sys.exit(f"{args.calls}: {pattern} is synced, and no word of it says which memory it touches")
            if rule.kind in HOOKS and pattern not in names:
                sys.exit(f"{args.calls}: {pattern}, {rule.kind}, is not in {args.exports}")
            if (rule.kind in WITH_WORDS or rule.beside) and not fnmatch.filter(names, pattern):
                sys.exit(f"{args.calls}: {pattern} matches nothing in {args.exports}")

    header = ["/* Generated by gen_calls.py from cuda.h. */", "#pragma once", "#include <cuda.h>",
              "#include <stdbool.h>", "", "struct real_calls {"]
    hooks, rests, calls, functions, table, modes = [], [], [], [], [], []
    for name in names:
        rule = classify(name, rules)
        kind = rule.kind
        if kind == "pass" or name not in prototypes:
            if kind in HOOKS + WITH_WORDS:
                sys.exit(f"{args.cuda_include}/cuda.h does not declare {name}")
            table.append("\t{0, 0},")
            modes.append("\t{0, 0, 0, 0},")
            continue
        prototype = prototypes[name]
        declarations = ", ".join(p for p, _ in prototype) or "void"
        header += wrap(1, f"CUresult (*{name})({declarations});")
        if kind in HOOKS:
            hooks += wrap(0, f"CUresult hook_{name}({declarations});")
        if kind == "bare":
            table.append(f"\t{{(void *)hook_{name}, (void **)&real.{name}}},")
            modes.append("\t{0, 0, 0, 0},")
            continue
        target = f"hook_{name}" if kind in ("hook", "wait_hook") else f"real.{name}"
        arguments = ", ".join(a for _, a in prototype)
        again, step = AGAIN in rule.beside, f"{target}({arguments})"
        room = own_words(name, ROOM, rule)
        across = steps_across(name, prototype, rule)
        beside = Beside(synced_memory(name, rule), own_words(name, RANK, rule),
                        own_words(name, NOTED, rule), own_words(name, FOUND, rule))
        staged = staged_call(name, prototype) if STAGED in rule.beside else None
        rest = None
        if RESTS in rule.beside:
            rest = f"rest_{name}({', '.join([a for _, a in prototype] + ['&ret'])})"
            declared = ", ".join([p for p, _ in prototype] + ["CUresult *ret"])
            rests += wrap(0, f"bool rest_{name}({declared});")
        functions += gated("call", name, prototype, [step], Mend(step, again, room, across, staged),
                           beside, gate="GATE_WAIT" if kind in ("wait", "wait_hook") else "GATE_HOLD", rest=rest)
        calls += wrap(0, f"CUresult call_{name}({declarations});")
        code, in_modes = functions_of_modes(name, prototype, rule, again, room, across, staged,
                                            beside)
        functions += code
        served = "0"
        if MANAGED in rule.beside:
            hooks += wrap(0, f"CUresult managed_{name}({declarations});")
            code, served = function_of_managed(name, prototype, rule, again, room)
            functions += code
        table.append(f"\t{{(void *)call_{name}, (void **)&real.{name}}},")
        modes.append(f"\t{{{in_modes}, {served}}},")
    header += ["};", "", "/* The real driver's functions; NULL: the driver lacks it. */",
               "extern struct real_calls real;", "",
               "/* The function behind each export while no mode is on: it passes the gate. */"] + calls
    header += [""] + hooks
    header += ["", "/* At rest: true if @ret is the answer, false if the call has to wait. */"] + rests

    with open(f"{args.out}/calls.h", "w") as f:
        f.write("\n".join(header) + "\n")
    with open(f"{args.out}/calls.c", "w") as f:
        f.write("/* Generated by gen_calls.py from cuda.h. */\n" + INCLUDES + "\n"
                "struct real_calls real;\n\n" + "\n".join(functions) +
                "\n/* In the order of the export list; zeros: straight to the real driver. */\n"
                "const struct driver_call driver_calls[] = {\n" + "\n".join(table) + "\n};\n"
                "\nconst struct mode_call mode_calls[] = {\n" + "\n".join(modes) + "\n};\n")


if __name__ == "__main__":
    main()
