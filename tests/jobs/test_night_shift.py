#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands, units and scripts of docs/night-shift.md, as the page has them."""
import os
import re
import shutil
import signal
import subprocess

from simlib import SCRATCH, is_stopped, knows_gpu, unsanitized
from gpulib import BUILD, RUNTIME_DIR, Job, base_environment, check, cudaw_ok, equal, main
from harness import PATIENCE, Skip, contains, until
from json_docs import block, blocks
from turnslib import ENV, FOREVER, counting, start_daemon

PAGE = "docs/night-shift.md"
BIN = f"{BUILD}/bin"
os.environ["CUDAW_SIM_MEMORY"] = ENV["CUDAW_SIM_MEMORY"]    # all cases have one GPU
TOOLS = os.path.join(SCRATCH, "tools")     # in the place of those of the system


def tool(name, text):
    os.makedirs(TOOLS, exist_ok=True)
    with open(f"{TOOLS}/{name}", "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(f"{TOOLS}/{name}", 0o755)
    return f"{TOOLS}/{name}"


def run(*command, **env):
    return subprocess.run(command, text=True, capture_output=True, check=False, timeout=60 * PATIENCE,
                          env={**base_environment(), "PATH": f"{TOOLS}:{BIN}:{os.environ['PATH']}", **env})


def endless(name):
    job = Job("counter", "--mib", 16, "--steps", FOREVER, "--step-ms", 10, name=name)
    job.wait_steps(3)
    return job


def by_cron():
    """Each line, in the environment that cron gives it: nothing is left to be mailed."""
    job = endless("train")
    text = block(PAGE, "MAILTO=")
    lines = re.findall(r"^([\d*,-]+ +){5}(.*)$", text, re.MULTILINE)
    equal([command.split()[1] for _, command in lines], ["pause", "resume"], "the lines of the crontab")
    path = re.search("^PATH=/home/ann/.local/bin:(.*)$", text, re.MULTILINE)[1]
    for (_, command), state in zip(lines, ("paused", "running")):
        done = subprocess.run(["/bin/sh", "-c", command], text=True, capture_output=True, check=False,
                              timeout=60 * PATIENCE,
                              env={"PATH": f"{BIN}:{path}", "HOME": "/", "CUDAW_RUNTIME_DIR": RUNTIME_DIR})
        equal((done.returncode, done.stdout, done.stderr), (0, "", ""), command)
        equal(job.state(), state, "the state of the job")
    job.discard()


def by_systemd():
    if not shutil.which("systemd-analyze"):
        raise Skip("no systemd-analyze here")
    for kind, words in (("service", "ExecStart="), ("timer", "OnCalendar=")):
        text = block(PAGE, words)
        with open(f"{SCRATCH}/gpu-morning.{kind}", "w", encoding="utf-8") as file:
            file.write(text.replace("%h/.local/bin", BIN))
    done = run("systemd-analyze", "--user", "--man=no", "verify", f"{SCRATCH}/gpu-morning.timer",
               f"{SCRATCH}/gpu-morning.service", XDG_RUNTIME_DIR=SCRATCH)
    equal((done.returncode, done.stderr), (0, ""), "what systemd says")
    words = re.search("ExecStart=%h/.local/bin/(.*)", block(PAGE, "ExecStart="))[1]
    contains(block(PAGE, "MAILTO="), words)


def three_tries():
    """A stopped job cannot be paused: the other one is, and the script says so after its third try."""
    tool("sleep", "#!/bin/sh\necho $1 >> $TEST_SLEPT\n")
    script = tool("gpu-morning", block(PAGE, "# gpu-morning:"))
    stopped, other = endless("stopped"), endless("other")
    stopped.send(signal.SIGSTOP)
    until(lambda: is_stopped(stopped.pid), 10, "it is stopped")
    slept = os.path.join(SCRATCH, "slept")
    done = run(script, TEST_SLEPT=slept)
    equal(done.returncode, 1, f"the exit code ({done.stderr})")
    contains(done.stderr, "These jobs may still have GPU memory:")
    check(re.search(rf" {stopped.pid} .* stopped ", done.stderr), f"it says {done.stderr}")
    equal(other.state(), "paused", "the state of the other one")
    with open(slept, encoding="ascii") as file:
        equal(file.read(), "60\n" * 3, "its waits")
    stopped.send(signal.SIGCONT)
    equal(run(script, "30", TEST_SLEPT=slept).returncode, 0, "the exit code after the job was continued")
    equal((stopped.state(), other.state()), ("paused", "paused"), "their states")
    stopped.discard()
    other.discard()


def goes_on_after(jobs, ids, gpu):
    after = block(PAGE, "cudaw turns undrain 0").replace("undrain 0", "undrain 1").replace("FILE", ids)
    steps = [job.steps() for job in jobs]
    done = run("sh", "-ec", after, **gpu)
    equal(done.returncode, 0, f"the exit code ({done.stderr})")
    for job, before in zip(jobs, steps):
        job.wait_steps(before + 3)


def a_drain():
    """Jobs that take turns, and one that its user has paused, which stays so. At the third try all is well."""
    tool("nvidia-smi", "#!/bin/sh\nexec cat $TEST_LEFT\n")
    left, ids = os.path.join(SCRATCH, "left"), os.path.join(SCRATCH, "ids")
    script = tool("gpu-drain", block(PAGE, "# gpu-drain GPU FILE"))
    start_daemon()
    users = counting("users", 16, FOREVER, **knows_gpu())
    users.wait_steps(3)
    cudaw_ok("pause", "users")
    jobs = []
    for name in ("first", "second"):    # which do not fit together
        jobs.append(counting(name, 160, FOREVER, **knows_gpu()))
        jobs[-1].wait_steps(3)
    gpu = {"CUDAW_TURNS": "user", "TEST_NVML_UUID": users.status()["gpu"][0]["uuid"], **knows_gpu()}    # it is number 1
    for text, code in ((None, 1), ("4711, python\n", 1), ("", 0)):
        if text is not None:    # else nvidia-smi fails
            with open(left, "w", encoding="ascii") as file:
                file.write(text)
        done = run(script, "1", ids, TEST_LEFT=left, **gpu)
        equal(done.returncode, code, f"the exit code ({done.stderr})")
        contains(done.stderr, text or "")
        equal({job.state() for job in jobs}, {"paused"}, "the states of the jobs")
    goes_on_after(jobs, ids, gpu)
    equal(users.state(), "paused", "the state of the one that its user has paused")
    for job in (*jobs, users):
        job.discard()


def a_drain_of_nothing():
    """The only job is one that its user has paused."""
    tool("nvidia-smi", "#!/bin/sh\n")
    ids = os.path.join(SCRATCH, "none")
    script = tool("gpu-drain", block(PAGE, "# gpu-drain GPU FILE"))
    start_daemon()
    users = counting("users", 16, FOREVER, **knows_gpu())
    users.wait_steps(3)
    cudaw_ok("pause", "users")
    gpu = {"CUDAW_TURNS": "user", "TEST_NVML_UUID": users.status()["gpu"][0]["uuid"], **knows_gpu()}
    done = run(script, "1", ids, **gpu)
    equal(done.returncode, 0, f"the exit code ({done.stderr})")
    goes_on_after([], ids, gpu)
    equal((users.state(), os.path.exists(ids)), ("paused", False), "what is left")
    users.discard()


def nothing_is_untested():
    """The page has no other commands."""
    equal(len(blocks(PAGE)), 8, "blocks of the page")
    contains(block(PAGE, "setsid"), "cudaw run --name train -- python train.py")


main(*map(unsanitized, (by_cron, by_systemd, three_tries, a_drain, a_drain_of_nothing)), nothing_is_untested)
