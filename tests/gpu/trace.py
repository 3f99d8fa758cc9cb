#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trace.py [SHAPES]: what a trace shows is what a program did; with SHAPES in two dimensions too."""
import json
import os
import sys

from gpulib import SCRATCH, Job, Skip, check, equal, main, proc_status

SHAPES = sys.argv[1:] == ["shapes"]
BYTES = 1 << 20     # of the buffer of tests/programs/traced.c


def trace_of(program, *args):
    """Run it; its trace, without metadata."""
    path = os.path.join(SCRATCH, f"{os.path.basename(program)}.json")
    job = Job(program, *args, env={"CUDAW_TRACE": path})
    job.result()
    equal(job.stderr(), "", "what the job said on stderr")
    with open(path, encoding="ascii") as file:
        events = json.load(file)
    equal(events[0]["name"], "cudaw_trace", "the first event")
    check(os.path.basename(program) in events[1]["args"]["name"], "no command line")
    os.unlink(path)
    return [event for event in events if event["ph"] == "X"]


def brief(event):
    """Name, kind and bytes of an event."""
    return " ".join(str(event["args"].get(key, "")) if key else event["name"]
                    for key in (None, "kind", "bytes")).strip()


def of(events, *categories):
    return [event for event in events if event["cat"] in categories]


def sets_and_copies():
    events = trace_of("traced", "--shapes", int(SHAPES))
    wanted = ["cuMemsetD8_v2  1000", "cuMemsetD16_v2  2000", f"cuMemsetD32Async  {BYTES}",
              "cuMemcpyDtoDAsync_v2 DtoD 4096", "cuMemcpy DtoH 2048", "cuMemcpy HtoD 512",
              f"cuMemcpyHtoDAsync_v2 HtoD {BYTES}"]
    if SHAPES:
        wanted += ["cuMemsetD2D8_v2  1000", "cuMemcpy2D_v2 DtoH 1000"]
    equal([brief(event) for event in of(events, "copy", "set")], wanted, "what was copied and set")
    copy = events[[brief(event) for event in events].index(wanted[3])]["args"]
    check(copy["dst"].endswith("+1024)") and copy["src"].endswith("+0)"),
          f"the ends of the copy are {copy['src']} and {copy['dst']}")


def launches():
    events = trace_of("traced")
    found = of(events, "launch")
    equal([event["name"] for event in found], ["increment"] * 5 + ["iota"], "the kernels")
    equal([event["args"]["call"] for event in found],
          ["cuLaunchKernel"] * 2 + ["cuLaunchKernelEx"] * 3 + ["cuLaunchKernel"], "the calls")
    equal([event["args"].get("error") for event in found], [None, 1] + [None] * 4, "their errors")
    equal((found[0]["args"]["grid"], found[0]["args"]["block"]), ([8, 2, 1], [64, 1, 1]),
          "the first grid and its blocks")
    number = of(events, "alloc")[0]["args"]["ptr"].split("#")[1].split("+")[0]
    params = [event["args"].get("params") for event in found]
    offsets = [[param.split(" ")[1] if "(" in param else param for param in one] for one in params]
    listed = [f"(#{number}+0)", "0x40000"]
    equal(offsets, [listed, listed, [f"(#{number}+256)", "0x3ffc0"], listed, listed, listed + ["0x9"]],
          "the parameters")
    equal([event["name"] for event in of(events, "graph")][-2:], ["cuGraphLaunch"] * 2,
          "the last events of graphs")


def memory():
    events = trace_of("traced")
    pitch = 512 * 100
    equal([brief(event) for event in of(events, "alloc")],
          [f"cuMemAlloc_v2  {BYTES}", f"cuMemAllocPitch_v2  {pitch}", f"cuMemAllocAsync  {4 << 20}"],
          "the allocations")
    equal([event["name"] for event in of(events, "free")],
          ["cuMemFreeAsync"] + ["cuMemFree_v2"] * 3, "the frees")
    equal([event["args"].get("error") for event in of(events, "free")], [None] * 3 + [1],
          "their errors")


def pauses():
    path = os.path.join(SCRATCH, "paused.json")
    job = Job("counter", "--mib", 64, "--steps", 100000, "--step-ms", 2, env={"CUDAW_TRACE": path})
    job.wait_steps(5)
    job.pause()
    job.check_still(0.3)
    # Its sleep after a step is over by then: it sleeps in the call that waits for the resume.
    job.until(lambda: proc_status(job.pid)["State"].startswith("S"), 10, "a call waits for the resume")
    job.resume()
    job.wait_steps(job.steps() + 5)
    job.finish()
    with open(path, encoding="ascii") as file:
        events = [event for event in json.load(file) if event["ph"] == "X"]
    found = {event["name"]: event for event in of(events, "cudaw")}
    check({"pause", "resume"} <= set(found), f"cudaw's own events are {sorted(found)}")
    check(found["pause"]["args"]["result"] == "ok" and
          found["pause"]["args"]["bytes"] == found["resume"]["args"]["bytes"] >= 64 << 20,
          f"pause and resume are {found}")
    phases = [event["name"] for event in of(events, "phase")]
    check(phases[0] == "drain" and phases.count("copy") == 2 and {"unmap", "map"} <= set(phases),
          f"the phases are {phases}")
    stopped = found["resume"]["ts"] - found["pause"]["ts"] - found["pause"]["dur"]
    check(stopped > 3e5, f"it was paused for {stopped} us")
    at = found["resume"]["ts"]
    check(any(event["ts"] < at < event["ts"] + event["dur"] for event in events
              if event["cat"] in ("launch", "sync")), "no call waited for the resume")


def every_kernel_has_a_name(program, *args):
    def case():
        if program.endswith("_rt") and os.environ.get("CUDAW_REAL_LIBCUDA"):
            raise Skip("the runtime needs a real driver")
        events = trace_of(program, *args)
        names = {event["name"] for event in of(events, "launch")}
        check(names, "no launch was seen")
        check("unnamed kernel" not in names, f"the kernels are {names}")
        check(all("params" in event["args"] for event in of(events, "launch")),
              "a launch is without parameters")
    return f"every kernel of {program} has a name and parameters", case


main(sets_and_copies, launches, memory, pauses,
     every_kernel_has_a_name("counter", "--steps", 5),
     every_kernel_has_a_name("static_rt", "--steps", 5),
     every_kernel_has_a_name("dynamic_rt", "--steps", 5))
