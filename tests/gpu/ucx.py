#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""UCX patches the driver's functions that allocate and free, and sends GPU memory between processes."""
from gpulib import Job, Skip, check, cudaw, equal, jobs, main

FOREVER = 100000000
ENV = {}    # of the ranks


def hears_of_all_memory(far):
    """It finds our functions as good as the driver's, before a pause and after it."""
    def case():
        job = Job("ucx.py", "--steps", 30, "--step-ms", 10, env={"UCX_MEM_BISTRO_FORCE_FAR_JUMP": far})
        job.wait_steps(3)
        job.pause()
        job.resume()
        check("ucx: heard of everything" in job.result(), "UCX did not hear of everything")
    return f"hears_of_all_memory_by_{'far' if far == 'y' else 'near'}_jumps", case


def ranks(name, **env):
    job = Job("ucx_ranks.py", "--steps", FOREVER, "--step-ms", 1, name=name, env={**ENV, **env})
    job.wait_steps(3)
    equal(sum(row["name"] == name for row in jobs().values()), 2, "the number of ranks")
    return job


def ranks_are_paused_together():
    """By its transport over legacy IPC, or by copies through the host."""
    for transport in "cuda_ipc,", "":
        job = ranks("ranks", UCX_CUDA_COPY_DMABUF="n", UCX_TLS=f"{transport}cuda_copy,posix,sysv,cma,self")
        for release in "all", "memory", "all":
            for verb in ("pause", "--release", release), ("resume",):
                done = cudaw(*verb, "ranks")
                equal(done.returncode, 0, f"the exit code of cudaw {verb} ({done.stderr.strip()})")
            job.wait_steps(3)
        job.discard()


def ranks_with_dmabufs_run_on():
    job = ranks("dmabufs")
    done = cudaw("pause", "dmabufs")
    cudaw("resume", "dmabufs")
    job.wait_steps(3)
    if not ENV and not done.returncode:     # the simulator makes dma-bufs whatever the machine has
        raise Skip("UCX has made no dma-buf")
    check(done.returncode and "UCX_CUDA_COPY_DMABUF=n" in done.stderr, f"cudaw says {done.stderr!r}")


main(*map(hears_of_all_memory, "ny"), ranks_are_paused_together, ranks_with_dmabufs_run_on)
