#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/check-waits on small trees of tests."""
import os
import subprocess
import sys

from clilib import contains, equal, main
from harness import TESTS, scratch

POLL = "while not ends():\n    time.sleep(0.02)\n"


def waits(text, listed="", name="tests/jobs/test_x.py"):
    """What the check prints of a tree with a test of that @text, and its exit status."""
    root = scratch()
    for path, content in ((name, text), ("tests/waits", listed)):
        os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(content)
    done = subprocess.run([sys.executable, os.path.join(TESTS, "check-waits"), root], capture_output=True, text=True,
                          check=False)
    return done.stdout, done.returncode


def refused(text, construct, **options):
    said, status = waits(text, **options)
    contains(said, f":1: {construct} is not in tests/waits")
    equal(status, 1)


def taken(text, **options):
    said, status = waits(text, **options)
    equal((said.count("\n"), status), (1, 0))


def test_what_is_not_listed():
    refused("time.sleep(0.5)  # by now it is under way\n", "time.sleep(0.5)")
    refused("    usleep(2000);\n", "usleep(2000)", name="tests/unit/test_x.c")
    refused("sh('sleep 3')\n", "sleep 3")
    refused("Job('counter', \"--step-ms\", 300)\n", "--step-ms 300")
    refused("cudaw(\"pause\", \"--timeout\", 0.3)\n", "--timeout 0.3")
    refused("start_daemon(\"--silence\", \"0.8\")\n", "--silence 0.8")
    refused("cudaw('turns', 'set', 'silence=0.8')\n", "silence=0.8")
    refused("LATE_S = 3\n", "LATE_S 3")
    refused("#define STUCK_MS 50\n", "STUCK_MS 50", name="tests/unit/test_x.c")
    refused("env={\"CUDAW_SIM_COPY_GBPS\": \"0.3\"}\n", "CUDAW_SIM_COPY_GBPS 0.3")
    refused("equal(select.select([daemon], [], [], 0.5)[0], [])\n", "select(..., 0.5)")
    refused("thread.over.wait(2)\n", "wait(..., 2)")
    refused("job.wait(timeout=2)\n", "wait(..., 2)")
    refused("connection.settimeout(1)\n", "settimeout(..., 1)")
    refused("signal.alarm(3)\n", "alarm(..., 3)")
    refused("job.until(lambda: has(job,\n                      1), 2, 'it has one')\n", "until(..., 2)")
    refused("end = time.monotonic() + 1.5\n", "monotonic() + 1.5")
    refused("ck_assert(drained(clock_ms() + 20));\n", "clock_ms() + 20", name="tests/unit/test_x.c")


def test_a_poll_that_ends_by_itself_is_one():
    for condition in "tries-- > 0 && !get(&done)", "n++ < 50":
        said, status = waits(f"	while ({condition})\n		usleep(1000);\n", name="tests/unit/test_x.c")
        contains(said, "tests/unit/test_x.c:2: usleep(1000)")
        equal(status, 1)
    said, _ = waits("while time.monotonic() < end and not ends():\n    time.sleep(0.02)\n")
    contains(said, "tests/jobs/test_x.py:2: time.sleep(0.02)")


def test_what_is_no_window():
    taken("select.select([fd], [], [], 0)\nselect.select([fd], [], [])\nevent.wait()\nfirst.wait('room', 2)\nselect.select([fd], [], [], 30)\n")
    taken(POLL)
    taken("	while (!get(&done))\n		usleep(1000);\n", name="tests/unit/test_x.c")
    taken("time.sleep(rng.uniform(0, 0.2))\n")
    taken("until(ends, 20, 'it ends')\nend = time.monotonic() + 2 * PATIENCE\n")
    taken("time.sleep(60)\ncudaw('--timeout', 60)\nHANG_MS = 30000\n")
    taken("until [ -e done ]; do sleep 0.02; done\n", name="tests/guests/x.sh")


def test_a_sleep_in_a_long_loop_is_one():
    said, status = waits(POLL.replace("0.02", "0.3"))
    contains(said, "tests/jobs/test_x.py:2: time.sleep(0.3)")
    equal(status, 1)


def test_the_list():
    line = "tests/jobs/test_x.py: time.sleep(0.5): still nothing comes\n"
    taken("time.sleep(0.5)\n", listed="# comment\n" + line)
    taken("time.sleep(0.5)\n" * 2, listed=line.replace(": time", ": 2 x time"))
    taken("time.sleep(0.5)\nusleep(7)\n", listed="tests/jobs/*: *: measures all\n")
    for text, listed, says in (
            ("time.sleep(0.5)\n" * 2, line, "test_x.py:2: time.sleep(0.5) is not in"),
            ("", line, "tests/waits:1: 1 x time.sleep(0.5) in tests/jobs/test_x.py: none is there any more"),
            ("", "tests/jobs/*: *: measures all\n", "none is there any more"),
            ("time.sleep(0.5)\n", line.replace("still", "soon"), "tests/waits:1: no kind"),
            ("time.sleep(0.5)\n", line.replace(" nothing comes", ""), "tests/waits:1: no kind")):
        said, status = waits(text, listed)
        contains(said, says)
        equal(status, 1)


if __name__ == "__main__":
    main()
