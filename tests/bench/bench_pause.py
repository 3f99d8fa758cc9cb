#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast a job is paused and resumed, beside the ceilings of the same machine in the same run: a
plain pinned copy, and the driver's own process checkpoint of the same job run natively.

A resume comes a second after its pause, since the driver is busy clearing what was unmapped, which
slows down one that comes at once: that has a line of its own.

Times are those from the request on the job's socket to its answer. The command's own start is in
none of them; it has a line of its own. The driver's checkpoint comes first, also because a virtual
machine gets its memory from its host at the first use: what is measured is memory that it has.

With --gpus N, a job of N processes, a GPU each, instead: the whole command's time, beside plain copies of
all these GPUs at once. With --allocators, PyTorch with each of its allocators instead.

BUILD is the build directory. Exit status: 1 where a target is missed.
"""
import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import time

from benchlib import Table, need

from gpulib import (BUILD, RUNTIME_DIR, Job, base_environment, check, cudaw_ok, equal,
                    idle_gpu_used, until)

COPY_SHARE = 0.94       # of the plain pinned copy, once the pool is warm
COLD_GBPS = 28          # the first pause of a process, with 16 cores
MANY_SHARE = 0.90       # of those rates, for many small allocations
RELEASE_SHARE = 1.05    # of the driver's checkpoint of a context alone
SMALL_SECONDS = 0.010   # the first pause of a job of 64 MiB
HOST_SPARE = 256 << 20  # host memory used beyond what is saved
CYCLES = 3
OBJECTS_SHARE = 1.03    # of the time of cudaMalloc's memory, if the whole GPU is released
CHUNK_MIB = 20          # of PyTorch's expandable segments
RANKS_SHARE = 0.90      # of plain copies of several GPUs at once
MEMORY = {"CUDAW_RELEASE": "memory", "CUDAW_HOST_POOL": "1T"}
ALLOCATORS = {"plain": "backend:native", "async": "backend:cudaMallocAsync",
              "expandable": "expandable_segments:True"}     # by PYTORCH_CUDA_ALLOC_CONF


def figures_of(program, *args):
    """Run a program that prints "figure NAME VALUE UNIT"; returns the values by name."""
    done = subprocess.run([os.path.join(BUILD, "tests", program), *map(str, args)], check=True,
                          capture_output=True, text=True, timeout=240, env=base_environment())
    lines = (line.split() for line in done.stdout.splitlines())
    return {words[1]: float(words[2]) for words in lines if words[0] == "figure"}


def start_job(mib, allocs=64, chunk_mib=0, **options):
    job = Job("counter", "--mib", mib, "--allocs", allocs, "--chunk-mib", chunk_mib,
              "--steps", 1000000, "--step-ms", 20, **options)
    job.wait_steps(2, timeout=120)
    return job


def end_verified(job):
    check("every word right" in job.finish(timeout=180), "the job did not verify its memory")


def ask(job, request):
    """Have the job do it; returns the seconds from the request to its answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.path.join(RUNTIME_DIR, f"{job.pid}.sock"))
        start = time.monotonic()
        connection.sendall(f"{request}\n".encode())
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    seconds = time.monotonic() - start
    equal(answer.decode().splitlines()[-1], "end ok", f"the answer to {request}")
    return seconds


class Moved:
    """One pause or resume: its time as a client sees it, and what the job says of it."""

    def __init__(self, verb, job):
        self.seconds = ask(job, verb)
        status = job.status()
        self.bytes = status[f"{verb}_bytes"]
        self.rate = self.bytes / 1e9 / self.seconds
        self.phases = {name: ms / 1e3 for name, ms in status[f"{verb}_phases"].items()}


def median(moved):
    """The one of the median rate."""
    return sorted(moved, key=lambda one: one.rate)[len(moved) // 2]


class Bench:
    def __init__(self, table):
        self.table = table
        self.ceiling = {}

    def row(self, what, seconds, rate=None, verdict=""):
        self.table.add(what, f"{seconds * 1e3:.1f} ms", f"{rate:.1f} GB/s" if rate else "",
                       verdict)
        name = what.replace(" ", "_").replace(",", "")
        self.table.figure(name, seconds, "s")
        if rate:
            self.table.figure(f"{name}_rate", rate, "GB/s")

    def moved(self, what, moved, least=None, share=None):
        """@share is that of the ceiling of @moved's direction."""
        if share:
            least = share * self.ceiling[what.split()[0]]
        self.row(what, moved.seconds, moved.rate,
                 self.table.at_least(moved.rate, least) if least else "")

    def copies(self, gpus, gib):
        rates = figures_of("bench/bench_copy", "--gpus", gpus, "--gib", gib)
        self.ceiling = {"pause": rates["copy_to_host"], "resume": rates["copy_to_gpu"]}
        for name, rate in rates.items():
            self.table.add(f"plain pinned {name.replace('_', ' ')}", "", f"{rate:.1f} GB/s", "")
            self.table.figure(name, rate, "GB/s")

    def driver_alone(self, mib):
        native = start_job(mib, mode="native")
        took = figures_of("programs/drvckpt", "--pid", native.pid)
        end_verified(native)
        gigabytes = mib * (1 << 20) / 1e9
        for verb, parts in (("pause", ("driver_lock", "driver_checkpoint")),
                            ("resume", ("driver_restore", "driver_unlock"))):
            seconds = sum(took[part] for part in parts)
            self.row(f"driver alone, {verb}, {mib >> 10} GiB", seconds, gigabytes / seconds)

    def cycles(self, job, size, share=COPY_SHARE, first=None):
        """The first pause, the resume after it, and the medians of the next CYCLES."""
        before = resident(job)
        cold = Moved("pause", job)
        self.moved(f"pause {size}, first of the process", cold, least=first)
        used = resident(job) - before - job.status()["paused"]
        self.table.add(f"host memory beyond what is saved, {size}", f"{used >> 20} MiB", "",
                       self.table.verdict(used, HOST_SPARE))
        until(lambda: job.status()["pool"] >= job.status()["paused"], 30, "the pool is pinned")
        resumes, pauses = [Moved("resume", job)], []
        for _ in range(CYCLES):
            job.wait_steps(job.steps() + 2)
            pauses.append(Moved("pause", job))
            time.sleep(1)
            resumes.append(Moved("resume", job))
        for verb, moved in ("pause", median(pauses)), ("resume", median(resumes)):
            self.moved(f"{verb} {size}, pool warm", moved, share=share)
            for phase, seconds in moved.phases.items():
                self.row(f"of which {phase}, {verb} {size}", seconds)
        Moved("pause", job)
        self.moved(f"resume {size}, at once", Moved("resume", job))

    def memory(self, gib):
        job = start_job(gib << 10, env=MEMORY)
        self.cycles(job, f"{gib} GiB", first=COLD_GBPS)
        start = time.monotonic()
        cudaw_ok("pause", job.pid, timeout=300)
        command = time.monotonic() - start - job.status()["pause_ms"] / 1e3
        self.row("the command cudaw pause, besides", command)
        Moved("resume", job)
        end_verified(job)

    def objects(self, gib):
        """Memory that the program creates and maps by itself."""
        job = start_job(gib << 10, chunk_mib=CHUNK_MIB, env=MEMORY)
        self.cycles(job, f"{gib} GiB of objects")
        end_verified(job)

    def many(self):
        job = start_job(10000, allocs=10000, env=MEMORY)
        self.cycles(job, "10,000 x 1 MiB", share=MANY_SHARE * COPY_SHARE,
                    first=MANY_SHARE * COLD_GBPS)
        end_verified(job)

    def small(self):
        moved = []
        for _ in range(CYCLES):
            job = start_job(64, allocs=4, env=MEMORY)
            moved.append(Moved("pause", job))
            Moved("resume", job)
            end_verified(job)
        seconds = statistics.median(one.seconds for one in moved)
        self.row("pause 64 MiB, first of the process", seconds, None,
                 self.table.verdict(seconds, SMALL_SECONDS))

    def everything(self, gib):
        """The whole GPU released: the driver's part beside its checkpoint of a context alone."""
        alone = []
        for _ in range(CYCLES):
            took = figures_of("programs/drvckpt", "--self", 1)
            alone.append(took["driver_lock"] + took["driver_checkpoint"])
        alone = statistics.median(alone)
        self.row("driver alone, pause, a context of its own", alone)
        pauses, resumes = whole_cycles(start_job(gib << 10))
        size = f"{gib} GiB, whole GPU"
        self.moved(f"pause {size}, first of the process", pauses[0])
        self.moved(f"pause {size}, later", median(pauses[1:]))
        self.moved(f"resume {size}", median(resumes))
        release = statistics.median(one.phases["release"] for one in pauses)
        self.row("of which the driver's part of a pause", release, None,
                 self.table.verdict(release, RELEASE_SHARE * alone))
        plain = [median(pauses[1:]).seconds, median(resumes).seconds]
        pauses, resumes = whole_cycles(start_job(gib << 10, chunk_mib=CHUNK_MIB))
        for verb, moved, limit in zip(("pause", "resume"), (pauses[1:], resumes), plain):
            seconds = median(moved).seconds
            self.row(f"{verb} {gib} GiB of objects, whole GPU", seconds, median(moved).rate,
                     self.table.verdict(seconds, OBJECTS_SHARE * limit))


    def allocators(self, gib):
        for name, conf in ALLOCATORS.items():
            job = Job("large_train.py", "--gib", gib, "--steps", 1000000,
                      env={**MEMORY, "PYTORCH_CUDA_ALLOC_CONF": conf})
            job.wait_steps(2, timeout=120)
            self.cycles(job, f"{gib} GiB, {name} allocator", first=COLD_GBPS)
            left = job.status()["left_to_driver"]
            self.table.add(f"left to the driver, {name} allocator", f"{left >> 20} MiB", "", "")
            self.table.figure(f"left_{name}_allocator", left, "bytes")
            end_verified(job)

    def one_process(self, sizes):
        for gib in sizes:
            self.driver_alone(gib << 10)
            self.memory(gib)
        self.objects(sizes[0])
        self.many()
        self.small()
        self.everything(sizes[0])

    def ranks(self, gib, gpus):
        """Processes of one job, each with @gib on a GPU of its own."""
        same = {**MEMORY, "CUDAW_JOB": "abc123", "CUDAW_NAME": "ranks"}
        ranks = [start_job(gib << 10, mode="path", env={**same, "CUDA_VISIBLE_DEVICES": str(gpu)})
                 for gpu in range(gpus)]
        size = f"{gpus} x {gib} GiB"
        self.together(f"pause {size}, first of the processes", "pause", ranks)
        until(lambda: all(rank.status()["pool"] >= rank.status()["paused"] for rank in ranks), 60,
              "the pools are pinned")
        self.nodes(ranks)
        self.together(f"resume {size}, first", "resume", ranks)
        for number in range(1, CYCLES + 1):
            for verb in ("pause", "resume"):
                self.together(f"{verb} {size}, {number}", verb, ranks, RANKS_SHARE)
                time.sleep(1)
        for rank in ranks:
            end_verified(rank)

    def nodes(self, ranks):
        """Where the host memory of the ranks is: copies to another node's memory may be slower."""
        found = [nodes_of(rank.process.pid) for rank in ranks]
        if all(found):
            self.table.add("host memory of the processes, by node", "; ".join(
                ", ".join(f"{node} {size >> 30} GiB" for node, size in sorted(rank.items()))
                for rank in found), "", "")

    def together(self, what, verb, ranks, share=None):
        start = time.monotonic()
        cudaw_ok(verb, "ranks", timeout=120)
        seconds = time.monotonic() - start
        rate = sum(rank.status()[f"{verb}_bytes"] for rank in ranks) / 1e9 / seconds
        self.row(what, seconds, rate,
                 self.table.at_least(rate, share * self.ceiling[verb]) if share else "")
        slowest = max((rank.status() for rank in ranks), key=lambda row: row[f"{verb}_ms"])
        phases = ", ".join(f"{name} {ms:.0f}" for name, ms in slowest[f"{verb}_phases"].items())
        self.table.add(f"  of the slowest process: {phases}", f"{slowest[f'{verb}_ms']:.1f} ms", "", "")


def whole_cycles(job):
    """Pauses and resumes of the whole GPU, the first of the process among them; ends the job."""
    pauses, resumes = [Moved("pause", job)], [Moved("resume", job)]
    for _ in range(CYCLES):
        job.wait_steps(job.steps() + 2)
        pauses.append(Moved("pause", job))
        resumes.append(Moved("resume", job))
    end_verified(job)
    return pauses, resumes


def nodes_of(pid):
    """Bytes of the process by the machine's node; empty if the kernel does not say."""
    found = {}
    try:
        with open(f"/proc/{pid}/numa_maps", encoding="ascii") as file:
            for line in file:
                words = dict(word.partition("=")[::2] for word in line.split())
                for name, pages in words.items():
                    if re.fullmatch("N[0-9]+", name):
                        size = int(pages) * int(words["kernelpagesize_kB"]) << 10
                        found[name] = found.get(name, 0) + size
    except OSError:
        pass
    return found


def resident(job):
    with open(f"/proc/{job.pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            if line.startswith("Rss:"):
                return int(line.split()[1]) << 10
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--gib", default="32,100", help="what the jobs hold (32,100)")
    parser.add_argument("--gpus", type=int, default=1, help="of a job of so many processes (1)")
    parser.add_argument("--allocators", action="store_true", help="of PyTorch, which must be there")
    parser.add_argument("--results", metavar="DIR", help="write DIR/results.json")
    args = parser.parse_args()
    need("bench/bench_copy", "programs/counter", "programs/drvckpt")
    sizes = [int(size) for size in args.gib.split(",")]
    table = Table("", "time", "rate", "target")
    bench = Bench(table)

    def measure():
        idle_gpu_used()
        # Of several GPUs, as much as the job has: the machine copies more of it at a lower rate.
        bench.copies(args.gpus, sizes[0] if args.gpus > 1 else 4)
        if args.gpus > 1:
            bench.ranks(sizes[0], args.gpus)
        elif args.allocators:
            bench.allocators(sizes[0])
        else:
            bench.one_process(sizes)
    return table.fill(measure, args.results)


if __name__ == "__main__":
    sys.exit(main())
