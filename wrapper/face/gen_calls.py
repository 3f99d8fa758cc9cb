#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generate the typed code of the driver face from the toolkit's cuda.h.

usage: gen_calls.py --cuda-include DIR --exports LIST --calls RULES -o OUTDIR

Reads the preprocessed cuda.h (with __CUDA_API_VERSION_INTERNAL, under which every ABI version of
a function is declared under its exported name), the export list and the rules of driver.calls.
Writes OUTDIR/calls.h (pointers to the real functions, prototypes of the hooks) and
OUTDIR/calls.c (the functions that pass the gate, and the table of all exports).
"""
import argparse
import fnmatch
import os
import re
import subprocess
import sys

CLASSES = ("pass", "bare", "hook", "wait", "gate")
# Treated so only in a mode (wrapper/face/modes.h), and otherwise as "gate".
MODES = ("image", "check", "rewrite", "translated")
WITH_EXPRESSION = ("check", "rewrite")
HOOKS = ("bare", "hook", "image", "translated")


def read_lines(path):
    with open(path) as f:
        for number, line in enumerate(f, 1):
            line = line.split("#")[0].strip()
            if line:
                yield number, line


def read_rules(path):
    """[(pattern, class, expression)]; the expression is that of WITH_EXPRESSION."""
    rules = []
    for number, line in read_lines(path):
        fields = line.split(None, 2)
        kind, expression = fields[0], "".join(fields[2:])
        if (len(fields) < 2 or kind not in CLASSES + MODES or
                (kind in WITH_EXPRESSION) != bool(expression)):
            sys.exit(f"{path}:{number}: expected 'CLASS PATTERN' with a class of "
                     f"{', '.join(CLASSES + MODES)}, or with an expression behind it where "
                     f"CLASS is {' or '.join(WITH_EXPRESSION)}, "
                     f"found '{line}'")
        rules.append((fields[1], kind, expression))
    return rules


def read_prototypes(include):
    cpp = [os.environ.get("CC", "cc"), "-E", "-P", "-x", "c", "-D__CUDA_API_VERSION_INTERNAL",
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
    for pattern, kind, expression in rules:
        if fnmatch.fnmatchcase(name, pattern):
            return kind, expression
    return "pass", ""


def gated(prefix, name, prototype, kind, target, expressions=(), after=()):
    """A function that passes the gate and calls @target, unless an expression gives an error; those
    of @after come when it has succeeded."""
    declarations = ", ".join(p for p, _ in prototype) or "void"
    arguments = ", ".join(a for _, a in prototype)
    gate = "GATE_WAIT" if kind == "wait" else "GATE_HOLD"
    static = "" if prefix == "call" else "static "
    lines = [f"{static}CUresult {prefix}_{name}({declarations})", "{"]
    if expressions:
        lines.append(f'\tstatic const char call_[] __attribute__((unused)) = "{name}";')
    if expressions and prefix == "translated":
        lines.append("\tREWRITE_HEAP();")
    lines += ["\tCUresult result_;", "", f"\tif (!gate_enter({gate}))",
              "\t\treturn gate_refusal();"]
    steps = [*expressions, f"{target}({arguments})", *after]
    lines.append(f"\tresult_ = {steps[0]};")
    for step in steps[1:]:
        lines += ["\tif (!result_)", f"\t\tresult_ = {step};"]
    return lines + ["\tgate_exit();", "\treturn result_;", "}", ""]


def macros(prefix, expression):
    """@expression with the macros of check.h (CHECK_), rewrite.h (REWRITE_) or after.h (AFTER_)."""
    return re.sub(r"\b([A-Z][A-Z0-9_]+\()", prefix + r"\1", expression)


def functions_of_modes(name, prototype, kind, expression):
    """Code, and what is bound while images are followed, checks are on, addresses translated."""
    hook = f"(void *)hook_{name}"
    if kind == "image":
        return [], f"{hook}, 0, 0"
    if kind == "translated":
        return (gated("translated", name, prototype, kind, f"hook_{name}"),
                f"0, 0, (void *)translated_{name}")
    if kind not in WITH_EXPRESSION:
        return [], "0, 0, 0"
    before, _, after = expression.partition(" then ")
    check, rewrite = macros("CHECK_", before), macros("REWRITE_", before)
    after = [macros("AFTER_", after)] if after else []
    checked = []
    if kind == "check":
        checked = gated("checked", name, prototype, kind, f"real.{name}", [check])
        rewritten = [f"check_is_on ? {check} : CUDA_SUCCESS", rewrite]
    else:
        rewritten = [rewrite]
    return (checked + gated("translated", name, prototype, kind, f"real.{name}", rewritten, after),
            f"0, {f'(void *)checked_{name}' if checked else '0'}, (void *)translated_{name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda-include", required=True)
    parser.add_argument("--exports", required=True)
    parser.add_argument("--calls", required=True)
    parser.add_argument("-o", dest="out", required=True)
    args = parser.parse_args()

    rules = read_rules(args.calls)
    prototypes = read_prototypes(args.cuda_include)
    names = [line for _, line in read_lines(args.exports)]
    for pattern, kind, _ in rules:
        if kind in HOOKS and pattern not in names:
            sys.exit(f"{args.calls}: '{kind} {pattern}' is not in {args.exports}")
        if kind in WITH_EXPRESSION and not fnmatch.filter(names, pattern):
            sys.exit(f"{args.calls}: '{kind} {pattern}' matches nothing in {args.exports}")

    header = ["/* Generated by gen_calls.py from cuda.h. */", "#pragma once", "#include <cuda.h>", "",
              "struct real_calls {"]
    hooks, calls, body, table, modes = [], [], [], [], []
    for name in names:
        kind, expression = classify(name, rules)
        if kind == "pass" or name not in prototypes:
            if kind in HOOKS + WITH_EXPRESSION:
                sys.exit(f"{args.cuda_include}/cuda.h does not declare {name}")
            table.append("\t{0, 0},")
            modes.append("\t{0, 0, 0},")
            continue
        prototype = prototypes[name]
        declarations = ", ".join(p for p, _ in prototype) or "void"
        header.append(f"\tCUresult (*{name})({declarations});")
        if kind in HOOKS:
            hooks.append(f"CUresult hook_{name}({declarations});")
        if kind == "bare":
            table.append(f"\t{{(void *)hook_{name}, (void **)&real.{name}}},")
            modes.append("\t{0, 0, 0},")
            continue
        target = f"hook_{name}" if kind == "hook" else f"real.{name}"
        body += gated("call", name, prototype, kind, target)
        calls.append(f"CUresult call_{name}({declarations});")
        code, in_modes = functions_of_modes(name, prototype, kind, expression)
        body += code
        table.append(f"\t{{(void *)call_{name}, (void **)&real.{name}}},")
        modes.append(f"\t{{{in_modes}}},")
    header += ["};", "", "/* The real driver's functions; NULL where it lacks one. */",
               "extern struct real_calls real;", "",
               "/* What is behind each export while no mode is on: passes the gate. */"] + calls
    header += [""] + hooks

    with open(f"{args.out}/calls.h", "w") as f:
        f.write("\n".join(header) + "\n")
    with open(f"{args.out}/calls.c", "w") as f:
        f.write("/* Generated by gen_calls.py from cuda.h. */\n"
                '#include "calls.h"\n#include "checkpoint/gate/gate.h"\n#include "wrapper/translated/after.h"\n'
                '#include "wrapper/kernels/check.h"\n'
                '#include "wrapper/face/driver.h"\n#include "wrapper/translated/rewrite.h"\n\n'
                "struct real_calls real;\n\n" + "\n".join(body) +
                "\n/* In the order of the export list; zeros: straight to the real driver. */\n"
                "const struct driver_call driver_calls[] = {\n" + "\n".join(table) + "\n};\n"
                "\nconst struct mode_call mode_calls[] = {\n" + "\n".join(modes) + "\n};\n")


if __name__ == "__main__":
    main()
