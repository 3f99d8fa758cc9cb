#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run test programs, each with a time limit, and say how they fared.

Usage: runner.py [OPTION]... [PROGRAM]...

A test is a program. One that prints TAP counts each of its points; any other counts once, by its
exit status: 0 passes, 77 skips, the rest fails. Each runs in a process group of its own, which is
killed when the program ends or its time is up, and has a TMPDIR of its own on a disk, removed with it,
so that nothing stays behind.

A failure is certain if running it again could only hide it: a sanitizer's report, a fatal signal,
wrong data, a hang. It is known by the exit status of the test (tests/harness.py), by a file that
the sanitizer wrote, by the time limit, or since the test has no threads and no clock (--certain).
All other failed cases run again at the end, alone, twice. A case that passes both times counts as
passed and is listed as UNSTABLE; a run with more than MOST_UNSTABLE of them fails.

A list file names tests, one a line: NAME SECONDS PROGRAM [ARGUMENT]..., where SECONDS is the time
limit and PROGRAM is found beside the list. '#' starts a comment.

A line "figure NAME VALUE UNIT" in a test's output is a measurement and goes to results.json.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import glob
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import proclib

BLOCK_LINES = 400   # of a failed case
STACKS = 20         # processes of a test that hangs
TAIL_LINES = 100    # of a test that failed without a case
MOST_UNSTABLE = 3   # of all runs that have the file of --unstable
CERTAIN_STATUS = 3  # of a test with a failure that is certain
SANITIZER_STATUS = 86   # UBSan beside ASan writes no file; it ends the process with the Makefile's status
LONGEST = 10    # tests that a run of more names
LOOK_S = 0.5    # between looks at how busy the processors are
SKIP_STATUS = 77
POINT = re.compile(r"(not )?ok\b(?: +(\d+))? *-? *((?:\\#|[^#])*?) *(?:# *(skip)\b *(.*))?$", re.IGNORECASE)
PLAN = re.compile(r"1\.\.(\d+) *(?:# *skip\b *(.*))?$", re.IGNORECASE)
FIGURE = re.compile(r"figure (\S+) (-?[0-9.eE+-]+) (\S+)$")
WORD = {"pass": "ok", "fail": "FAIL", "skip": "skip"}
SANITIZERS = ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")


class Test:
    def __init__(self, name, limit, argv):
        self.name = name
        self.limit = limit
        self.argv = argv
        self.cases = []     # patterns: of its cases, these alone; none: all
        self.numbers = []   # of those the ones with these numbers alone; none: all
        self.seconds = 0.0
        self.cpu = 0.0      # seconds of the processor, of all processes that were waited for
        self.output = ""
        self.why = ""
        self.certain = False    # its failures are
        self.points = []    # of {"name", "result", "number", "lines"}: the last two say where it stands

    @property
    def result(self):
        results = {point["result"] for point in self.points}
        return next((word for word in ("fail", "pass") if word in results), "skip")

    def wanted(self, patterns):
        """True if a FILE or FILE:CASE means it. FILE may leave out "test_" and ".py"."""
        names = {self.name, re.sub(r"^test_|\.py$", "", self.name)}
        found = [case for name, _, case in (pattern.partition(":") for pattern in patterns)
                 if fnmatch.filter(names, name)]
        self.cases = [] if "" in found else found
        return bool(found)

    def add_point(self, name, result, number=None, lines=None):
        self.points.append({"name": name, "result": result, "number": number, "lines": lines})

    def failed(self):
        return [point for point in self.points if point["result"] == "fail"]

    def another(self, name):
        """A run of the same cases, called @name."""
        test = Test(name, self.limit, list(self.argv))
        test.cases = self.cases
        return test

    def again(self):
        """The same test, of its failed points alone if all of them have a number."""
        test = self.another(self.name)
        numbers = [point["number"] for point in self.failed()]
        test.numbers = numbers if None not in numbers else []
        return test

    def fail(self, why):
        self.why = why
        self.add_point(why, "fail")

    def count(self, word):
        return sum(point["result"] == word for point in self.points)

    def figures(self):
        found = (FIGURE.match(line) for line in self.output.splitlines())
        return [{"name": m[1], "value": float(m[2]), "unit": m[3]} for m in found if m]

    def record(self):
        return {"name": self.name, "result": self.result, "seconds": round(self.seconds, 3),
                "cpu": round(self.cpu, 1), "why": self.why, "figures": self.figures(),
                "points": [{"name": point["name"], "result": point["result"]} for point in self.points],
                "output": self.output.splitlines()[-TAIL_LINES:]}


def kill_group(pid):
    """End what is left of a group whose leader, not yet waited for, keeps its number taken."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_family(pid):
    """End a test and all that it has started, also what has a session of its own."""
    for member in proclib.family(pid):
        proclib.send(member, "KILL")


# The tests that run, by the process of each.
RUNNING = set()


def give_up(number, _frame):
    """The runner is told to end: nobody else would end what runs."""
    for pid in tuple(RUNNING):
        kill_family(pid)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def ended_within(pid, limit):
    """True where the process ends within @limit seconds; it is left to be waited for."""
    fd = os.pidfd_open(pid)
    try:
        return bool(select.select([fd], [], [], limit)[0])
    finally:
        os.close(fd)


def judge_tap(test, status):
    """Take the points from TAP output; returns False where the output is not TAP."""
    plan, reason, begin = None, "", 0
    for index, line in enumerate(test.output.splitlines()):
        point = POINT.match(line)
        if point:
            skipped = "skip" if point[4] else None
            test.add_point(point[3], "fail" if point[1] else skipped or "pass", point[2] and int(point[2]),
                           (begin, index + 1))
            reason, begin = reason or point[5] or "", index + 1
            continue
        match = PLAN.match(line)
        if match:
            plan = int(match[1])
            reason = reason or match[2] or ""
    if plan is None:
        test.points.clear()
        return False
    if plan == 0 and not test.points and status in (0, SKIP_STATUS):
        test.add_point(test.name, "skip")
    elif plan != len(test.points):
        test.fail(f"planned {plan} points, made {len(test.points)}")
    elif status != 0 and not test.count("fail"):
        test.fail(f"ended with status {status}")
    if test.result == "skip":
        test.why = reason
    return True


def environment(test, directory, reports):
    """TEST_CASES and TEST_NUMBERS are for the tests in Python; those by Check take one of theirs by its name."""
    env = {**os.environ, "TMPDIR": directory}
    if test.cases:
        env.update(TEST_CASES=" ".join(test.cases), CK_RUN_CASE=test.cases[0])
    if test.numbers:
        env["TEST_NUMBERS"] = " ".join(map(str, test.numbers))
    # Check sees how each test ends; and a process without descriptors could not even write a warning.
    if env.get("SANITIZE") and test.name.endswith(".py"):
        for name in SANITIZERS:
            env[name] = f"{env.get(name, '')}:log_path={reports}/report".lstrip(":")
    return env


def reports_text(directory):
    """What sanitizers have reported, in whichever process of the test; each report has a summary, a warning none."""
    found = ""
    for path in sorted(glob.glob(os.path.join(directory, "report.*"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        if "\nSUMMARY: " in text:
            found += f"# a sanitizer reports, in process {path.rpartition('.')[2]}:\n{text}"
    return found


def run(test):
    start = time.monotonic()
    stacks = ""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory(
            prefix="cudaw-", dir=os.environ.get("TMPDIR", "/var/tmp"), ignore_cleanup_errors=True) as directory, tempfile.TemporaryDirectory(
            prefix="cudaw-reports-", ignore_cleanup_errors=True) as reports:
        os.chmod(directory, 0o755)     # tests that become another user read what they made in it
        os.chmod(reports, 0o1777)
        try:
            process = subprocess.Popen(test.argv, env=environment(test, directory, reports),
                                       stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            test.fail(f"cannot be started: {error}")
            return test
        RUNNING.add(process.pid)
        in_time = ended_within(process.pid, test.limit)
        if not in_time:
            stacks = "".join(map(proclib.stacks, proclib.family(process.pid)[:STACKS]))
            kill_family(process.pid)
        kill_group(process.pid)
        RUNNING.discard(process.pid)
        _, ended, usage = os.wait4(process.pid, 0)
        status = process.returncode = os.waitstatus_to_exitcode(ended)
        test.seconds = time.monotonic() - start
        test.cpu = usage.ru_utime + usage.ru_stime
        output.seek(0)
        test.output = output.read().decode(errors="replace") + stacks
        reported = reports_text(reports)
        test.output += reported
    if not in_time:
        test.fail(f"not done after {test.limit:g} s")
    elif not judge_tap(test, status):
        if status == SKIP_STATUS:
            test.add_point(test.name, "skip")
            test.why = (test.output.splitlines() or [""])[-1]
        elif status != 0:
            test.fail(f"ended with status {status}")
        else:
            test.add_point(test.name, "pass")
    if reported:
        test.fail("a sanitizer reports")
    if not in_time or reported or status in (CERTAIN_STATUS, SANITIZER_STATUS) or status < 0:
        test.certain = True
    return test


def idle_seconds():
    """How long the processors that we may use have been idle, in all; without /proc, never."""
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    try:
        with open("/proc/stat", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return 0
    return sum(int(row[4]) for row in rows if row[0] in ours) / os.sysconf("SC_CLK_TCK")


def run_all(tests, jobs, spare, results):
    """Run @jobs tests at once, and up to @spare more as long as half a processor or more is idle:
    most tests wait more than they work."""
    waiting, running = collections.deque(tests), set()
    looked, idle = time.monotonic(), idle_seconds()
    with concurrent.futures.ThreadPoolExecutor(jobs + spare) as pool:
        while waiting or running:
            room = jobs - len(running)
            if time.monotonic() - looked >= LOOK_S:
                was, before = looked, idle
                looked, idle = time.monotonic(), idle_seconds()
                if len(running) < jobs + spare and idle - before > (looked - was) / 2:
                    room = max(room, 1)
            for _ in range(min(room, len(waiting))):
                running.add(pool.submit(run, waiting.popleft()))
            done, running = concurrent.futures.wait(
                running, LOOK_S, concurrent.futures.FIRST_COMPLETED)
            for future in done:
                report(future.result(), results)


def report(test, results):
    line = f"{WORD[test.result]:4}  {test.name:32} {test.seconds:7.1f} s"
    if len(test.points) > 1:
        line += f"  {test.count('pass')}/{len(test.points)} points"
    if test.why:
        line += f"  {test.why}"
    print(line, flush=True)
    if test.result == "fail":
        tell(test, results)


def tell(test, results):
    """The lines of each failed case; of a test that failed without one, the last. All of it goes to a file."""
    lines = test.output.splitlines()
    for point in test.failed():
        print("      not ok: " + point["name"])
        begin, end = point["lines"] or (len(lines) - TAIL_LINES, len(lines))
        for line in lines[max(begin, end - BLOCK_LINES, 0):end]:
            print("      | " + line)
    if results:
        path = os.path.join(results, f"{test.name}.output")
        with open(path, "w", encoding="utf-8") as file:
            file.write(test.output)
        print(f"      all that it printed: {path}")
    sys.stdout.flush()


def passes_again(test):
    """Run what failed of a test again, twice, with nothing beside it."""
    for _ in range(2):
        again = run(test.again())
        report(again, None)
        if again.result != "pass":
            return False
    return True


def settle(tests, unstable):
    """Run the failed cases again that may have failed by chance; returns the names of those which pass then."""
    found = []
    failed = [test for test in tests if test.failed()]
    uncertain = [test for test in failed if not test.certain]
    for test in failed:
        if test.certain:
            print(f"{test.name}: a failure that is certain, so it is not run again")
    if unstable + sum(len(test.failed()) for test in uncertain) > MOST_UNSTABLE:
        print(f"more than {MOST_UNSTABLE} cases failed, so none is run again")
        return found
    for test in uncertain:
        if passes_again(test):
            for point in test.failed():
                point["result"] = "pass"
                found.append(f"{test.name}: {point['name']}")
    return found


def read_list(path):
    tests = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            words = shlex.split(line, comments=True)
            if not words:
                continue
            if len(words) < 3 or not words[1].isdigit():
                raise SystemExit(f"runner: {path}:{number}: not NAME SECONDS PROGRAM [ARG]...")
            program = os.path.join(os.path.dirname(path), words[2])
            tests.append(Test(words[0], int(words[1]), [program] + words[3:]))
    return tests


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\nUsage")[0],
        epilog="Exit status: 0 when no test failed and one passed, else 1.")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--list", help="a list of tests, to run after the programs")
    parser.add_argument("--only", metavar="PATTERN", action="append",
                        help="only tests whose name matches one of these; NAME:CASE: that case alone")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once (1)")
    parser.add_argument("--spare", type=int, default=0,
                        help="how many more at once while a processor is idle (0)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a program (60)")
    parser.add_argument("--certain", metavar="PATH", nargs="*", default=[],
                        help="programs without threads and clock: what fails there fails again")
    parser.add_argument("--without", metavar="FILE",
                        help="leave out the tests in this list, which have a line NAME SECONDS each")
    parser.add_argument("--repeat", type=int, default=1, metavar="COUNT",
                        help="run each so often (1), and none again; say how often each failed")
    parser.add_argument("--select", action="store_true", help="print the programs that would run, and end")
    parser.add_argument("--unstable", metavar="FILE",
                        help="list the unstable cases there; those that it has count")
    parser.add_argument("--results", metavar="DIR",
                        help="write DIR/results.json, and the output of each test that fails")
    return parser.parse_args()


def chosen(args):
    tests = [Test(os.path.basename(program), args.timeout, [program]) for program in args.programs]
    if args.list:
        tests += read_list(os.path.abspath(args.list))
    if args.only:
        tests = [test for test in tests if test.wanted(args.only)]
    if args.without:
        left_out = names_of(args.without)
        tests = [test for test in tests if test.name not in left_out]
    if args.repeat > 1:
        tests = [test.another(f"{test.name}.{number}") for number in range(args.repeat) for test in tests]
    return tests


def tell_repeated(tests, count):
    """How many of the runs of each test failed."""
    for name in sorted({test.name.rpartition(".")[0] for test in tests}):
        runs = [test for test in tests if test.name.rpartition(".")[0] == name]
        failed = sum(bool(test.failed()) for test in runs)
        print(f"{name}: {failed} of {count} runs failed, {sum(test.seconds for test in runs) / count:.1f} s each")


def names_of(path):
    with open(path, encoding="utf-8") as lines:
        return {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}


def written_lines(path):
    if not path or not os.path.exists(path):
        return 0
    with open(path, encoding="utf-8") as file:
        return len(file.readlines())


def main():
    args = parse()
    # A shell's background job ignores some, as nohup does, and so would all that the tests start.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, give_up)
    tests = chosen(args)
    if args.select:
        print(*(test.argv[0] for test in tests))
        return 0
    for test in tests:
        test.certain = test.argv[0] in args.certain
        test.argv[0] = os.path.abspath(test.argv[0])
    if args.results:
        os.makedirs(args.results, exist_ok=True)
    run_all(tests, max(args.jobs, 1), max(args.spare, 0), args.results)
    unstable = settle(tests, written_lines(args.unstable)) if args.repeat == 1 else []
    if args.results:
        with open(os.path.join(args.results, "results.json"), "w", encoding="utf-8") as file:
            json.dump([test.record() for test in tests], file, indent=1)
            file.write("\n")
    if args.unstable:
        with open(args.unstable, "a", encoding="utf-8") as file:
            file.writelines(f"{case}\n" for case in unstable)
    if len(tests) > LONGEST:
        print("processor time: " + ", ".join(
            f"{test.name} {test.cpu:.0f} s" for test in sorted(tests, key=lambda test: -test.cpu)[:LONGEST]))
    if args.repeat > 1:
        tell_repeated(tests, args.repeat)
    for case in unstable:
        print(f"UNSTABLE {case}")
    total = {word: sum(test.count(word) for test in tests) for word in WORD}
    print(f"{total['pass']} passed, {total['fail']} failed, {total['skip']} skipped")
    return 1 if total["fail"] or not total["pass"] else 0


if __name__ == "__main__":
    sys.exit(main())
