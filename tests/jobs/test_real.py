#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The harness of the real programs (tests/real): its word on programs that are right or wrong."""
import os
import subprocess
import sys

from simlib import SCRATCH, TESTS, check, equal, unsanitized

from harness import contains, main

REAL = os.path.join(TESTS, "real", "real.py")
FRAME = f"""\
import ctypes, os, sys
sys.path.insert(0, {os.path.join(TESTS, "real", "programs")!r})
import rounds
"""
DRIVER = FRAME + """
cuda = ctypes.CDLL("libcuda.so.1")
SIZE = ctypes.c_size_t(1 << 20)

def call(error):
    if error:
        sys.exit(f"driver error {error}")

def allocate(how, *args):
    data = ctypes.c_uint64()
    call(how(ctypes.byref(data), SIZE, *args))
    return data

def one_round():
    host = ctypes.create_string_buffer(SIZE.value)
    call(cuda.cuMemsetD8_v2(data, ctypes.c_ubyte(7), SIZE))
    call(cuda.cuMemcpyDtoH_v2(host, data, SIZE))
    return rounds.digest(host.raw)

context = ctypes.c_void_p()
call(cuda.cuInit(0))
call(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
call(cuda.cuCtxSetCurrent(context))
data = allocate(cuda.cuMemAlloc_v2)
"""
RUN = "rounds.run(one_round)\n"
SERVED = FRAME + f"""
import subprocess
engine = subprocess.Popen([sys.executable, "-c", {DRIVER + "for _ in sys.stdin: print(one_round(), flush=True)"!r}],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def one_round():
    print("next", file=engine.stdin, flush=True)
    return engine.stdout.readline().strip()
"""
NOISE = "rounds.run(lambda: one_round() + os.urandom(8).hex())\n"
OTHER = "job = os.environ.get('CUDAW_JOB', '')\nrounds.run(lambda: one_round() + job)\n"


def real(programs, *options):
    """Run the harness on these programs; returns it, the rows of its table, and the lines below."""
    directory = os.path.join(SCRATCH, "real")
    os.makedirs(os.path.join(directory, "programs"), exist_ok=True)
    with open(os.path.join(directory, "list"), "w", encoding="ascii") as names:
        names.write("# a comment\n\n")
        for name, text in programs.items():
            names.write(f"{name} some {name}.py --seconds 0.2  # another\n")
            with open(os.path.join(directory, "programs", f"{name}.py"), "w",
                      encoding="ascii") as file:
                file.write(text)
    done = subprocess.run([sys.executable, REAL, "--list", os.path.join(directory, "list"),
                           "--results", directory, *options], check=False, text=True,
                          capture_output=True, timeout=300)
    name = "real-check-all.md" if "--check" in options else "real-all.md"
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        text = file.read()
    contains(done.stdout, text)
    lines = text.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in lines if line.startswith("| ")]
    return done, {row[0]: row[1:] for row in rows[1:]}, [line for line in lines if line[:2] == "- "]


@unsanitized
def test_a_program_that_is_right_is_paused_as_often_as_it_should_be():
    """Also if the first process does not use CUDA."""
    done, rows, below = real({"right": DRIVER + RUN, "served": SERVED + RUN}, "--pauses", "4")
    equal((done.returncode, done.stderr, rows["right"][2:], rows["served"][2:], below),
          (0, "", ["4", "0", "equal"], ["4", "0", "equal"], []))


@unsanitized
def test_each_wrong_program_is_told_from_the_others():
    managed = "allocate(cuda.cuMemAllocManaged, ctypes.c_uint(1))\n"
    done, rows, below = real({
        "noise": DRIVER + NOISE, "other": DRIVER + OTHER,
        "absent": FRAME + "rounds.need('no_such_package')\n",
        "dies": DRIVER + "if 'CUDAW_JOB' in os.environ: sys.exit('so it ends')\n" + RUN,
        "refused": DRIVER + managed + RUN}, "--pauses", "2")
    results = {name: row[-1] for name, row in rows.items()}
    equal((done.returncode, done.stderr), (1, ""))
    equal(results["noise"], "not comparable")
    check(results["other"].startswith("differs: "), results["other"])
    equal(results["absent"], "skipped: no Python package no_such_package on this machine")
    equal(results["dies"], "failed: the exit status of dies is 1, should be 0")
    contains(done.stdout, "#   so it ends\n")
    equal(rows["refused"][2:], ["0", "4", "too few pauses"])
    check(len(below) == 1 and below[0].startswith("- refused, 4 times: exit code 6: "), below)


@unsanitized
def test_a_call_that_the_checks_fail_is_found():
    past = """
past = ctypes.c_uint64(data.value + 9)
def one_round():
    if "CUDAW_JOB" in os.environ:   # the driver alone fails it
        call(cuda.cuMemsetD8_v2(past, ctypes.c_ubyte(7), SIZE))
    return "same"
"""
    careless = past.replace("call(cuda", "(cuda")
    done, rows, below = real({"right": DRIVER + RUN, "past": DRIVER + past + RUN,
                              "careless": DRIVER + careless + RUN}, "--check")
    equal(done.returncode, 1)
    equal(rows["right"][2:], ["0", "equal"])
    contains(rows["past"][-1], "failed: ")
    contains("\n".join(below), "- careless: ")


@unsanitized
def test_nothing_begins_after_the_limit():
    done, rows, _ = real({"right": DRIVER + RUN}, "--limit", "0")
    equal((done.returncode, rows["right"]), (1, ["", "", "0", "0", "failed: not begun in time"]))


@unsanitized
def test_a_program_that_fails_without_cudaw_is_named():
    done, rows, _ = real({"right": DRIVER + RUN, "broken": DRIVER + "sys.exit('no such thing')\n"},
                         "--pauses", "2")
    equal((done.returncode, rows["broken"][-1]),
          (0, "fails natively: the exit status of broken is 1, should be 0"))


main()
