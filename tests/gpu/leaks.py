# SPDX-License-Identifier: Apache-2.0
"""What a process holds, before and after many pauses."""
import collections
import os
import time

from gpulib import check, proc_status, until

# Descriptors, threads, mappings; the address space and the memory that is its own, in MiB.
Resources = collections.namedtuple("Resources", "descriptors threads mappings space memory")


def resources(pid):
    status = proc_status(pid)
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        maps = len(file.readlines())
    return Resources(len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), maps,
                     int(status["VmSize"].split()[0]) >> 10, int(status["RssAnon"].split()[0]) >> 10)


def settled(pid):
    """resources() once the threads of an operation have ended."""
    last = [resources(pid)]

    def still():
        time.sleep(0.1)
        last.append(resources(pid))
        return last[-3:] == last[-1:] * 3
    return until(lambda: still() and last[-1], 10, "the process has come to rest")


def check_no_leak(before, after, space, memory, counted_by_us=True):
    """
    There are no more descriptors and threads. The C library's arenas come and go with the threads, so a
    few mappings more are no leak; @space and @memory are the MiB that may have come. Sanitizers
    have memory of their own, which grows: then only what is @counted_by_us is looked at.
    """
    print(f"# before {before}, after {after}", flush=True)
    check(after.descriptors <= before.descriptors,
          f"{before.descriptors} descriptors became {after.descriptors}")
    check(after.threads <= before.threads, f"{before.threads} threads became {after.threads}")
    if not counted_by_us:
        return
    check(after.mappings <= before.mappings + 20,
          f"{before.mappings} mappings became {after.mappings}")
    check(after.space <= before.space + space,
          f"{before.space} MiB of address space became {after.space}")
    check(after.memory <= before.memory + memory,
          f"{before.memory} MiB of memory became {after.memory}")
