#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every kind of memory through pauses, in both ways of release: the program prints what the
undisturbed native run prints. What a pause cannot carry is refused by name, and the job runs on.
"""
from gpulib import Job, check, cudaw, cudaw_ok, equal, main, pause_at_random, same_lines

STEPS, STEP_MS, STILL = 150, 10, 0.2
KINDS = ("async", "pool", "vmm", "array", "mipmap", "texture", "global", "heap",
         "printf", "graph_mem", "graph_replay", "host", "ptds", "priority", "external",
         "dmabuf_gone", "vmm_host", "vmm_host_gone")
LEFT = ("managed", "vmm_host", "pool_host", "ipc_out", "ipc_in", "vmm_out", "vmm_in", "pool_out", "pool_in",
        "dmabuf_vmm")
REFUSED = {
    "managed": "1 managed allocation (cuMemAllocManaged) cannot be carried",
    "vmm_host": "1 allocation of host memory (cuMemCreate) cannot be carried",
    "pool_host": "1 allocation of host memory (cuMemAllocFromPoolAsync) cannot be carried",
    "multicast": "2 multicast objects (cuMulticastCreate) cannot be carried",
    "dmabuf": "1 allocation exported (cuMemGetHandleForAddressRange) cannot be carried; UCX, which asks for dma-bufs, "
              "makes none with UCX_CUDA_COPY_DMABUF=n",
    "dmabuf_vmm": "1 allocation exported (cuMemGetHandleForAddressRange) cannot be carried",
    "ipc_out": "1 allocation exported (cuIpcGetMemHandle) cannot be carried",
    "ipc_in": "1 allocation imported (cuIpcOpenMemHandle) cannot be carried",
    "vmm_out": "1 allocation exported (cuMemExportToShareableHandle) cannot be carried",
    "vmm_in": "1 allocation imported (cuMemImportFromShareableHandle) cannot be carried",
    "pool_out": "1 pool exported (cuMemPoolExportToShareableHandle) cannot be carried",
    "pool_in": "1 pool imported (cuMemPoolImportFromShareableHandle) cannot be carried",
}
native = {}         # what a native run of the kind printed
UNSUPPORTED = 6     # the exit code of cudaw pause


def environment(kind, release, exports="exports"):
    """Legacy IPC takes the driver's own allocations, and no pause its descriptors."""
    return {"CUDAW_RELEASE": release,
            "CUDAW_TO_DRIVER": ",".join(filter(None, ("memory" if kind.startswith("ipc") else "", exports)))}


def arguments(kind):
    return "--kind", kind, "--steps", STEPS, "--step-ms", STEP_MS


def carried(kind, release, exports="exports"):
    def case():
        undisturbed = None if kind in native else Job("memory_kinds", *arguments(kind), mode="native")
        job = Job("memory_kinds", *arguments(kind), env=environment(kind, release, exports))
        rows = pause_at_random(job, 3, STEPS, STILL)
        check(all(rows), "the job ended before its last resume was done")
        check("stays on the GPU" not in job.said, f"the driver did not take it: {job.said}")
        if undisturbed:
            native[kind] = undisturbed.result()
        same_lines(job.result(), native[kind], "after 3 pauses")
    return f"{kind}, {release}" + (", of the driver" if kind == "vmm_host" and exports else ""), case


def refused(kind):
    def case():
        job = Job("memory_kinds", "--kind", kind, "--steps", 1000000, "--step-ms", STEP_MS,
                  env=environment(kind, "all"))
        job.wait_steps(3)
        for _ in range(2):
            done = cudaw("pause", job.pid)
            equal(done.returncode, UNSUPPORTED, "the exit code of cudaw pause")
            check(REFUSED[kind] in done.stderr, f"cudaw pause says {done.stderr!r}")
            equal(job.state(), "running", "the state after it")
            job.wait_steps(job.steps() + 3)
        if "--release memory" in done.stderr:
            cudaw_ok("pause", "--release", "memory", job.pid)
            job.resume()
            job.wait_steps(job.steps() + 3)
        check("every word right" in job.finish(), "the job did not verify its memory")
    return f"{kind} is refused", case


main(*[carried(kind, release, "" if kind == "vmm_host" else "exports")
       for kind in KINDS for release in ("all", "memory")],
     *[carried(kind, "memory") for kind in LEFT], *[refused(kind) for kind in REFUSED])
