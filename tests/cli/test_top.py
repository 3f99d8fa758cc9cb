#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw top: a row for each job, on a terminal and elsewhere. tests/jobs/test_notices.py has jobs that wait."""
import re

from clilib import Directory, FakeJob, contains, cudaw, equal, main, on_terminal, silent

GIB = 1 << 30
TITLES = ["JOB", "USER", "STATE", "CARRIED", "LEFT", "OUT", "GB/S", "TURN", "WAITS", "FOR"]


def pages(out):
    """The rows of each page, by the job, without the lines above."""
    found = []
    for page in out.split("\n\n"):
        head, titles, *rows = page.splitlines()
        equal((re.fullmatch(r"cudaw top, \d\d:\d\d:\d\d: \d+ jobs?", head) is not None, titles.split()), (True, TITLES))
        found.append({row.split()[0]: re.split(r"  +", row.strip())[2:] for row in rows})
    return found


def test_a_job_has_a_row():
    directory = Directory()
    for state, out in (("paused", 2 * GIB), ("running", 0)):
        FakeJob(directory, name="train", state=state, carried=2 * GIB, left_to_driver=GIB, paused=out,
                pause_us=1000000, pause_bytes=31 * GIB, resume_us=1000000, resume_bytes=8 * GIB)
    FakeJob(directory, id="bbbbbb", state="waiting", carried=GIB, spilled=GIB, waits=f"memory {GIB} 12000000")
    deaf = FakeJob(directory, id="cccccc", answers={"status": silent})
    result = cudaw("top", "--times", "2", "--delay", "0.001")
    equal((result.code, result.err), (0, ""))
    equal(pages(result.out), [{
        "train": ["mixed", "4.0 GiB", "2.0 GiB", "2.0 GiB", "33.3/8.6", "-", "-"],
        "bbbbbb": ["waiting", "1.0 GiB", "0 B", "1.0 GiB", "-", "-", "memory, 12 s"],
        str(deaf.pid): ["no answer", "-", "-", "-", "-", "-", "-"]}] * 2)


def test_it_fits_the_screen():
    directory = Directory()
    for i in range(20):
        FakeJob(directory, id=f"aaaa{i:02d}", name="n" * 60 + str(i), carried=1023 << 20, left_to_driver=1023 << 20,
                paused=1023 << 20, waits=f"allocation {GIB} 7200000000")
    code, lines = on_terminal("top", "-n", "1", rows=10)
    equal((code, len(lines), max(map(len, lines)), lines[-1]), (0, 9, 80, "and 14 more"))
    assert lines[0].startswith("\33[H\33[2Jcudaw top, "), lines[0]
    code, lines = on_terminal("top", "-n", "1", rows=10, TERM="dumb")
    equal((code, len(lines)), (0, 22))
    assert "\33" not in "".join(lines), lines


def test_without_jobs():
    Directory()
    contains(cudaw("top", "-n", "1").out, ": 0 jobs\nJOB  USER  STATE")


if __name__ == "__main__":
    main()
