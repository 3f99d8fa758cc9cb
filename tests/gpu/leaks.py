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


def settled(pid, before=None):
    """resources() once the process has come to rest. The threads of an operation and the connections of
    commands end by and by: it has no more descriptors and threads than @before."""
    last = [resources(pid)]

    def at_rest():
        time.sleep(0.1)
        last.append(now := resources(pid))
        return last[-3:] == [now] * 3 and (
            not before or now.descriptors <= before.descriptors and now.threads <= before.threads)
    until(at_rest, 10, f"the process is at rest, with no more descriptors and threads than {before}")
    return last[-1]


def check_no_leak(before, after, space, memory, counted_by_us=True):
    """
    Of what settled() returned, which has looked at descriptors and threads. The C library's arenas
    come and go with the threads, so a few mappings more are no leak; @space and @memory are the MiB
    that may have come. Sanitizers have memory of their own, which grows: only what is
    @counted_by_us is looked at.
    """
    print(f"# before {before}, after {after}", flush=True)
    if not counted_by_us:
        return
    check(after.mappings <= before.mappings + 20,
          f"{before.mappings} mappings became {after.mappings}")
    check(after.space <= before.space + space,
          f"{before.space} MiB of address space became {after.space}")
    check(after.memory <= before.memory + memory,
          f"{before.memory} MiB of memory became {after.memory}")
