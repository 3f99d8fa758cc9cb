#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Slurm stops a job before it has given its memory: cudawd continues it for that, and Slurm's books stay right."""
from slurmlib import BUILD, WHOLE, Cluster, check_suspended, equal, events, until
from simlib import MIB
from gpulib import main
from harness import figure

EVICTION_S = 3  # Slurm sends SIGSTOP 2 s after SIGTSTP, unless it is told otherwise
MIB_OF_LOW = 140
SLOW = {"CUDAW_SIM_COPY_GBPS": str(MIB_OF_LOW * MIB / EVICTION_S / 1e9)}


def eviction(rescued, **options):
    """It is continued so often for that."""
    cluster = Cluster(**options)
    low = cluster.counting(MIB_OF_LOW, *WHOLE, **SLOW)
    low.wait_steps(3)
    pid = low.pid()
    high = cluster.submit(f"exec {BUILD}/tests/programs/hog --mib 200", *WHOLE, partition="high")
    has = high.time_of_line("hog: ")
    until(lambda: events("gave", low), 60, "the eviction has ended")
    gave = events("gave", low)[-1]["unix_ms"] / 1000
    figure("the preemptor has its memory, after the eviction", (has - gave) * 1000, "ms")
    equal(len(events("rescued", low)), rescued, "how often it was continued")
    check_suspended(low, pid)
    high.signal("INT")
    high.wait_state("COMPLETED")
    low.wait_steps(3)
    low.finish()


def an_eviction_longer_than_the_window():
    eviction(1)


def an_eviction_in_a_longer_window():
    """Which a site may set: Slurm sends no SIGSTOP before the job has given its memory and has stopped."""
    eviction(0, conf="PreemptParameters=suspend_grace_time=10\n", since=(23, 11), CUDAW_TSTP_TIMEOUT="10")


def one_that_stops_at_once():
    """With its memory, in the midst of a long turn; and once more by SIGSTOP, while it gives that."""
    cluster = Cluster("--quantum", "600")
    low = cluster.counting(MIB_OF_LOW, *WHOLE, CUDAW_TSTP="0", **SLOW)
    low.wait_steps(3)
    pid = low.pid()
    high = cluster.counting(200, *WHOLE, partition="high")
    high.wait_steps(10, 100)
    equal(len(events("rescued", low)), 1, "how often it was continued")
    check_suspended(low, pid)
    high.finish()
    low.wait_steps(3)
    low.finish()


main(one_that_stops_at_once, an_eviction_longer_than_the_window, an_eviction_in_a_longer_window)
