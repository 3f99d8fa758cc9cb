# SPDX-License-Identifier: Apache-2.0
"""The moments of a hand-over between two jobs, at which tests end or stop one of them, or the daemon."""
import contextlib
import os
import signal

from simlib import MIB, SANITIZED, SCRATCH, gpu_used, process_used, skipped
from gpulib import after_case, check, cudaw_ok, jobs
from harness import until
from turnslib import ENV, FOREVER, counting, events, ranks, rows, take_turns

# A small GPU, on which two jobs do not fit: for a hand-over 14 MiB move.
SMALL = {"CUDAW_SIM_MEMORY": str(80 * MIB), "CUDAW_SIM_CONTEXT": str(4 * MIB)}
SIZE_MIB, ALLOCS, PART_MIB = 40, 18, 4
WHOLE_MIB, FREE_MIB, MARGIN_MIB = 4 + 42, 80, 2     # of a job with its context; of the GPU
ENV.update(SMALL)
os.environ.update(SMALL)    # for strangers, too
OPTIONS = ("--quantum", "0.3", "--residence", "0.1", "--silence", "60", "--margin", f"{MARGIN_MIB}M")
held = []


def quick(case):
    """Mark a case that takes too long with sanitizers."""
    return skipped(case, "it takes long with sanitizers") if SANITIZED else case


def hold_path(name):
    return os.path.join(SCRATCH, f"hold-{name}")


def slow(name):
    """What makes a hand-over last, and copies off the GPU as long as there is a file."""
    return {"CUDAW_LOG": "warn", "CUDAW_SIM_COPY_GBPS": "0.08", "CUDAW_SIM_HOLD_OUT": hold_path(name)}


def one(name, **env):
    return counting(name, SIZE_MIB, FOREVER, ALLOCS, **slow(name), **env)


def two_processes(name, **env):
    return ranks(name, "sharing", 2, "--objects", 4, "--mib", 2, "--ballast", 12, **slow(name), **env)


def hold_copies(job):
    held.append(hold_path(job.name))
    with open(held[-1], "w", encoding="ascii"):
        pass


def let_go(_good=True):
    while held:
        os.unlink(held.pop())


after_case.append(let_go)


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
    hold_copies(giver)
    wait_for(giver, "leaving")
    return giver, getter


def gives_parts(pair, giver=None):
    giver, getter = roles(pair, giver)
    wait_for(giver, "runs")
    most, several = 0, len(pids(giver)) > 1

    def is_partly_out():
        nonlocal most
        # Several processes give their memory when all have saved theirs.
        if several:
            return (state(giver) == "leaving" and
                    {jobs()[pid]["state"] for pid in pids(giver)} == {"pausing"})
        # Its turn may be over already, and another one begin: what it has in one shows by and by.
        now, has = state(giver), used(giver)
        most = max(most, has)
        return now == "leaving" and has < most
    giver.until(is_partly_out, 20, f"{giver.name} gives a part")
    return giver, getter


def gets_parts(pair, giver=None):
    giver, getter = roles(pair, giver)
    wait_for(getter, "waits")
    least = WHOLE_MIB

    def has_two_parts():
        # It may have them all already, and give them back before it gets them again.
        nonlocal least
        now, has = state(getter), used(getter)
        least = min(least, has)
        return now == "enters" and has > least + PART_MIB
    getter.until(has_two_parts, 20, f"{getter.name} gets its second part")
    return giver, getter


def the_other_runs(pair, giver=None):
    giver, getter = roles(pair, giver)
    wait_for(getter, "runs")
    wait_for(giver, "waits")
    return giver, getter


MOMENTS = (is_asked, gives_parts, gets_parts, the_other_runs)


def hit(pid, sig):
    """The moment is over."""
    os.kill(pid, sig)
    let_go()


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


def until_silent(name, before):
    """It is noticed that a process of this name, which is stopped, gives no answer."""
    with short_silence():
        until(lambda: len(events("silent", name)) > before, 20, f"{name} is left alone")


def verify(pair):
    """They go on, and end well; nothing of them stays on the GPU."""
    take_turns(pair)
    for job in pair:
        check("every word right" in job.finish(), f"{job.name} did not verify its memory")
    until(lambda: not gpu_used(), 5, "the GPU is free")
