#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/json.md has exactly the keys that the commands print with --json, and their exit codes. What
cudaw snapshot and cudaw restore print is compared where they run (tests/jobs).
"""
import json
import os
import re

from clilib import Directory, FakeJob, cudaw, equal, main, scratch
from json_docs import check_documented, page, section
from snapshotlib import write

FIXTURES = os.path.join(os.path.dirname(__file__), "..", "kparams", "fixtures")
COMMANDS = ["run", "top", "metrics", "cdi", "ps", "pause", "resume", "trim", "turns", "yield",
            "events", "wait", "doctor", "snapshot", "restore", "inspect", "verify",
            "kernels", "version"]
FIGURES = ["pause_us 250125", "pause_bytes 8", "pause_phase copy 200500", "resume_us 9000",
           "resume_bytes 8", "resume_phase copy 5000"]


def printed(command, *args, code=0):
    result = cudaw(command, "--json", *args)
    equal((command, result.code), (command, code))
    return json.loads(result.out)


def job(directory=None, **fields):
    figures = [*FIGURES, "end ok"]
    return FakeJob(directory or Directory(), name="train", **fields,
                   answers={"pause": figures, "resume": figures, "trim": ["end ok"]})


def test_ps():
    job(pause_us=2, pause_bytes=3, pause_phase="copy 1", resume_us=2, resume_bytes=3,
        resume_phase="map 1")
    check_documented("ps", printed("ps"))


def test_pause_and_resume():
    there = job()
    for verb in ("pause", "resume"):
        row, = rows = printed(verb, "train")
        check_documented(verb, rows)
        equal([row[key] for key in ("request", "pid", "id", "name", "outcome", "code", "message")],
              [verb, there.pid, "abc123", "train", "done", 0, None])
    equal((row["ms"], row["bytes"], row["phases"]), (9.0, 8, {"copy": 5.0}))


def test_trim_has_no_figures():
    job()
    row, = rows = printed("trim", "train")
    check_documented("trim", rows, every=False)
    equal((row["outcome"], row["ms"], row["phases"]), ("done", None, {}))


def test_what_does_not_succeed():
    directory = Directory()
    FakeJob(directory, name="bad", answers={"pause": ["end timeout kernels did not end"]})
    FakeJob(directory, id="fff000", name="good", answers={"pause": ["note already paused", "end ok"]})
    rows = {row["name"]: row for row in printed("pause", "--all", code=5)}
    check_documented("pause", list(rows.values()), every=False)
    equal([rows["bad"][key] for key in ("outcome", "code", "message")],
          ["failed", 5, "kernels did not end"])
    equal([rows["good"][key] for key in ("outcome", "code", "message", "note")],
          ["done", 0, None, "already paused"])
    equal([row["outcome"] for row in printed("pause", "--no-wait", "good")], ["begun"])
    equal(printed("pause", "nobody", code=3), [])
    rows = printed("pause", "--dry-run", "--all")
    equal([(row["outcome"], row["ms"], row["schema"]) for row in rows], [("meant", None, 1)] * 2)


def test_doctor():
    Directory()
    result = cudaw("doctor", "--json", env={"CUDAW_REAL_LIBCUDA": "/no/such/library"})
    equal(result.code, 6)
    check_documented("doctor", json.loads(result.out))


def test_snapshots():
    path = os.path.join(scratch(), "snapshot")
    write(path, 1, 4)
    # The keys that only a snapshot with a process image has, and those that a writer may leave out.
    without = printed("inspect", path)
    equal(sorted(key for key in ("image_bytes", "opened", "terminal") if key in without), [])
    check_documented("inspect", {**without, "image_bytes": 1, "opened": [], "terminal": False},
                     every=False)
    good, bad = rows = printed("verify", path, "/no/such/snapshot", code=1)
    check_documented("verify", rows)
    equal([(row["path"], row["intact"], row["code"]) for row in (good, bad)],
          [(path, True, 0), ("/no/such/snapshot", False, 1)])


def test_kernels():
    check_documented("kernels", printed("kernels", os.path.join(FIXTURES, "small.ptx")))


def test_version():
    check_documented("version", printed("version"))
    equal(printed("--version"), printed("version"))


def test_every_command_has_a_section():
    for command in COMMANDS[4:]:
        section(command)


def test_exit_codes():
    """The table has those of the help texts, and their meanings are those of cudaw --help."""
    table = dict(re.findall(r"^\| `cudaw (\w+)` \| (.*) \|$", page(), re.MULTILINE))
    equal(sorted(table), sorted(COMMANDS))
    for command in COMMANDS:
        told = cudaw(command, "--help").out.partition("Exit codes:")[2]
        equal((command, re.findall(r"\b\d+\b", table[command])),
              (command, re.findall(r"\b\d+(?= [a-zA-Z])", told)))
    told = re.findall(r"^  (\d)  \S", cudaw("--help").out, re.MULTILINE)
    equal(re.findall(r"^\| (\d) \|", page(), re.MULTILINE), told)


if __name__ == "__main__":
    main()
