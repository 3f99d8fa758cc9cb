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


def layers(added=None, change=None, checked="check-layers"):
    """What the check prints, and its exit status, of a copy with the text of each path in @added at its end, and
    with docs/architecture.md as @change makes it."""
    with tempfile.TemporaryDirectory() as root:
        for room in ROOMS:
            shutil.copytree(os.path.join(REPOSITORY, room), os.path.join(root, room))
        for path, text in (added or {}).items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "a", encoding="utf-8") as file:
                file.write(text + "\n")
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
    equal(layers({"wrapper/face/__pycache__/gen_calls.cpython-313.pyc": "compiled"}), ([], 0))


def test_a_lower_directory_includes_a_higher_one():
    finds(f"vmem/vmem.c:{LAST + 1}: vmem may not use checkpoint/gate/gate.h",
          {"vmem/vmem.c": '#include "checkpoint/gate/gate.h"'})


def test_kparams_includes_more_than_common():
    finds("kparams may not use vmem/vmem.h", {"kparams/memory.c": '#  include "vmem/vmem.h"'})


def test_what_depends_on_the_program():
    wrong = (('double d = strtod(text, NULL);', "strtod("), ('int c = toupper (text[0]);', "toupper ("),
             ('snprintf(b, n, "%s: %-8.2f s", a, s);', '"%s: %-8.2f'), ("umask(077);", "umask("),
             ('say(c, "%lg", x);', '"%lg'), ('fn = dlsym(lib, "cuInit");', 'dlsym(lib, "cu'),
             ("fn = dlsym(lib, names[i]);", "dlsym(lib, n"), ("text = strerror(errno);", "strerror("),
             ("error = pthread_create(&thread, NULL, run, NULL);", "pthread_create("),
             ('fd = open("/proc/self/maps", O_RDONLY);', '"/proc/self/'))
    right = ("/* As strtod(3). */", 'say(c, "%d%% free, %zu free", n, m);', "bool island(int x);",
             'fn = dlsym(RTLD_DEFAULT, "sigaction");', 'name(path, "/proc/self/task/%d/comm", tid);')
    lines, _ = layers({"vmem/more.c": "\n".join([line for line, _ in wrong] + list(right)),
                       "tools/command/run/run.c": "double d = strtod(text, NULL);"})
    equal([line.split(": the result depends")[0] for line in lines],
          [f"vmem/more.c:{number}: {what}" for number, (_, what) in enumerate(wrong, 1)])


def test_a_generator_writes_an_include():
    finds("wrapper/face may not use tools/job/jobs.h",
          {"wrapper/face/gen_calls.py": "TEXT = '#include \"calls.h\"\\n#include \"tools/job/jobs.h\"\\n'"})


def test_a_directory_without_a_row():
    finds("checkpoint/attic has no row", {"checkpoint/attic/old.c": "int old;"})


def test_a_room_has_the_row_of_its_directory():
    lines, _ = layers({"vmem/attic/old.c": "\n".join(f'#include "{used}"' for used in (
        "common/find/find.h", "vmem/vmem.h", "checkpoint/gate/gate.h"))})
    equal(lines, ["vmem/attic/old.c:3: vmem may not use checkpoint/gate/gate.h (common only)"])


def test_a_row_without_a_directory():
    finds("there is no directory attic", change=lambda page: page.replace("| `vmem` |", "| `attic` |"))


def test_directories_that_use_each_other():
    finds("a circle: common -> vmem -> common", change=row("common", "`vmem`"))


def test_a_directory_that_is_not_used():
    finds("checkpoint/snapshot may use vmem, and does not", change=row("checkpoint/snapshot", "`vmem`"))


def linked(files):
    """What the check prints of a tree of these C files and their object files."""
    with tempfile.TemporaryDirectory() as root:
        for room in ("docs", "checkpoint"):
            shutil.copytree(os.path.join(REPOSITORY, room), os.path.join(root, room))
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


def test_a_list_of_files():
    text = ("int rest(void) {{ return {}; }}", "int out(void) {{ return {}; }}", "int rest(void), out(void); ")
    names = "checkpoint/engine/rest.c", "checkpoint/engine/out.c"
    below = linked({names[0]: text[0].format(1), names[1]: text[2] + text[1].format("rest()")})
    above = linked({names[0]: text[2] + text[0].format("out()"), names[1]: text[1].format(1)})
    wrong = f"{names[0]} uses out of {names[1]}, which stands above it in checkpoint/engine/internal.h"
    equal([line for said in (below, above) for line in said.splitlines() if "stands above" in line], [wrong])


def test_one_word_for_one_thing():
    equal(layers(checked="check-words"), ([], 0))
    lines, _ = layers({
        "vmem/other.h": "const char *engine_name(void);\nstatic inline int engine_of(int a)\n{\n\treturn a;\n}",
        "vmem/gate.h": "#define OF_ITS_OWN",
        "tools/job/internal.h": "#define OF_ITS_OWN",
        "tools/job/more.h": "#ifndef CUDAW_VMEM_H\nint vmem_more(void);",
        "tools/process/criu/tree.h": "int tree_more(void);",
        "tools/daemon/more.c": "struct member {\n\tint more;\n};",
        "tools/job/more.c": "struct member {\n\tint more;\n};",
        "vmem/more.c": "static _Atomic int more;\nint wait_ms;\nlong all(uint64_t *ms);\nuint64_t unix_ms, params;\n"
                       "double late_ms;",
        "tests/more.c": "int a = atomic_load(&b);",
    }, checked="check-words")
    equal(lines, [
        "vmem/other.h: functions that begin with engine_ are in checkpoint/engine",
        "vmem/more.c: _Atomic: atomics are GCC's __atomic_...()",
        "tests/more.c: atomic_load(: atomics are GCC's __atomic_...()",
        "vmem/more.c: int wait_ms: milliseconds are double",
        "vmem/more.c: uint64_t *ms: milliseconds are double",
        "tools/job/more.h: vmem_more() begins with the name of vmem/vmem.h",
        "vmem/vmem.h, tools/job/more.h: the guard CUDAW_VMEM_H is there more than once",
        "vmem/gate.h, checkpoint/gate/gate.h: the name gate.h is there more than once",
        "tools/daemon/members.h, tools/daemon/more.c: the tag member in tools/daemon is there more than once"])
    finds("there is no directory attic", change=lambda page: page.replace("| `checkpoint/gate` |", "| `attic` |"),
          checked="check-words")


if __name__ == "__main__":
    main()
