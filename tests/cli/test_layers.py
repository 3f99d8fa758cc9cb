#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/check-layers and tests/check-words on copies of this tree in which somebody has broken a rule."""
import os
import shutil
import subprocess
import sys
import tempfile

from clilib import contains, equal, main

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

with open(os.path.join(REPOSITORY, "vmem/vmem.c"), encoding="utf-8") as code:
    LAST = len(code.readlines())
ROOMS = ("common", "kparams", "vmem", "checkpoint", "wrapper", "tools", "docs")


def layers(path=None, line="", change=None, checked="check-layers"):
    """What the check prints, and its exit status, of a copy with @line added to the file @path, or
    with docs/architecture.md as @change makes it."""
    with tempfile.TemporaryDirectory() as root:
        for room in ROOMS:
            shutil.copytree(os.path.join(REPOSITORY, room), os.path.join(root, room))
        if path:
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "a", encoding="utf-8") as file:
                file.write(line + "\n")
        if change:
            page = os.path.join(root, "docs/architecture.md")
            with open(page, encoding="utf-8") as file:
                before = file.read()
            after = change(before)
            assert after != before, "the table did not change"
            with open(page, "w", encoding="utf-8") as file:
                file.write(after)
        done = subprocess.run([sys.executable, os.path.join(REPOSITORY, "tests", checked), root],
                              capture_output=True, text=True, check=False)
    return done.stdout.splitlines(), done.returncode


def finds(expected, *args, **options):
    lines, status = layers(*args, **options)
    equal(status, 1)
    assert any(expected in line for line in lines), f"{expected!r} is not in {lines}"


def row(directory, text):
    """A change of the table: @text at the end of @directory's row."""
    def change(page):
        lines = page.splitlines(keepends=True)
        return "".join(line.rstrip("|\n") + f" {text} |\n" if line.startswith(f"| `{directory}` |") else line
                       for line in lines)
    return change


def test_the_tree_as_it_is():
    lines, status = layers()
    equal((lines, status), ([], 0))


def test_compiled_python_is_no_source():
    equal(layers("wrapper/face/__pycache__/gen_calls.cpython-313.pyc", "compiled"), ([], 0))


def test_a_lower_directory_includes_a_higher_one():
    finds(f"vmem/vmem.c:{LAST + 1}: vmem may not use checkpoint/gate/gate.h", "vmem/vmem.c",
          '#include "checkpoint/gate/gate.h"')


def test_kparams_includes_more_than_common():
    finds("kparams may not use vmem/vmem.h", "kparams/memory.c", '#  include "vmem/vmem.h"')


def test_what_depends_on_the_program():
    for line, what in (('double d = strtod(text, NULL);', "strtod("), ('int c = toupper (text[0]);', "toupper ("),
                       ('snprintf(b, n, "%s: %-8.2f s", a, s);', '"%s: %-8.2f'), ("umask(077);", "umask("),
                       ('say(c, "%lg", x);', '"%lg'), ('fn = dlsym(lib, "cuInit");', 'dlsym(lib, "cu'),
                       ("fn = dlsym(lib, names[i]);", "dlsym(lib, n"), ("text = strerror(errno);", "strerror(")):
        finds(f"vmem/vmem.c:{LAST + 1}: {what}: the result depends", "vmem/vmem.c", line)
    for line in ("/* As strtod(3). */", 'say(c, "%d%% free, %zu free", n, m);', "bool island(int x);",
                 'fn = dlsym(RTLD_DEFAULT, "sigaction");'):
        equal(layers("vmem/vmem.c", line), ([], 0))
    equal(layers("tools/command/run/run.c", "double d = strtod(text, NULL);"), ([], 0))


def test_a_generator_writes_an_include():
    finds("wrapper/face may not use tools/job/jobs.h", "wrapper/face/gen_calls.py",
          "TEXT = '#include \"calls.h\"\\n#include \"tools/job/jobs.h\"\\n'")


def test_a_directory_without_a_row():
    finds("checkpoint/attic has no row", "checkpoint/attic/old.c", "int old;")


def test_a_room_has_the_row_of_its_directory():
    for used in ("common/find/find.h", "vmem/vmem.h"):
        equal(layers("vmem/attic/old.c", f'#include "{used}"'), ([], 0))
    finds("vmem/attic/old.c:1: vmem may not use checkpoint/gate/gate.h", "vmem/attic/old.c",
          '#include "checkpoint/gate/gate.h"')


def test_a_row_without_a_directory():
    finds("there is no directory attic", change=lambda page: page.replace("| `vmem` |", "| `attic` |"))


def test_directories_that_use_each_other():
    finds("a circle: common -> vmem -> common", change=row("common", "`vmem`"))


def test_a_directory_that_is_not_used():
    finds("checkpoint/snapshot may use vmem, and does not", change=row("checkpoint/snapshot", "`vmem`"))


def linked(files):
    """What the check prints of a tree of these C files and their object files."""
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(os.path.join(REPOSITORY, "docs"), os.path.join(root, "docs"))
        for path, text in files.items():
            source, compiled = os.path.join(root, path), os.path.join(root, "obj", path[:-1] + "o")
            for directory in os.path.dirname(source), os.path.dirname(compiled):
                os.makedirs(directory, exist_ok=True)
            with open(source, "w", encoding="ascii") as file:
                file.write(text)
            subprocess.run(["gcc", "-c", source, "-o", compiled], check=True)
        done = subprocess.run([sys.executable, os.path.join(REPOSITORY, "tests/check-layers"), root,
                               os.path.join(root, "obj")], capture_output=True, text=True, check=False)
    return done.stdout


def test_what_is_linked():
    """Without an #include, and as a variable."""
    below = {"vmem/a.c": "extern int gate_word; int a(void) { return gate_word; }",
             "checkpoint/gate/b.c": "int signal(void) { return 1; } int gate_word;"}
    contains(linked(below), "vmem/a.c: vmem may not use gate_word of checkpoint/gate/b.c\n")
    above = {"vmem/a.c": "int a(void) { return 1; }",
             "checkpoint/engine/b.c": "int a(void); int b(void) { return a(); } int signal(void) { return 1; }",
             "tools/job/c.c": "int signal(void); int c(void) { return signal(); }"}
    equal([line for line in linked(above).splitlines() if ".c: " in line and "may not use" in line], [])


def test_files_that_use_each_other():
    def pair(i):
        return {f"vmem/a{i}.c": f"int b{i}(void); int a{i}(void) {{ return b{i}(); }}",
                f"vmem/b{i}.c": f"int a{i}(void); int b{i}(void) {{ return a{i}(); }}"}

    pairs = {}
    for i in range(20):
        pairs.update(pair(i))
    said = linked(pairs)
    contains(said, "20 groups of files use each other in a circle, and at most ")
    contains(said, "  vmem/a7.c vmem/b7.c\n")
    equal("in a circle, and" in linked(pair(0)), False)


def test_one_word_for_one_thing():
    words = {"checked": "check-words"}
    equal(layers(**words), ([], 0))
    finds("vmem/other.h: functions that begin with engine_ are in checkpoint/engine", "vmem/other.h",
          "const char *engine_name(void);", **words)
    equal(layers("vmem/other.h", "static inline int engine_of(int a)\n{\n\treturn a;\n}", **words), ([], 0))
    finds("the name gate.h is there more than once", "vmem/gate.h", "#define OF_ITS_OWN", **words)
    equal(layers("tools/job/internal.h", "#define OF_ITS_OWN", **words), ([], 0))
    finds("the guard CUDAW_VMEM_H is there more than once", "tools/job/more.h", "#ifndef CUDAW_VMEM_H", **words)
    finds("the tag member in tools/daemon is there more than once", "tools/daemon/more.c",
          "struct member {\n\tint more;\n};", **words)
    equal(layers("tools/job/more.c", "struct member {\n\tint more;\n};", **words), ([], 0))
    lines, _ = layers("vmem/more.c", "static _Atomic int more;\nint wait_ms;\nlong all(uint64_t *ms);\n"
                      "uint64_t unix_ms, params;\ndouble late_ms;", **words)
    equal(lines, [f"vmem/more.c: {found}" for found in (
        "_Atomic: atomics are GCC's __atomic_...()", "int wait_ms: milliseconds are double",
        "uint64_t *ms: milliseconds are double")])
    finds("tests/more.c: atomic_load(: atomics are GCC's", "tests/more.c", "int a = atomic_load(&b);", **words)
    finds("there is no directory attic", change=lambda page: page.replace("| `checkpoint/gate` |", "| `attic` |"), **words)


if __name__ == "__main__":
    main()
