#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The runner of all tests: what it runs, and what it counts."""
import os
import re
import shutil
import stat
import subprocess
import sys

from clilib import LIMIT_S, equal, contains, main, scratch
import proclib
from harness import check, until

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


def run(*args, **env):
    kept = {key: value for key, value in os.environ.items() if key not in ("TEST_CASES", "TEST_NUMBERS", "SANITIZE")}
    env = {**kept, **env}
    return subprocess.run([sys.executable, RUNNER, *args], env=env, text=True, capture_output=True,
                          timeout=LIMIT_S, check=False)


def last(done):
    return done.stdout.splitlines()[-1]


def fails_at(directory, times, how):
    """The text of a case that fails at these of the times that it runs, by a statement."""
    return (f"import os\ndef test_a():\n    open('{directory}/ran', 'a').write('x')\n"
            f"    if os.path.getsize('{directory}/ran') in {times}: {how}\n"
            "def test_b(): print('b runs')\nmain()\n")


def ran(directory):
    return os.path.getsize(os.path.join(directory, "ran"))


def test_a_case_that_passes_twice_alone_is_unstable():
    """Its first output is kept whole, and no other case runs again."""
    directory = scratch()
    path = harness_program(directory, "odd", fails_at(directory, [1], "print('first');equal(1, 2)"))
    done = run("--results", directory, path)
    equal((done.returncode, last(done)), (0, "2 passed, 0 failed, 0 skipped"))
    contains(done.stdout, "\nUNSTABLE test_odd.py: a: it is 1, should be 2\n")
    equal((ran(directory), done.stdout.count("b runs")), (3, 0))
    with open(os.path.join(directory, "test_odd.py.output"), encoding="utf-8") as file:
        output = file.read()
    contains(output, "first\n")
    contains(output, "b runs\n")


def test_repeated_tests_are_counted_and_not_run_again():
    directory = scratch()
    path = harness_program(directory, "odd", fails_at(directory, [2, 3], "equal(1, 2)"))
    done = run("--repeat", "4", "--only", "odd:a", "--results", directory, path)
    equal((done.returncode, last(done), ran(directory)), (1, "2 passed, 2 failed, 0 skipped", 4))
    contains(done.stdout, "\ntest_odd.py: 2 of 4 runs failed, ")
    equal(sorted(name for name in os.listdir(directory) if name.endswith(".output")),
          ["test_odd.py.1.output", "test_odd.py.2.output"])


def test_a_case_that_fails_again_fails():
    for again in (2, 3):
        directory = scratch()
        done = run(harness_program(directory, "odd", fails_at(directory, [1, again], "equal(1, 2)")))
        equal((done.returncode, last(done), ran(directory)), (1, "1 passed, 1 failed, 0 skipped", again))


def test_what_is_certain_is_not_run_again():
    """Wrong data, a crash, a hang of the command, a report of a sanitizer, a test without chance."""
    for how in ("raise WrongData('byte 3')", "judge_end('a job', 65)", "judge_end('a job', -11)",
                "raise subprocess.TimeoutExpired([CUDAW, 'pause'], 9)", "os.kill(os.getpid(), 11)"):
        directory = scratch()
        done = run(harness_program(directory, "odd", fails_at(directory, [1], how)))
        equal((done.returncode, ran(directory)), (1, 1), how)
        contains(done.stdout, "test_odd.py: a failure that is certain")
    directory = scratch()
    for text, bad in (("WARNING: beware", 0), ("ERROR: BAD\nSUMMARY: BAD", 1)):
        directory = scratch()
        path = program(directory, "report.py", f"echo >> {directory}/ran\n"
                       f'echo "==1==\n{text}" > "${{ASAN_OPTIONS##*log_path=}}.1"\n')
        done = run(path, SANITIZE="address")
        equal((done.returncode, ran(directory), last(done)), (bad, 1, f"1 passed, {bad} failed, 0 skipped"))
        equal("BAD" in done.stdout, bool(bad))
    directory = scratch()
    path = harness_program(directory, "odd", fails_at(directory, range(9), "equal(1, 2)"))
    equal((run("--certain", path, "--", path).returncode, ran(directory)), (1, 1))


def test_more_than_three_that_fail_are_not_chance():
    """In all runs that list them in the same file."""
    directory = scratch()
    paths = [harness_program(scratch(), "odd", fails_at(scratch(), [1], "equal(1, 2)")) for _ in range(4)]
    done = run(*paths)
    equal((done.returncode, last(done)), (1, "4 passed, 4 failed, 0 skipped"))
    contains(done.stdout, "more than 3 cases failed, so none is run again")
    listed = os.path.join(directory, "listed")
    for number in range(4):
        odd = scratch()
        path = harness_program(odd, "odd", fails_at(odd, [1], "equal(1, 2)"))
        equal(run("--unstable", listed, path).returncode, int(number == 3))
    with open(listed, encoding="utf-8") as file:
        equal(file.read(), "test_odd.py: a: it is 1, should be 2\n" * 3)


def test_a_failed_case_prints_its_own_lines():
    text = "\n".join(f"def test_{name}():\n    print('{name} says', *range(200), sep='\\n')\n"
                     f"    check({name != 'b'}, 'no')" for name in "abc")
    done = run(harness_program(scratch(), "long", text + "\nmain()\n"))
    first = done.stdout.partition("FAIL")[2].partition("FAIL")[0]
    contains(first, "| b says\n      | 0\n")
    equal(("a says" in first, "c says" in first), (False, False))


def test_a_hang_shows_what_hangs():
    path, without_gdb = program(scratch(), "hangs", "sleep 1000\n"), scratch()
    for name in ("sleep", "head"):
        os.symlink(shutil.which(name), f"{without_gdb}/{name}")
    for programs in (os.environ["PATH"], without_gdb):
        done = run("--timeout", "1", path, PATH=programs)
        equal((done.returncode, last(done)), (1, "0 passed, 1 failed, 0 skipped"))
        contains(done.stdout, "not done after 1 s")
        equal(len(re.findall(r"\| -- \d+$", done.stdout, re.MULTILINE)), 2, "the shell and what it runs")


def test_one_that_is_told_to_end_leaves_nothing():
    """Nor does a test that hangs: what a test has started may have sessions of its own."""
    for how, limit in (("INT", 1000), ("TERM", 1000), (None, 1)):
        directory = scratch()
        path = program(directory, "long", f"setsid sleep 1000 & echo $! > {directory}/new\n"
                       f"mv {directory}/new {directory}/pid\nwait\n")
        with subprocess.Popen([sys.executable, RUNNER, "--timeout", str(limit), path],
                              stdout=subprocess.DEVNULL) as runner:
            until(lambda: os.path.exists(f"{directory}/pid"), 10, "the test has begun")
            with open(f"{directory}/pid", encoding="ascii") as file:
                pid = int(file.read())
            if how:
                proclib.send(runner.pid, how)
            check(runner.wait() != 0, "it ended well")
        until(lambda: proclib.is_zombie(pid), 10, "what the test has started has ended")


def test_the_tests_of_a_list_are_left_out():
    directory = scratch()
    paths = [program(directory, name, "exit 0\n") for name in ("first", "second")]
    listed = os.path.join(directory, "list")
    with open(listed, "w", encoding="ascii") as file:
        file.write("# a comment\n\nsecond 90 the machine's time\n")
    equal(last(run("--without", listed, *paths)), "1 passed, 0 failed, 0 skipped")
    equal(run("--select", "--without", listed, *paths).stdout, f"{paths[0]}\n")


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


def test_those_that_take_most_of_the_processors_are_named():
    directory = scratch()
    paths = [program(directory, f"short{i}", "exit 0\n") for i in range(10)]
    paths.append(program(directory, "long", "for _ in $(seq 200000); do :; done\n"))
    said, = re.findall(r"^processor time: (.*)$", run(*paths).stdout, re.MULTILINE)
    check(re.fullmatch(r"long \d+ s(, short\d \d s){9}", said), f"it says {said!r}")


def test_only_those_that_are_named():
    directory = scratch()
    paths = [program(directory, name, 'echo "cases: $TEST_CASES."; exit 3\n')
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


# A "make" without work; $FAILS is the target that fails. Each target of tests has a count.
MAKE = """
case " $* " in *" $FAILS "*) bad=1;; *) bad=0; esac
case " $* " in *" check-ci"*|*" storm "*) echo "$((5 - bad)) passed, $bad failed, 2 skipped"; esac
[ $bad -eq 0 ] || echo "make: *** [$FAILS]" >&2
exit $bad
"""


def test_what_fails_after_a_case_is_its_failure():
    for case, fails in (("pass", "it is 1, should be 2"), ("equal(3, 4)", "it is 3, should be 4")):
        path = harness_program(scratch(), "fails", "after_case.append(lambda good: equal(1, 2))\n"
                                                   f"def test_a(): {case}\nmain()")
        contains(run(path).stdout, f"not ok: a: {fails}")


def test_ci_runs_all_phases_and_ends_with_the_count():
    directory = scratch()
    program(directory, "make", MAKE)
    script = os.path.join(os.path.dirname(os.path.dirname(RUNNER)), ".ci", "run")
    for fails, count in (("nothing", "20 passed, 0 failed, 8 skipped"),
                         ("check-ci", "19 passed, 1 failed, 8 skipped"),
                         ("storm", "19 passed, 1 failed, 8 skipped"),
                         ("check-layers", "20 passed, 1 failed, 8 skipped"),
                         ("demo", "20 passed, 1 failed, 8 skipped"),
                         ("all", "0 passed, 1 failed, 0 skipped")):
        env = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}", "FAILS": fails}
        done = subprocess.run([script], env=env, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)
        equal((done.returncode, last(done)), (int(fails != "nothing"), count), fails)
        equal("=== failed: " in done.stdout, fails != "nothing")
        equal("=== a storm" in done.stdout, fails != "all")


def test_an_old_entry_of_unstable_fails():
    path = os.path.join(scratch(), "unstable")
    script = os.path.join(os.path.dirname(RUNNER), "check-unstable")
    for text, status, listed in (("# nothing\n", 0, 0), ("2020-01-01 test_a.py: b c -- a race\n", 1, 0),
                                 ("9020-01-01 test_a.py: b c -- a race\n", 0, 0), ("test_a.py: b\n", 1, 1)):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        for args, wanted in ((), status), (("--list",), listed):
            done = subprocess.run([script, *args], env={**os.environ, "TESTS_UNSTABLE": path}, text=True,
                                  capture_output=True, timeout=LIMIT_S, check=False)
            equal(done.returncode, wanted, f"{text} {args}")


if __name__ == "__main__":
    main()
