#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces on the simulated driver, which counts the calls that it gets: none is missing, none is
there twice, whatever ends the program or its file.
"""
import collections
import json
import os
import resource
import signal
import time

from simlib import (SANITIZED, SCRATCH, errors_of_cudaw, is_stopped, shared,
                    unsanitized)
from gpulib import BUILD, Job, check, cudaw, equal, main, seeded, until

FILE = os.path.join(SCRATCH, "trace.json")
COUNTS = os.path.join(SCRATCH, "counts")
ENDLESS = ("--steps", 100000000)
PAGE = 4096


def traces():
    """The traces that there are, by name."""
    return sorted(name for name in os.listdir(SCRATCH) if name.startswith("trace.json"))


def clean():
    for name in traces():
        os.unlink(os.path.join(SCRATCH, name))


def read(path=FILE):
    """The events of a trace whose process was not killed."""
    with open(path, encoding="ascii") as file:
        return [event for event in json.load(file) if event["ph"] == "X"]


def read_cut():
    """The events of a trace whose process was killed: the end of the array may be missing."""
    with open(FILE, encoding="ascii") as file:
        text = file.read()
    return json.loads(text if text.endswith("\n]") else text.rstrip(" ") + "\n]")


def run(program, *args, **env):
    clean()
    job = Job(program, *args, env={"CUDAW_TRACE": FILE, **env})
    job.result()
    return job


def calls(events):
    return collections.Counter(event["args"].get("call", event["name"]) for event in events)


def counter_with(steps, allocs, **env):
    job = run("counter", "--steps", steps, "--allocs", allocs, "--mib", allocs * 2,
              CUDAW_SIM_COUNT=COUNTS, **env)
    equal(errors_of_cudaw(job), [], "what cudaw says on stderr")
    return read()


def driver_counts():
    with open(COUNTS, encoding="ascii") as file:
        return {name: int(count) for name, count in map(str.split, file)}


def every_call_is_there_once():
    steps, allocs = 30, 6
    events = counter_with(steps, allocs)
    kernels = collections.Counter(event["name"] for event in events if event["cat"] == "launch")
    equal(kernels, {"iota": allocs, "increment": steps * allocs, "checksum": allocs}, "the kernels")
    found, counted = calls(events), driver_counts()
    for name in ("cuLaunchKernel", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuModuleGetFunction"):
        equal(found[name], counted[name], f"the number of calls of {name}")
    equal(found["cuCtxSynchronize"], steps, "the number of synchronisations")
    equal((found["cuMemAlloc_v2"], found["cuMemFree_v2"]), (allocs + 1, allocs + 1),
          "the numbers of allocations and frees")
    copied = collections.Counter()
    for event in events:
        copied[event["args"].get("kind")] += event["args"].get("bytes", 0)
    # A sum and two samples of 1,024 words of each buffer.
    equal((copied["HtoD"], copied["DtoH"]), (allocs * 8, allocs * (8 + 2 * 4096)),
          "the bytes copied")


def threads():
    clean()
    job = Job("soak", "--threads", 4, *ENDLESS,
              env={"CUDAW_TRACE": FILE, "CUDAW_SIM_COUNT": COUNTS})
    job.wait_steps(300)
    check("every byte right" in job.finish(), "the job did not verify its memory")
    events, counted = read(), driver_counts()
    equal(calls(events)["cuLaunchKernel"], counted["cuLaunchKernel"], "the number of launches")
    # The main thread launches as well, before the four begin.
    equal(len({event["tid"] for event in events if event["cat"] == "launch"}), 5,
          "the number of threads that launch")
    count = collections.Counter(event["cat"] for event in events if "error" not in event["args"])
    equal(count["free"], count["alloc"], "the numbers of frees and allocations")
    last = {}
    for event in events:
        check(event["ts"] >= last.get(event["tid"], 0), "the events of a thread overlap")
        last[event["tid"]] = event["ts"]


def killed_at_any_moment():
    """What the program had done when it said so is there, and every line is whole."""
    rng = seeded()
    for _ in range(5 if SANITIZED else 15):
        clean()
        job = Job("counter", *ENDLESS, "--mib", 4, "--allocs", 4, env={"CUDAW_TRACE": FILE})
        job.wait_steps(1)
        time.sleep(rng.uniform(0, 0.1))
        job.send(signal.SIGKILL)
        job.wait_end()
        synchronised = calls(read_cut())["cuCtxSynchronize"]
        check(synchronised >= job.steps(), f"{synchronised} synchronisations, {job.steps()} steps")
        job.discard()


def events_keep_to_their_pages():
    """A write across two pages could be cut between them by SIGKILL."""
    counter_with(50, 4)
    with open(FILE, "rb") as file:
        text = file.read()
    check(len(text) > 4 * PAGE, f"{len(text)} bytes are too few for this test")
    start = 0
    while start < len(text):
        end = text.find(b",\n{", start + 1)
        end = len(text) if end < 0 else end
        event = text[start:end].rstrip(b" ")
        equal(start // PAGE, (start + len(event) - 1) // PAGE, f"the page of the end of {event}")
        start = end


def a_file_of_limited_size():
    """As on a full disk: whole events up to there, one error, and the program runs on."""
    clean()
    job = Job("counter", *ENDLESS, "--step-ms", 2, env={"CUDAW_TRACE": FILE})
    job.wait_steps(2)
    job.send(signal.SIGSTOP)
    until(lambda: is_stopped(job.pid), 10, "the job is stopped")
    limit = os.path.getsize(FILE) + 10000
    resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (limit, limit))
    job.send(signal.SIGCONT)
    job.wait_steps(100)
    check("every word right" in job.finish(), "the job did not verify its memory")
    said = errors_of_cudaw(job)
    check(len(said) == 1 and "File too large" in said[0] and FILE in said[0], f"it said {said}")
    check(limit - PAGE < os.path.getsize(FILE) <= limit,
          f"the file has {os.path.getsize(FILE)} bytes, of {limit}")
    check(len(read()) > 20, "too few events")


def a_file_that_can_not_be_made():
    path = os.path.join(SCRATCH, "none", "trace.json")
    job = run("counter", "--steps", 3, CUDAW_TRACE=path)
    said = errors_of_cudaw(job)
    check(len(said) == 1 and "No such file" in said[0] and path in said[0], f"it said {said}")


def files_that_are_there():
    """A process never writes to a file that it finds; cudaw run makes room for the first."""
    clean()
    with open(FILE, "w", encoding="ascii") as file:
        file.write("precious")
    job = Job("counter", "--steps", 3, env={"CUDAW_TRACE": FILE})
    job.result()
    equal(traces(), ["trace.json", f"trace.json.{job.pid}"], "the traces")
    with open(FILE, encoding="ascii") as file:
        equal(file.read(), "precious", "the file that was there")
    check(read(f"{FILE}.{job.pid}"), "no events")


@unsanitized
def an_option_of_run():
    clean()
    with open(FILE, "w", encoding="ascii") as file:
        file.write("old")
    program = os.path.join(BUILD, "tests", "programs", "counter")
    done = cudaw("run", "--trace", "trace.json", "--", "sh", "-c",
                 f"cd / && {program} --steps 3", cwd=SCRATCH)
    equal((done.returncode, done.stderr), (0, ""), "the exit code and stderr of cudaw run")
    equal(traces(), ["trace.json"], "the traces")
    check(len(read()) > 20, "too few events")
    clean()
    done = cudaw("run", "--trace", "trace.json", "--", "true", cwd=SCRATCH)
    equal((done.returncode, traces()), (0, []), "what a program without CUDA leaves behind")
    for file, why in [(SCRATCH, "expected a regular file"), ("", "expected a regular file"),
                      (f"{SCRATCH}/none/trace.json", f"{SCRATCH}/none: No such file")]:
        done = cudaw("run", "--trace", file, "--", "true")
        check(done.returncode == 2 and why in done.stderr, f"{file}: {done.stderr}")


def children():
    """A child that uses CUDA after an exec has a file of its own, one without CUDA has none."""
    job = run("forker", "--steps", 10)
    names = traces()
    equal((len(names), names[0]), (2, "trace.json"), f"the number and the first of {names}")
    own, other = read(), read(os.path.join(SCRATCH, names[1]))
    equal({event["pid"] for event in own}, {job.pid}, "the processes in the first trace")
    equal({event["pid"] for event in other}, {int(names[1].rpartition(".")[2])},
          "the processes in the second trace")
    equal(calls(own)["cuCtxSynchronize"], 11, "the parent's synchronisations")
    equal(calls(other)["cuCtxSynchronize"], 10, "the child's synchronisations")


def a_call_that_fails():
    clean()
    job = Job("counter", "--steps", 3,
              env={"CUDAW_TRACE": FILE, "CUDAW_SIM_FAULT": "cuCtxSynchronize:2:999"})
    equal(job.wait_end(), 1, "the exit status of the job")
    last = read()[-1]
    equal((last["name"], last["args"]), ("cuCtxSynchronize", {"error": 999}), "the last event")


def a_launch_that_is_refused():
    run("wrong", "launch-freed", CUDAW_CHECK="1")
    event, = (event for event in read() if event["args"].get("error"))
    equal((event["name"], event["args"]["call"], event["args"]["error"]),
          ("_Z6upwardPjm", "cuLaunchKernel", 700), "what failed")
    equal(event["args"]["params"][1], "0x0", "its second parameter")


def batches():
    found = {}
    for case in ("right-batch", "right-ranges"):
        run("wrong", case)
        found.update({event["name"]: (event["cat"], event["args"].get("bytes"))
                      for event in read() if "Batch" in event["name"]})
    equal(found, {"cuMemcpy3DBatchAsync_v2": ("copy", 4096 * 4),
                  "cuMemPrefetchBatchAsync": ("memory", 4096),
                  "cuMemDiscardBatchAsync": ("memory", 4096),
                  "cuMemDiscardAndPrefetchBatchAsync": ("memory", 4096)}, "the batches")


@unsanitized
def a_program_that_closes_its_file():
    """Nothing is written into the program's own file in its place."""
    clean()
    when, own = os.path.join(SCRATCH, "closes.now"), os.path.join(SCRATCH, "closes.own")
    with open(own, "wb") as file:
        file.write(bytes(64 * PAGE))
    job = Job("counter", "--mib", 64, *ENDLESS, "--step-ms", 5,
              env={"CUDAW_TRACE": FILE, "CLOSES_WHEN": when, "CLOSES_WHAT": FILE, "CLOSES_OPENS": own,
                   "LD_PRELOAD": os.path.join(BUILD, "tests", "preload", "closes.so")})
    job.wait_steps(3)
    with open(when, "wb"):
        until(lambda: not os.path.exists(when), 10, "the file is closed")
    job.wait_steps(job.steps() + 5)
    check("every word right" in job.finish(), "the job did not verify its memory")
    check("Bad file descriptor; the trace ends here" in job.stderr(), f"it says {job.stderr()!r}")
    with open(own, "rb") as file:
        equal(file.read(), bytes(64 * PAGE), "the program's own file")


main(every_call_is_there_once, threads, killed_at_any_moment, events_keep_to_their_pages,
     a_file_of_limited_size, a_file_that_can_not_be_made, files_that_are_there, an_option_of_run,
     a_program_that_closes_its_file, children, a_call_that_fails, a_launch_that_is_refused, batches,
     *shared("trace.py", leave_out=("every kernel of static_rt has a name and parameters",
                                    "every kernel of dynamic_rt has a name and parameters")))
