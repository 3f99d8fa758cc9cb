#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job says on its stderr why it makes no progress, and cudaw ps says the same: how much it waits for, and
who has it.
"""
import fcntl
import os
import re
import signal

import simlib
from simlib import MIB, SCRATCH
from gpulib import Job, check, cudaw_ok, equal, hog, main
from turnslib import ENV, FOREVER, counting, members, start_daemon, started

SIZE_MIB = 140      # one such job fits, two do not
TOLD = {"CUDAW_NOTICES": "1"}
os.environ.update({name: ENV[name] for name in ("CUDAW_SIM_MEMORY", "CUDAW_SIM_CONTEXT")})    # of all cases
LASTED = r"\d+ (ms|s)|\d\.\d s"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def notices(job):
    return re.findall(rf"^cudaw\[{job.pid}\] {TIME}: (.*)$", job.stderr(), re.MULTILINE)


def told(job, *patterns):
    """These notices, and no others, have come."""
    job.until(lambda: len(notices(job)) >= len(patterns), 10, f"{len(patterns)} notices")
    said = notices(job)
    equal(len(said), len(patterns), f"the number of its notices ({said})")
    for line, pattern in zip(said, patterns):
        check(re.fullmatch(pattern, line), f"it says {line!r}, not {pattern!r}")


def a_pause():
    job = Job("counter", "--mib", 16, "--steps", FOREVER, "--step-ms", 10, env=TOLD)
    job.wait_steps(3)
    paused, over = r"paused, with 18.0 MiB of GPU memory; 'cudaw resume' lets it go on", \
        rf"goes on, after a pause of ({LASTED})"
    job.pause()
    told(job, paused)
    job.resume()
    told(job, paused, over)
    job.pause("signal")
    told(job, paused, over, paused)
    job.resume("signal")
    told(job, paused, over, paused, over)
    check("every word right" in job.finish(), "the job did not verify its memory")


def a_pause_into_a_snapshot():
    """The job has its memory nowhere else then."""
    job = Job("counter", "--mib", 16, "--steps", FOREVER, "--step-ms", 10,
              env={**TOLD, "CUDAW_SNAPSHOT_DIR": os.path.join(SCRATCH, "by-signal")})
    job.wait_steps(3)
    job.pause("signal")
    told(job, r"paused, with 18.0 MiB of GPU memory; 'cudaw resume' lets it go on")
    job.resume("signal")
    check("every word right" in job.finish(), "the job did not verify its memory")


def a_snapshot_is_no_pause():
    job = Job("counter", "--mib", 16, "--steps", FOREVER, "--step-ms", 10, env=TOLD)
    job.wait_steps(3)
    cudaw_ok("snapshot", "--gpu-only", job.pid, os.path.join(SCRATCH, "snapshot"))
    job.wait_steps(job.steps() + 3)
    told(job)
    check("every word right" in job.finish(), "the job did not verify its memory")


def none_are_asked_for():
    job = Job("counter", "--mib", 16, "--steps", FOREVER, "--step-ms", 10, env={"CUDAW_NOTICES": "0"})
    job.wait_steps(3)
    job.pause()
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")
    equal(job.stderr(), "", "its stderr")


def says(job, what, sizes, reason):
    """What cudaw ps says of it while it waits."""
    row = job.status()
    equal((row["state"], row["waits"]["for"]), ("waiting", what), "its state, and what it waits for")
    check(row["waits"]["bytes"] in sizes, f"it waits for {row['waits']['bytes']} bytes")
    check(re.fullmatch(reason, row["reason"]), f"the reason is {row['reason']!r}")
    check(re.search(rf"^{job.pid}: {reason}; for ({LASTED})$", cudaw_ok("ps"), re.MULTILINE), "cudaw ps says it")
    check(0 <= row["waits"]["ms"] < 60000, f"it waits for {row['waits']['ms']} ms")


def a_turn():
    start_daemon("--quantum", "30")
    first = counting("first", SIZE_MIB, FOREVER, **TOLD)
    first.wait_steps(3)
    first.until(lambda: first.pid in members(), 5, "it has joined")
    second = counting("second", SIZE_MIB, FOREVER, CUDAW_TURNS_CLASS="interactive")
    behind = rf"waits for its turn on the GPU, and for [\d.]* MiB, which {second.pid} \(second\) has"
    told(first, rf"{behind}; 'cudaw ps' shows more")
    equal(members()[first.pid]["state"], "waits", "its state in cudaw turns")
    says(first, "turn", range(MIB, 2 * SIZE_MIB * MIB), behind)
    rows = {line.split()[0]: re.split(r"  +", line) for line in cudaw_ok("top", "-n", 1).splitlines()[2:]}
    check(re.fullmatch(rf"second, ({LASTED})", rows["first"][8]), f"cudaw top says {rows}")
    check(re.fullmatch(r"\d+(\.\d)? s", rows["second"][7]), f"cudaw top says {rows}")
    second.wait_steps(1)    # one that a signal ends while it allocates fails
    check("every word right" in second.finish(), "the other job did not verify its memory")
    told(first, rf"{behind}; 'cudaw ps' shows more", rf"goes on, after ({LASTED})")
    row = first.status()
    equal((row["state"], row["waits"], row["reason"]), ("running", None, None), "its state, and why")
    check("every word right" in first.finish(), "the job did not verify its memory")


def an_idle_job_that_is_out_waits_for_nothing():
    start_daemon("--quantum", "30")
    idle = started("idle", "orders", **TOLD)
    idle.wait_line("orders: ready")
    idle.process.stdin.write(f"alloc {SIZE_MIB}\n")
    idle.wait_line("alloc: ok")
    other = counting("other", SIZE_MIB, FOREVER)
    other.wait_steps(3)
    equal((members()[idle.pid]["state"], idle.status()["state"]), ("out", "waiting"), "its states")
    equal((idle.status()["waits"], idle.status()["reason"]), (None, None), "what it waits for, and why")
    check("every word right" in other.finish(), "the other job did not verify its memory")
    idle.process.stdin.write("alloc 1\n")
    idle.wait_line("alloc: ok")
    idle.result()
    equal(notices(idle), [], "its notices")


def an_allocation():
    """Its job has its lease, and runs."""
    start_daemon("--quantum", "30")
    second = counting("second", SIZE_MIB, FOREVER, CUDAW_TURNS_CLASS="interactive")
    second.wait_steps(3)
    first = started("first", "orders", **TOLD)
    first.wait_line("orders: ready")
    first.process.stdin.write(f"alloc {SIZE_MIB}\n")
    behind = rf"an allocation of {SIZE_MIB} MiB waits for GPU memory, which {second.pid} \(second\) has"
    told(first, rf"{behind}; 'cudaw ps' shows more")
    equal(members()[first.pid]["state"], "waits", "its state in cudaw turns")
    says(first, "allocation", [SIZE_MIB * MIB], behind)
    check("every word right" in second.finish(), "the other job did not verify its memory")
    first.wait_line("alloc: ok")
    told(first, rf"{behind}; 'cudaw ps' shows more", rf"goes on, after ({LASTED})")
    equal(first.status()["state"], "running", "its state")
    first.result()


def the_memory_of_a_resume():
    job = Job("counter", "--mib", SIZE_MIB, "--steps", FOREVER, "--step-ms", 10,
              env={**TOLD, "CUDAW_RELEASE": "memory"})
    job.wait_steps(3)
    job.pause()
    other, _ = hog()
    job.send(signal.SIGUSR2)
    lack = r"resume: waits for 146 MiB of GPU memory; GPU 0 \(Simulated GPU, GPU-[0-9a-f-]*\) lacks \d\.\d\d GiB" \
        r" of the 0\.14 GiB that are needed"
    told(job, r"paused, .*", rf"{lack}; 'cudaw ps' shows more")
    says(job, "memory", [146 * MIB], lack)
    other.discard()
    told(job, r"paused, .*", rf"{lack}; 'cudaw ps' shows more", r"goes on, after a pause of .*")
    check("every word right" in job.finish(), "the job did not verify its memory")


def nobody_reads_what_it_says():
    """Its messages are lost; neither a full pipe nor one without a reader stops it."""
    path = os.path.join(SCRATCH, "log")
    os.mkfifo(path)
    deaf = Job("counter", "--mib", 16, "--steps", FOREVER, "--step-ms", 10,
               env={"CUDAW_LOG": "debug", "CUDAW_LOG_FILE": path})
    deaf.wait_steps(3)
    pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
    os.write(pipe, bytes(4096))
    full = Job("counter", "--mib", 16, "--steps", FOREVER, "--step-ms", 10,
               env={"CUDAW_LOG": "debug", "CUDAW_LOG_FILE": path})
    full.wait_steps(3)
    for job in (deaf, full):
        simlib.paused_and_resumed(job)
        check("every word right" in job.finish(), "the job did not verify its memory")
    # A write to a pipe that has room and no reader would be SIGPIPE. Allocations that are refused write.
    job = Job("quota", "--hold", 8, "--each-line", 1,
              env={"CUDAW_MEM": "64M", "CUDAW_LOG": "info", "CUDAW_LOG_FILE": path})
    job.wait_line("holds 64 MiB")
    os.read(pipe, 4096)
    os.close(pipe)
    job.make_steps(2)
    job.result()


main(a_pause, a_pause_into_a_snapshot, a_snapshot_is_no_pause, none_are_asked_for, a_turn,
     an_idle_job_that_is_out_waits_for_nothing, an_allocation, the_memory_of_a_resume,
     nobody_reads_what_it_says)
