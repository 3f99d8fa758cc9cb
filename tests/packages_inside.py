#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
An upgrade of cudaw's packages, and their removal, while jobs run, in a root directory into which tests/check-packages
has installed them. Beside this file are the test programs, and in ../next the packages of the version that is given.

usage: packages_inside.py VERSION
"""
import glob
import json
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
COUNTER = f"{HERE}/tests/programs/counter"
CONF = "/etc/cudaw.conf"
PATIENCE_S = 120


def say(line):
    print(f"## {line}", flush=True)


def check(good, what):
    if not good:
        raise AssertionError(what)
    say(what)


def run(*command, may_fail=False):
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    print("$", *command, done.stdout, done.stderr, sep="\n", flush=True)
    check(may_fail or done.returncode == 0, f"{command[0]} exits with {done.returncode}")
    return done


def until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.05)
    say(what)


def apt(*words, may_fail=False):
    return run("apt-get", "-qy", *words, may_fail=may_fail)


def rows():
    return {row["name"]: row for row in json.loads(run("cudaw", "ps", "--json").stdout)}


def libraries(pid):
    """The versions of the libraries that a process has."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return {line.split("/lib/cudaw-")[1].split("/")[0] for line in maps if "/lib/cudaw-" in line}


class Started:
    def __init__(self, name, *command):
        self.name, self.output = name, open(f"/tmp/{name}", "w+", encoding="utf-8")
        self.process = subprocess.Popen(["cudaw", "run", "--name", name, "--", *command], text=True,
                                        stdin=subprocess.PIPE, stdout=self.output)

    def said(self):
        self.output.seek(0)
        return self.output.read()

    def wait_step(self):
        """One that it begins from now on."""
        done = self.said().count("step ")
        until(lambda: self.said().count("step ") > done + 1, f"the job {self.name} makes steps")

    def end(self):
        self.process.send_signal(signal.SIGINT)
        check(self.process.wait(PATIENCE_S) == 0 and "every word right" in self.said(),
              f"the job {self.name} ends with the right result")


def upgrade(old, new):
    with open(CONF, "a", encoding="utf-8") as conf:
        conf.write("# mine\n")
    job = Started("old", COUNTER, "--mib", "16", "--steps", "1000000", "--step-ms", "10")
    # It starts its program after the upgrade.
    late = Started("late", "sh", "-c", f"read go; exec {COUNTER} --mib 16 --steps 1000000 --step-ms 10")
    job.wait_step()
    apt("install", *glob.glob(f"{HERE}/../next/*.deb"))
    check(run("cudaw", "version").stdout == f"cudaw {new}\n", f"the command is {new}")
    with open(CONF, encoding="utf-8") as conf:
        check("# mine\n" in conf, f"{CONF} keeps its changes")
    job.wait_step()
    run("cudaw", "pause", "old")
    check(rows()["old"]["state"] == "paused", "the new command pauses the job of the old version")
    run("cudaw", "resume", "old")
    job.wait_step()
    late.process.stdin.write("go\n")
    late.process.stdin.flush()
    late.wait_step()
    for name, found in rows().items():
        check(libraries(found["pid"]) == {old}, f"the job {name} has the libraries of {old}")
    fresh = Started("fresh", COUNTER, "--mib", "16", "--steps", "1000000", "--step-ms", "10")
    fresh.wait_step()
    check(libraries(rows()["fresh"]["pid"]) == {new}, f"a new job has the libraries of {new}")
    return [job, late, fresh]


def remove(old, new, jobs):
    apt("autoremove")
    check(os.path.exists(f"/usr/lib/cudaw-{old}/libcuda.so.1"), "apt autoremove leaves the old libraries")
    done = apt("remove", f"cudaw-libs-{old}", may_fail=True)
    check(done.returncode and "jobs that run have these libraries: processes " in done.stdout + done.stderr,
          "the old libraries are not removed while jobs have them")
    apt("remove", "cudaw")
    for version in (old, new):
        check(os.path.exists(f"/usr/lib/cudaw-{version}/libcuda.so.1"), f"the libraries of {version} are there")
    for job in jobs:
        job.wait_step()
        job.end()
    apt("remove", f"cudaw-libs-{old}")
    check(not os.path.exists(f"/usr/lib/cudaw-{old}"), "the old libraries are removed when no job has them")
    apt("purge", "cudaw", f"cudaw-libs-{new}")
    left = [path for top in ("/usr", "/etc", "/lib") for path in glob.glob(f"{top}/**/*cudaw*", recursive=True)]
    check(not left, f"a purge leaves nothing: {left}")


def main():
    new, = sys.argv[1:]
    os.environ.update(CUDAW_REAL_LIBCUDA=f"{HERE}/tests/sim/libcuda.so.1", CUDAW_NOTICES="0")
    old = run("cudaw", "version").stdout.split()[1]
    remove(old, new, upgrade(old, new))


main()
