#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The runner of all tests: what it runs, and what it counts."""
import os
import re
import stat
import subprocess
import sys
import time

from clilib import LIMIT_S, equal, contains, main, scratch

RUNNER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "runner.py")


def program(directory, name, text):
    path = os.path.join(directory, name)
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, stat.S_IRWXU)
    return path


def harness_program(directory, name, text):
    """A test in Python, which uses tests/harness.py."""
    return program(directory, f"test_{name}.py", f"PYTHONPATH={os.path.dirname(RUNNER)} exec "
                   f"{sys.executable} -c \"from harness import *\n{text}\"\n")


def run(*args):
    env = {key: value for key, value in os.environ.items() if key != "TEST_CASES"}
    return subprocess.run([sys.executable, RUNNER, *args], env=env, text=True, capture_output=True,
                          timeout=LIMIT_S, check=False)


def test_what_is_not_begun_in_time_fails():
    directory = scratch()
    paths = [program(directory, name, "exit 0\n") for name in ("first", "second")]
    for by, count in ((time.time() - 1, "0 passed, 2 failed, 0 skipped"),
                      (time.time() + 10000, "2 passed, 0 failed, 0 skipped")):
        done = run("--begin-by", str(by), *paths)
        equal((done.returncode == 0, done.stdout.splitlines()[-1]), (count.startswith("2"), count))
        equal(done.stdout.count("  not begun in time"), count.count("2 failed") * 2)


def test_more_tests_run_while_a_processor_is_idle():
    """Each program says how many run when it begins; as many wait as can run at once."""
    for idle, most in (("time.monotonic() * 2", 3), ("0", 1)):
        directory = scratch()
        text = (f"cd {directory}; : > $$.runs; ls *.runs | wc -l; : > $$.counted\n"
                f"for _ in $(seq 1000); do [ $(ls *.counted | wc -l) -ge {most} ] && break\n"
                "sleep 0.05; done; rm $$.runs; exit 1\n")
        paths = [program(directory, name, text) for name in ("first", "second", "third", "fourth")]
        script = f"import runner, time; runner.idle_seconds = lambda: {idle}; runner.main()"
        done = subprocess.run([sys.executable, "-c", script, "--spare", "2", *paths], text=True,
                              env={**os.environ, "PYTHONPATH": os.path.dirname(RUNNER)},
                              capture_output=True, timeout=LIMIT_S, check=False)
        counts = re.findall(r"^ *\| (\d)$", done.stdout, re.MULTILINE)
        equal((len(counts), max(counts)), (4, str(most)))


def test_only_those_that_are_named():
    directory = scratch()
    paths = [program(directory, name, 'echo "cases: $TEST_CASES."; exit 1\n')
             for name in ("test_one.py", "test_two.py", "test_three", "other")]
    for only, ran in (("one", {"test_one.py": ""}), ("test_t*", {"test_two.py": "", "test_three": ""}),
                      ("two:a_case two:b* other", {"test_two.py": "a_case b*", "other": ""}),
                      ("two:a_case two", {"test_two.py": ""})):
        words = [word for name in only.split() for word in ("--only", name)]
        lines = run(*words, *paths).stdout.splitlines()
        equal({line.split()[1] for line in lines if line.startswith("FAIL")}, set(ran))
        equal(sorted(line.partition("cases: ")[2] for line in lines if "cases: " in line),
              sorted(f"{cases}." for cases in ran.values()))


def test_only_the_cases_that_are_named():
    """Cases that are functions of the program, and cases that are given to main()."""
    directory = scratch()
    for name, text in (
            ("functions", "def test_a_b(): pass\ndef test_c(): pass\nmain()\n"),
            ("given", "def a_b(): pass\nmain(a_b, ('c', a_b))\n")):
        path = harness_program(directory, name, text)
        equal(run("--only", f"{name}:a_*", path).stdout.splitlines()[-1],
              "1 passed, 0 failed, 0 skipped")
        equal(run(path).stdout.splitlines()[-1], "2 passed, 0 failed, 0 skipped")


def test_a_failed_case_is_named_with_its_reason():
    path = harness_program(scratch(), "fails", "def test_a(): equal('#1', 2, 'the\\n#')\n"
                           "def test_b(): pass\ndef test_c(): raise Skip('none')\nmain()\n")
    lines = run(path).stdout.splitlines()
    equal(lines[-1], "1 passed, 1 failed, 1 skipped")
    contains("\n".join(lines), "not ok: a: the \\# is '\\#1', should be 2")


# A "make" without work; $FAILS is the target that fails.
MAKE = """
case " $* " in *" storm "*|*" check "*|*" sanitize-"*) echo "counted for $*"; esac
case " $* " in *" $FAILS "*) echo "make: *** [$FAILS]" >&2; exit 2; esac
"""


def test_ci_ends_with_the_count():
    """The last line is the runner's, and the exit status that of what failed."""
    directory = scratch()
    program(directory, "make", MAKE)
    script = os.path.join(os.path.dirname(os.path.dirname(RUNNER)), ".ci", "run")
    for fails, status, last in (("nothing", 0, " check "), ("check", 2, " check "),
                                ("storm", 2, " storm "), ("sanitize-thread", 2, " sanitize-thread ")):
        env = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}", "FAILS": fails}
        done = subprocess.run([script], env=env, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)
        equal(done.returncode, status)
        contains(done.stdout.splitlines()[-1], "counted for")
        contains(done.stdout.splitlines()[-1], last)
        equal("=== failed in: " in done.stdout, status != 0)


if __name__ == "__main__":
    main()
