# SPDX-License-Identifier: Apache-2.0
"""The moments of a hand-over between two jobs, at which tests end or stop one of them, or the daemon."""
import contextlib
import os
import signal

from simlib import (HOLD, MIB, SANITIZED, SCRATCH, gpu_used, held_back, hold, let_all_go, let_go, let_through, passed,
                    process_used, skipped)
from gpulib import check, cudaw_ok
from harness import until
import turnslib
from turnslib import ENV, FOREVER, counting, events, ranks, rows, take_turns

# A small GPU, on which two jobs do not fit: for a hand-over 14 MiB move.
SMALL = {"CUDAW_SIM_MEMORY": str(80 * MIB), "CUDAW_SIM_CONTEXT": str(4 * MIB)}
SIZE_MIB, ALLOCS, PART_MIB = 40, 18, 4
WHOLE_MIB, FREE_MIB, MARGIN_MIB = 4 + 42, 80, 2     # of a job with its context; of the GPU
ENV.update(SMALL)
os.environ.update(SMALL)    # for strangers, too


def quick(case):
    """Mark a case that takes too long with sanitizers."""
    return skipped(case, "it takes long with sanitizers") if SANITIZED else case


def start_daemon(*options, silence=60):
    return turnslib.start_daemon("--quantum", "0.3", "--margin", f"{MARGIN_MIB}M", *options, silence=silence)


def holdable(name):
    """Its copies off and onto the GPU can be held."""
    env = {"CUDAW_LOG": "warn"}
    for way in "out", "in":
        env[f"CUDAW_SIM_HOLD_{way.upper()}"] = HOLD[f"{way}-{name}"] = os.path.join(SCRATCH, f"hold-{way}-{name}")
    return env


def one(name, **env):
    return counting(name, SIZE_MIB, FOREVER, ALLOCS, **holdable(name), **env)


def two_processes(name, **env):
    return ranks(name, "sharing", 2, "--objects", 4, "--mib", 2, "--ballast", 12, **holdable(name), **env)


def pids(job):
    return [row["pid"] for row in rows(job.name)]


def state(job):
    """What the daemon says of it: None if it does not know the job."""
    return next((row["state"] for row in rows(job.name)), None)


def used(job):
    return sum(process_used(pid) or 0 for pid in pids(job))


def wait_for(job, wanted):
    job.until(lambda: state(job) == wanted, 20, f"{job.name} {wanted}")


def roles(pair, giver):
    """Who gives, and who gets: @giver, or the one that runs."""
    def found():
        return next((job for job in pair if job is giver or (not giver and state(job) == "runs")), None)
    gives = until(found, 20, "one of them runs")
    return gives, next(job for job in pair if job is not gives)


def is_asked(pair, giver=None):
    """A call of its program has not returned yet."""
    giver, getter = roles(pair, giver)
    wait_for(giver, "runs")
    hold(f"out-{giver.name}")
    wait_for(giver, "leaving")
    return giver, getter


def gives_parts(pair, giver=None):
    giver, getter = is_asked(pair, giver)
    most = used(giver)
    moves(giver, "out", lambda: used(giver) < most)
    return giver, getter


def gets_parts(pair, giver=None):
    giver, getter = is_asked(pair, giver)
    hold(f"in-{getter.name}")   # before it gets anything
    let_go(f"out-{giver.name}")
    wait_for(getter, "enters")
    least = used(getter)
    moves(getter, "in", lambda: used(getter) > least + PART_MIB)
    return giver, getter


def moves(job, way, condition):
    """As many of its copies as it takes."""
    which = f"{way}-{job.name}"

    def moved():
        if not condition() and held_back(which) and passed(which):
            let_through(which)
        return condition()
    job.until(moved, 20, f"parts go {way} for {job.name}")


def the_other_runs(pair, giver=None):
    giver, getter = roles(pair, giver)
    wait_for(getter, "runs")
    wait_for(giver, "waits")
    return giver, getter


MOMENTS = (is_asked, gives_parts, gets_parts, the_other_runs)


def hit(pid, sig):
    """The moment is over."""
    os.kill(pid, sig)
    let_all_go()


def killed(job):
    hit(job.pid, signal.SIGKILL)
    job.process.wait()
    job.discard()


@contextlib.contextmanager
def short_silence():
    """For as long as somebody is stopped: others may seem silent who get no processor for so long."""
    cudaw_ok("turns", "set", "silence=0.8")
    yield
    cudaw_ok("turns", "set", "silence=60")


def until_silent(name, before, then=None):
    """
    It is noticed that a process of this name, which is stopped, gives no answer. @then: and what comes of it, as
    the room that it was given is there for others after three times the silence.
    """
    with short_silence():
        until(lambda: len(events("silent", name)) > before, 20, f"{name} is left alone")
        if then:
            until(then, 20, f"others go on without {name}")


def verify(pair):
    """They go on, and end well; nothing of them stays on the GPU."""
    take_turns(pair)
    for job in pair:
        check("every word right" in job.finish(), f"{job.name} did not verify its memory")
    until(lambda: not gpu_used(), 5, "the GPU is free")
