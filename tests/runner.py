#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run test programs, each with a time limit, and say how they fared.

Usage: runner.py [OPTION]... [PROGRAM]...

A test is a program. One that prints TAP counts each of its points; any other counts once, by its
exit status: 0 passes, 77 skips, the rest fails. Each runs in a process group of its own, which is
killed when the program ends or its time is up, and has a TMPDIR of its own, removed with it,
so that nothing stays behind.

A list file names tests, one a line: NAME SECONDS PROGRAM [ARGUMENT]..., where SECONDS is the time
limit and PROGRAM is found beside the list. '#' starts a comment.

A line "figure NAME VALUE UNIT" in a test's output is a measurement and goes to results.json.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

TAIL_LINES = 60
LOOK_S = 0.5    # between looks at how busy the processors are
SKIP_STATUS = 77
POINT = re.compile(r"(not )?ok\b(?: +\d+)? *-? *((?:\\#|[^#])*?) *(?:# *(skip)\b *(.*))?$", re.IGNORECASE)
PLAN = re.compile(r"1\.\.(\d+) *(?:# *skip\b *(.*))?$", re.IGNORECASE)
FIGURE = re.compile(r"figure (\S+) (-?[0-9.eE+-]+) (\S+)$")
WORD = {"pass": "ok", "fail": "FAIL", "skip": "skip"}


class Test:
    def __init__(self, name, limit, argv):
        self.name = name
        self.limit = limit
        self.argv = argv
        self.cases = []     # patterns: of its cases, these alone; none: all
        self.seconds = 0.0
        self.output = ""
        self.why = ""
        self.points = []    # of {"name", "result"}

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

    def add_point(self, name, result):
        self.points.append({"name": name, "result": result})

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
                "points": self.points, "why": self.why, "figures": self.figures(),
                "output": self.output.splitlines()[-TAIL_LINES:]}


def kill_group(pid):
    """End what is left of a group whose leader, not yet waited for, keeps its number taken."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def ended_within(pid, limit):
    """True where the process ends within @limit seconds; it is left to be waited for."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            return True
        time.sleep(0.01)
    return False


def judge_tap(test, status):
    """Take the points from TAP output; returns False where the output is not TAP."""
    plan, reason = None, ""
    for line in test.output.splitlines():
        point = POINT.match(line)
        if point:
            skipped = "skip" if point[3] else None
            test.add_point(point[2], "fail" if point[1] else skipped or "pass")
            reason = reason or point[4] or ""
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


def environment(test, directory):
    """TEST_CASES is for the tests in Python; those by Check take one of theirs by its name."""
    only = {"TEST_CASES": " ".join(test.cases), "CK_RUN_CASE": test.cases[0]} if test.cases else {}
    return {**os.environ, **only, "TMPDIR": directory}


def run(test, begin_by=None):
    start = time.monotonic()
    if begin_by is not None and time.time() > begin_by:
        test.fail("not begun in time")
        return test
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory(
            prefix="cudaw-", ignore_cleanup_errors=True) as directory:
        os.chmod(directory, 0o755)     # tests that become another user read what they made in it
        try:
            process = subprocess.Popen(test.argv, env=environment(test, directory),
                                       stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            test.fail(f"cannot be started: {error}")
            return test
        in_time = ended_within(process.pid, test.limit)
        kill_group(process.pid)
        status = process.wait()
        test.seconds = time.monotonic() - start
        output.seek(0)
        test.output = output.read().decode(errors="replace")
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


def run_all(tests, jobs, spare, begin_by):
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
                running.add(pool.submit(run, waiting.popleft(), begin_by))
            done, running = concurrent.futures.wait(
                running, LOOK_S, concurrent.futures.FIRST_COMPLETED)
            for future in done:
                report(future.result())


def report(test):
    line = f"{WORD[test.result]:4}  {test.name:32} {test.seconds:7.1f} s"
    if len(test.points) > 1:
        line += f"  {test.count('pass')}/{len(test.points)} points"
    if test.why:
        line += f"  {test.why}"
    print(line, flush=True)
    if test.result == "fail":
        for point in test.points:
            if point["result"] == "fail":
                print("      not ok: " + point["name"])
        for line in test.output.splitlines()[-TAIL_LINES:]:
            print("      | " + line)
        sys.stdout.flush()


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
    parser.add_argument("--begin-by", type=float, metavar="SECONDS",
                        help="fail the tests that have not begun by then, in seconds since 1970")
    parser.add_argument("--results", metavar="DIR", help="write DIR/results.json")
    return parser.parse_args()


def main():
    args = parse()
    # A shell's background job ignores some, as nohup does, and so would all that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_DFL)
    tests = [Test(os.path.basename(program), args.timeout, [os.path.abspath(program)])
             for program in args.programs]
    if args.list:
        tests += read_list(os.path.abspath(args.list))
    if args.only:
        tests = [test for test in tests if test.wanted(args.only)]
    run_all(tests, max(args.jobs, 1), max(args.spare, 0), args.begin_by)
    if args.results:
        os.makedirs(args.results, exist_ok=True)
        with open(os.path.join(args.results, "results.json"), "w", encoding="utf-8") as file:
            json.dump([test.record() for test in tests], file, indent=1)
            file.write("\n")
    total = {word: sum(test.count(word) for test in tests) for word in WORD}
    print(f"{total['pass']} passed, {total['fail']} failed, {total['skip']} skipped")
    return 1 if total["fail"] or not total["pass"] else 0


if __name__ == "__main__":
    sys.exit(main())
