#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's profilers and debuggers with a program under cudaw: the program's output is the same, and
the tool says the same as natively, except where docs/troubleshooting.md names a difference. Lines
that begin with "#" have what the tools say. A tool that the machine lacks is skipped.
"""
import csv
import glob
import os
import re
import shutil
import subprocess
import time

from gpulib import BUILD, CUDAW, SCRATCH, Skip, base_environment, check, cudaw, equal, main

COUNTER = os.path.join(BUILD, "tests", "programs", "counter")
OVERRUN = os.path.join(BUILD, "tests", "programs", "overrun")
ARGUMENTS = ("--mib", "16", "--steps", "5")
UNDER_CUDAW = (CUDAW, "run", "--name", "profiled", "--")
DIRECTORIES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer",
               "/opt/nvidia/nsight-systems/*/bin", "/opt/nvidia/nsight-compute/*",
               "/usr/local/cuda/nsight-*/bin")
# cudaw becomes the program by exec().
MEMCHECK = ("--tool", "memcheck", "--target-processes", "all")
TIMEOUT = 120


def tool(name):
    """The path of one of NVIDIA's tools."""
    found = [shutil.which(name)]
    for directory in DIRECTORIES:
        found += sorted(glob.glob(os.path.join(directory, name)))
    found = [path for path in found if path]
    if not found:
        raise Skip(f"no {name} on this machine")
    return found[0]


def run(*command):
    """Its exit status, and what it printed on both outputs."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=TIMEOUT, env=base_environment(), cwd=SCRATCH)
    return done.returncode, done.stdout


def show(who, lines):
    for line in lines:
        print(f"# {who}: {line}", flush=True)


def of_program(text):
    """The lines of counter: its steps and what it verified."""
    return [line for line in text.splitlines() if line.startswith("step ") or "every word" in line]


def both(*before, needs="every word right"):
    """What the tool printed natively and under cudaw, around counter."""
    texts = []
    for who, middle in (("natively", ()), ("cudaw", UNDER_CUDAW)):
        code, text = run(*before, *middle, COUNTER, *ARGUMENTS)
        if who == "natively" and "ERR_NVGPUCTRPERM" in text:
            raise Skip("the driver allows performance counters to root only")
        if code or needs not in text:
            show(who, text.splitlines()[-15:])
        check(needs in text, f"{who}: the program did not end well, exit status {code}")
        texts.append(text)
    equal(of_program(texts[1]), of_program(texts[0]), "the program's output")
    return texts


def rows(nsys, report, what):
    """What nsys counted: calls by name."""
    code, text = run(nsys, "stats", "--force-export", "true", "--format", "csv", "--report", what, report)
    equal(code, 0, f"the exit status of nsys stats ({text[-200:]})")
    lines = text.splitlines()
    header = [i for i, line in enumerate(lines) if line.startswith("Time (%)")]
    if not header:
        return {}
    found = csv.DictReader(lines[header[0]:])
    count = "Instances" if "kern" in what else "Num Calls"
    return {row["Name"]: row[count] for row in found if row.get(count)}


def nsys_counts_the_same_kernels():
    nsys = tool("nsys")
    kernels, calls = [], []
    for who, middle in (("natively", ()), ("cudaw", UNDER_CUDAW)):
        report = os.path.join(SCRATCH, f"nsys-{who}")
        code, text = run(nsys, "profile", "--trace", "cuda", "--sample", "none", "--cpuctxsw", "none",
                         "--force-overwrite", "true", "--output", report, *middle, COUNTER, *ARGUMENTS)
        check("every word right" in text, f"{who}: exit status {code}, it ends with {text[-400:]!r}")
        kernels.append(rows(nsys, report + ".nsys-rep", "cuda_gpu_kern_sum"))
        calls.append(rows(nsys, report + ".nsys-rep", "cuda_api_sum"))
    show("kernels natively", [kernels[0]])
    show("calls natively", [calls[0]])
    show("calls under cudaw", [calls[1]])
    check(kernels[0], "nsys saw no kernel natively")
    equal(kernels[1], kernels[0], "the kernels that nsys counted")


def ncu_profiles_the_same_kernels():
    texts = both(tool("ncu"), "--launch-count", "3", "--csv")
    found = []
    for text in texts:
        lines = text.splitlines()
        header = [i for i, line in enumerate(lines) if line.startswith('"ID"')]
        check(header, f"ncu printed no table: {text[-400:]!r}")
        # A row without a metric is advice, which depends on what was measured.
        found.append([(row["ID"], row["Kernel Name"], row["Metric Name"])
                      for row in csv.DictReader(lines[header[0]:]) if row.get("Metric Name")])
    show("ncu", sorted({row[1] for row in found[0]}))
    equal(found[1], found[0], "the kernels and metrics")


def memcheck_finds_nothing_in_a_right_program():
    for text in both(tool("compute-sanitizer"), *MEMCHECK):
        check("ERROR SUMMARY: 0 errors" in text, f"compute-sanitizer says {text[-400:]!r}")


def memcheck_of_an_overrun(size, past, found_under_cudaw):
    def case():
        memcheck = (tool("compute-sanitizer"), *MEMCHECK, "--print-limit", "1")
        arguments = ("--bytes", size, "--past", past)
        errors = []
        for who, middle in (("natively", ()), ("cudaw", UNDER_CUDAW)):
            _, text = run(*memcheck, *middle, OVERRUN, *arguments)
            show(who, [line for line in text.splitlines() if line.startswith("=====")][:12])
            summary = re.search(r"ERROR SUMMARY: (\d+) error", text)
            check(summary, f"{who}: no summary in {text[-400:]!r}")
            errors.append(int(summary[1]))
        check(errors[0], "natively nothing was found")
        equal(bool(errors[1]), found_under_cudaw, "whether it is found under cudaw")
    return f"memcheck of {past} bytes past {size}", case


def cuda_gdb_stops_in_a_kernel():
    gdb = tool("cuda-gdb")
    texts = []
    commands = ("set pagination off", "set confirm off", "set cuda break_on_launch application", "run",
                "info cuda kernels", "set cuda break_on_launch none", "continue")
    script = [word for command in commands for word in ("-ex", command)]
    for who, middle in (("natively", ()), ("cudaw", UNDER_CUDAW)):
        _, text = run(gdb, "--batch", "--quiet", *script, "--args", *middle, COUNTER, *ARGUMENTS)
        texts.append(text)
        if "every word right" not in text:
            show(who, text.splitlines()[-15:])
        check("every word right" in text, f"{who}: the program did not end well in cuda-gdb")
        show(who, [line for line in text.splitlines() if "Device 0" in line or "iota" in line][:4])
        check("iota" in text, f"{who}: cuda-gdb did not stop in the first kernel")
    equal(of_program(texts[1]), of_program(texts[0]), "the program's output")


def a_pause_beside_nsys():
    """Both use the driver's tools interface: the pause succeeds, or is refused and harms nothing."""
    report = os.path.join(SCRATCH, "nsys-paused")
    job = subprocess.Popen([tool("nsys"), "profile", "--trace", "cuda", "--sample", "none",
                            "--cpuctxsw", "none", "--force-overwrite", "true", "--output", report,
                            *UNDER_CUDAW, COUNTER, "--mib", "16", "--steps", "300", "--step-ms", "20"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                           stderr=subprocess.STDOUT, env=base_environment(), cwd=SCRATCH)
    try:
        deadline = time.monotonic() + 30
        while "profiled" not in cudaw("ps").stdout and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        for release in ("memory", "all"):
            done = cudaw("pause", "--release", release, "profiled")
            show(f"pause --release {release}", [f"exit code {done.returncode}",
                                                *(done.stdout + done.stderr).splitlines()])
            if not done.returncode:
                done = cudaw("resume", "profiled")
                show("resume", [f"exit code {done.returncode}", *done.stderr.splitlines()])
        text, _ = job.communicate(timeout=TIMEOUT)
    finally:
        if job.poll() is None:
            job.kill()
    check("every word right" in text, f"the program did not end well: {text[-400:]!r}")


# Bounds under cudaw are those of the memory that is mapped: small allocations share it.
main(nsys_counts_the_same_kernels, ncu_profiles_the_same_kernels,
     memcheck_finds_nothing_in_a_right_program, memcheck_of_an_overrun(1000, 4, False),
     memcheck_of_an_overrun(3 << 20, 4, False), memcheck_of_an_overrun(4 << 20, 4, True),
     cuda_gdb_stops_in_a_kernel, a_pause_beside_nsys)
