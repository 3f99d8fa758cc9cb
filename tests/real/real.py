#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real programs give the same results natively and through pauses.

Each program of the list runs three times: natively, and then, at the same time, natively again and
under cudaw. The run under cudaw is paused and resumed --pauses times by the command, at random
moments from the first CUDA call on; by default a pause releases the whole GPU. All rounds of all
three runs print digests of their results, which have to be equal. A program whose native runs
differ is not comparable. A program that misses a package is skipped, and says which.

With --check the run under cudaw is not paused, and has CUDAW_CHECK=1, which must fail no call.

Several programs run at a time. The table of results is Markdown.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import fnmatch
import os
import random
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from harness import CUDAW, TESTS, Failure, Skip, check  # noqa: E402
from gpulib import RUNTIME_DIR, SCRATCH, Job, cudaw  # noqa: E402
import proclib  # noqa: E402

LIST = os.path.join(TESTS, "real", "list")
GAPS_S = (0.02, 0.4)    # between a resume and the next pause
HELD_S = (0.0, 0.1)     # between a pause and its resume
END_S = 10              # from the hang-up of a job that ends to its end
REFUSED = 6             # the exit code of a pause that would break the job
RUN_S = 30              # for a program's own work, times PATIENCE, as the next
COMMAND_S = 15          # for a pause or resume
TAIL_LINES = 15


@dataclasses.dataclass
class Entry:
    name: str
    part: str
    program: str
    args: list


@dataclasses.dataclass
class Run:
    """What one run of a program printed, and how long it took."""
    digests: list
    seconds: float

    def cell(self):
        return f"{self.seconds:.1f} s, {len(self.digests)} rounds"


@dataclasses.dataclass
class Row:
    """The result of a program; @result is one of RESULTS, @why says more."""
    name: str
    native: Run = None
    under: Run = None
    pauses: int = 0
    refused: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    found: list = dataclasses.field(default_factory=list)   # by CUDAW_CHECK
    result: str = ""
    why: str = ""


RESULTS = {"equal": True, "not comparable": True, "skipped": True, "fails natively": True,
           "differs": False, "too few pauses": False, "failed": False}
output = threading.Lock()


def say(*lines):
    with output:
        print(*lines, sep="\n", flush=True)


def read_list(path):
    with open(path, encoding="ascii") as lines:
        words = [line.partition("#")[0].split() for line in lines]
    return [Entry(name, part, os.path.join(os.path.dirname(path), "programs", program), args)
            for name, part, program, *args in filter(None, words)]


def ended_soon(job):
    """A job that ends hangs up before it is gone; it says why by its exit status."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        job.process.wait(END_S)
    return job.ended()


def uses_cuda(job):
    """Some of its processes, perhaps not the first one."""
    return any(os.path.exists(os.path.join(RUNTIME_DIR, f"{pid}.sock"))
               for pid in (job.pid, *proclib.descendants(job.pid)))


def last_lines(job):
    said = (["stdout:"] + job.lines[-3:] + ["stderr:"] + job.stderr().splitlines()[-TAIL_LINES:])
    return [f"#   {line}" for line in said]


class Program:
    """One program of the list, through all its runs."""

    def __init__(self, entry, args, end):
        self.entry, self.args, self.end = entry, args, end
        self.row = Row(entry.name)
        self.random = random.Random(entry.name)

    def run(self, mode, meanwhile=None, env=None):
        """Run the program to its end, and do @meanwhile with it; if that or the program fails, show
        the end of its output."""
        start = time.monotonic()
        job = Job(self.entry.program, *self.entry.args, mode=mode, name=self.entry.name, env=env)
        try:
            if meanwhile:
                meanwhile(job)
            lines = job.result(RUN_S).splitlines()
        except Skip:
            job.discard()
            raise
        except Exception as error:
            ended = job.ended()
            if not ended:
                job.process.kill()
            job.process.wait()
            end = f"ended with {job.process.returncode}" if ended else "was killed"
            say(f"# {self.entry.name}, {mode}: {error}; it {end}", *last_lines(job))
            job.discard()
            raise
        digests = [line.split()[2] for line in lines if line.startswith("round ")]
        check(digests, "it made no round")
        return Run(digests, time.monotonic() - start)

    def pause_and_resume(self, job):
        """One attempt; True if the job was paused."""
        paused = cudaw("pause", self.entry.name, timeout=COMMAND_S)
        if paused.returncode:
            why = (paused.stderr.strip().splitlines() or ["it said nothing"])[-1]
            why = why.replace(str(job.pid), "PID")
            if paused.returncode == REFUSED or not ended_soon(job):
                self.row.refused[f"exit code {paused.returncode}: {why}"] += 1
            return False
        time.sleep(self.random.uniform(*HELD_S))
        resumed = cudaw("resume", self.entry.name, timeout=COMMAND_S)
        if resumed.returncode:
            check(ended_soon(job), f"cudaw resume ended with {resumed.returncode}: {resumed.stderr}")
        return True

    def pause_often(self, job):
        while not uses_cuda(job) and not job.ended():
            time.sleep(0.01)
        for _ in range(2 * self.args.pauses):
            if job.ended() or self.row.pauses == self.args.pauses or time.monotonic() > self.end:
                return
            self.row.pauses += self.pause_and_resume(job)
            time.sleep(self.random.uniform(*GAPS_S))

    def run_checked(self):
        log = os.path.join(SCRATCH, f"{self.entry.name}.log")
        under = self.run("run", env={"CUDAW_CHECK": "1", "CUDAW_LOG_FILE": log})
        if os.path.exists(log):
            with open(log, encoding="utf-8", errors="replace") as file:
                self.row.found = [line.strip() for line in file if " check: " in line]
        return under

    def run_under(self):
        return self.run_checked() if self.args.check else self.run("run", self.pause_often)

    def judge(self, first):
        row = self.row
        native = {*first.digests, *row.native.digests}
        if len(native) > 1:
            return "not comparable"
        wrong = [digest for digest in row.under.digests if digest not in native]
        if wrong:
            row.why = f"{len(wrong)} of {len(row.under.digests)} rounds"
            return "differs"
        if not self.args.check and row.pauses < self.args.pauses:
            return "too few pauses"
        return "equal"

    def runs(self):
        if time.monotonic() > self.end:
            raise Failure("not begun in time")
        try:
            first = self.run("native")
        except Failure as why:
            self.row.why = self.told(why)
            return "fails natively"
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            again = pool.submit(self.run, "native")
            self.row.under = self.run_under()
            self.row.native = again.result()
        return self.judge(first)

    def told(self, why):
        return " ".join(str(why).replace(self.entry.program, self.row.name).split())

    def __call__(self):
        row = self.row
        try:
            row.result = self.runs()
        except Skip as why:
            row.result, row.why = "skipped", str(why)
        except Exception as why:    # whatever goes wrong is this program's failure
            row.result = "failed"
            row.why = self.told(why)
        say(f"{row.result:14} {row.name:14} {row.pauses} pauses  {row.why}".rstrip())
        return row


def table(rows, args):
    """The Markdown of all rows, with the reasons of refusals, and what the checks found, below."""
    middle = "reported by the checks" if args.check else "pauses | refused"
    lines = [f"| program | natively | under cudaw | {middle} | results |",
             "|---" * (5 if args.check else 6) + "|"]
    for row in rows:
        cells = [str(len(row.found))] if args.check else [str(row.pauses), str(row.refused.total())]
        runs = [run.cell() if run else "" for run in (row.native, row.under)]
        result = f"{row.result}: {row.why}" if row.why else row.result
        lines.append("| " + " | ".join([row.name, *runs, *cells, result]) + " |")
    lines.append("")
    for row in rows:
        lines += [f"- {row.name}, {count} times: {why}" for why, count in row.refused.items()]
        lines += [f"- {row.name}: {line}" for line in row.found]
    return "\n".join(lines).rstrip() + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--part", help="only the programs of this part of the list")
    parser.add_argument("--only", metavar="PATTERN", help="only programs of these names",
                        action="append")
    parser.add_argument("--pauses", type=int, default=30, help="of each program (30)")
    parser.add_argument("--check", action="store_true", help="CUDAW_CHECK=1, and no pauses")
    parser.add_argument("--jobs", type=int, default=8, help="programs at a time (8)")
    parser.add_argument("--limit", type=float, default=400, metavar="SECONDS",
                        help="after which no program begins and no pause (400)")
    parser.add_argument("--list", default=LIST, help="another list than tests/real/list")
    parser.add_argument("--results", metavar="DIR", help="write the table to DIR/real-PART.md")
    return parser.parse_args()


def write(text, args):
    name = "-".join(["real", *(["check"] if args.check else []), args.part or "all"])
    os.makedirs(args.results, exist_ok=True)
    with open(os.path.join(args.results, f"{name}.md"), "w", encoding="utf-8") as file:
        file.write(text)


def main():
    args = parse()
    if not os.path.exists(CUDAW):
        sys.exit(f"{CUDAW} is not there: 'make' first")
    entries = [entry for entry in read_list(os.path.abspath(args.list))
               if args.part in (None, entry.part) and
               (not args.only or any(fnmatch.fnmatch(entry.name, p) for p in args.only))]
    if not entries:
        sys.exit("no program of the list has this part and name")
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    end = time.monotonic() + args.limit
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda entry: Program(entry, args, end)(), entries))
    text = table(rows, args)
    say("", text)
    if args.results:
        write(text, args)
    good = all(RESULTS[row.result] for row in rows)
    return 0 if good and any(row.result == "equal" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
