#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Snapshots of jobs of which several processes use CUDA. test_several_more.py has more kinds of them, and what may happen
meanwhile.
"""
from restorelib import allow_stand_in, stands_in
from severallib import Sharing, stopped_and_restored
from gpulib import main


def ranks_that_share_memory_go_and_come_back():
    job = Sharing()
    stopped_and_restored(job)
    if not stands_in():
        job.finish()


allow_stand_in()
main(ranks_that_share_memory_go_and_come_back)
