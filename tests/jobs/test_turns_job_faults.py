#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every call that a yield and a fill make to the driver fails once, each in turn. Whatever fails, the job
runs on or is out with all that it has, asking again helps, and its memory is right in the end.
"""
from faultslib import Faults
from simlib import MIB, process_used
from gpulib import check, equal, main
from lease import EVERYTHING, Lease

PART = MIB


def answer(lease, line):
    lease.seen.clear()
    lease.send(line)
    return lease.until("end")


def obeyed(job, lease, line):
    """It is done in the end; returns whether something failed on the way."""
    first = answer(lease, line)
    if first == "ok":
        return False
    check(job.state() in ("running", "waiting"), f"the state after '{first}' is {job.state()}")
    equal(answer(lease, line), "ok", f"the answer to '{line}' after '{first}'")
    return True


def turn(job):
    """Out in two parts, and back. True if a failure was said."""
    lease, whole = Lease(job), process_used(job.pid)
    said = [obeyed(job, lease, f"yield {PART}")]
    check(lease.last("mapped") > 0, "the first yield has left nothing for the second one")
    said += [obeyed(job, lease, line) for line in (f"yield {EVERYTHING}", f"room {EVERYTHING}")]
    check("ready" in lease.seen, f"no 'ready' in {lease.seen}")
    lease.hang_up()
    equal(process_used(job.pid), whole, "the MiB on the GPU in the end")
    return any(said)


faults = Faults(turn)
main(*faults.cases(), faults.memory_runs_out("cuMemCreate", waits=True))
