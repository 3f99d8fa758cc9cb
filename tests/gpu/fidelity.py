#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fidelity.py: the driver answers the same natively and under cudaw, except for the differences that
are known. A difference that is new fails, and so does a known one that is gone: then its row goes.
"""
from gpulib import CUDAW, Skip, answers, base_environment, gpu_count, main, same_answers

CASES = {"free_waits": 1, "free_async": 1, "free_async_busy": 1, "free_captured": 1,
         "alloc_captured": 1, "host_free": 1, "full": 1, "full_threads": 1, "full_captured": 1,
         "captured_full": 1, "pool_gives_back": 1, "attributes": 1, "mappings": 1, "foreign": 1,
         "pool_order": 1, "pool_sizes": 1, "pool_legacy": 1, "pool_reuse": 1, "pool_events": 1,
         "pool_events_graph": 1,
         "pool_numbers": 1, "pool_pointers": 1, "pool_ends": 1, "pool_captured": 1, "pool_full": 1,
         "pool_full_apart": 1, "pool_full_captured": 1, "pool_pieces": 1, "pool_too_much": 1,
         "pool_pieces_synced": 1, "pool_pieces_calls": 1,
         "pool_context": 1, "pool_access": 2, "pool_access_usual": 2, "pool_free_busy": 1,
         "pool_free_unused": 1, "pool_seeks": 1, "pool_plain": 1, "pool_full_ends": 1,
         "pool_captured_ends": 1, "pool_captured_beside": 1, "pool_waits": 1, "pool_threads": 1,
         "ipc_get": 1, "ipc": 1,
         "ipc_outlives": 1, "ipc_wrong": 1, "ipc_events": 1, "descriptors": 1,
         "descriptors_two": 1, "host_memory": 1, "host_memory_ends": 1, "host_memory_two": 1,
         "green": 1, "fault": 1,
         "stack": 1, "peer_copy": 2, "peer_busy": 2, "peer_contexts": 2}

# By case, the questions that cudaw answers otherwise than the driver alone [H200, 580.159].
KNOWN = {
    "free_captured": {
        *(f"cuMemFree of {size} KiB in a {mode} capture"
          for size in (4, 65536) for mode in ("global", "thread local")),
        "  the capture's end",
        "  freed after it",
        "  freed again",
    },
    "alloc_captured": {
        *(f"cuMemAlloc in a {mode} capture" for mode in ("global", "thread local")),
        "  of 64 MiB",
        *(f"the end of the {mode} capture" for mode in ("global", "thread local")),
    },
    "pool_captured": {
        *(f"{what} a global capture" for what in ("beside", "freed beside")),
        "the end of the global capture",
        "nodes of the global capture",
    },
    "mappings": {"MAPPING_SIZE of memory of a pool"},
    "pool_full_captured": {"beside a capture, half"},
    "pool_pieces": {f"half, of pieces that {whose} stream frees" for whose in ("its own", "another")},
    # The driver fails all of them, and gives memory that work still uses to another stream.
    "pool_pieces_synced": {"allocations that failed"},
    "pool_free_unused": {"  another stream's memory has its contents"},
    "ipc_outlives": {"opening freed memory"},
    "ipc_wrong": {"opening with a wrong first byte"},
    # After a copy between two GPUs each has access to the other's memory.
    "peer_copy": {"cuMemsetD32 of the other GPU's memory", "synchronising after it"},
}
# And those that come out either way.
SOMETIMES = {"full": {"cuStreamCreate on a GPU with 200 MiB freed, shown free"}}


def compare(case):
    def run():
        if gpu_count() < CASES[case]:
            raise Skip(f"{CASES[case]} GPUs needed, {gpu_count()} here")
        env = base_environment()
        same_answers(answers("fidelity", case, env=env),
                     answers("fidelity", case, under=(CUDAW, "run", "--"), env=env),
                     KNOWN.get(case, ()), SOMETIMES.get(case, ()))
    return f"the driver's answers, {case}", run


main(*[compare(case) for case in CASES])
