#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Snapshots of jobs of which several processes use CUDA. test_several_more.py has more kinds of them, and what may happen
meanwhile.
"""
import json

from restorelib import allow_stand_in, stands_in
from severallib import Server, Sharing, stopped_and_restored, taken
from simlib import unsanitized
from gpulib import check, equal, main


def ranks_that_share_memory_go_and_come_back():
    job = Sharing()
    stopped_and_restored(job)
    if not stands_in():
        job.finish()


@unsanitized
def one_that_has_only_initialised_cuda():
    """It has files of the driver all the same, which its checkpoint takes."""
    job = Server("--inits", 1, engines=1)
    path = taken(job)
    equal(job.engines[0], job.pid, "the first process that uses CUDA")
    with open(f"{path}/manifest.json", encoding="ascii") as file:
        phases = [phase["name"] for phase in json.load(file)["phases"]]
    check("release" in phases, f"the phases of its snapshot: {phases}")
    job.goes_on()
    if not stands_in():
        stopped_and_restored(job)
    job.finish()


allow_stand_in()
main(one_that_has_only_initialised_cuda, ranks_that_share_memory_go_and_come_back)
