#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program in an odd state (tests/preload/odd.c), whose locale has a decimal comma, is paused, resumed,
listed and snapshotted as any other.
"""
import os
import re
import shutil
import stat
import subprocess
import sys

from simlib import SCRATCH, unsanitized
from snapshotjobs import directory
from gpulib import BUILD, Job, Skip, base_environment, check, cudaw, cudaw_ok, equal, faces, hog, main
from harness import contains

LOCALE = """\
comment_char %
escape_char /
LC_NUMERIC
decimal_point "<U002C>"
thousands_sep "<U002E>"
grouping 3;3
END LC_NUMERIC
"""


def with_comma():
    """The environment with such a locale, made here: machines have none of other countries."""
    if not shutil.which("localedef"):
        raise Skip("localedef is missing")
    path = os.path.join(SCRATCH, "locales")
    os.makedirs(path, exist_ok=True)
    with open(f"{path}/source", "w", encoding="ascii") as file:
        file.write(LOCALE)
    subprocess.run(["localedef", "-c", "-i", f"{path}/source", f"{path}/xx_XX"], check=False,
                   capture_output=True)
    env = {"LOCPATH": path, "LC_ALL": "xx_XX"}
    said = subprocess.run(["printf", "%.1f", "1,5"], env={**os.environ, **env}, check=False,
                          capture_output=True, text=True).stdout
    equal(said, "1,5", "what a program says in the locale that was made")
    return env


def odd(**env):
    job = Job("counter", "--mib", 64, "--steps", 1000000, "--step-ms", 10,
              env={"LD_PRELOAD": os.path.join(BUILD, "tests", "preload", "odd.so"), **with_comma(), **env})
    job.wait_steps(3)
    return job


def finish(job):
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def paused_and_resumed():
    for release in ("memory", "all"):
        job = odd(CUDAW_RELEASE=release)
        for _ in range(2):
            job.pause()
            status = job.status()
            equal(status["name"], "odd", "the name that the program has set")
            check(status["pause_ms"] > 0 and status["pause_phases"]["copy"] > 0, f"ps says {status}")
            check("64.0 MiB" in cudaw_ok("ps"), "the table does not have what is paused")
            job.resume()
        cudaw_ok("trim", job.pid)
        finish(job)


def sets_its_own_runtime():
    """When our library is loaded, and before its first call."""
    code = "import ctypes, os; runtime = ctypes.CDLL(os.environ['TEST_FACE']); " \
           "os.environ['CUDAW_REAL_LIBCUDART'] = '/of/the/program'; print(runtime.cudaDeviceSynchronize())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={**base_environment(), "TEST_FACE": f"{faces()}/libcudart.so.13"})
    equal(done.stdout, "35\n", "what the call returns: cudaErrorInsufficientDriver")
    contains(done.stderr, "CUDAW_REAL_LIBCUDART=/of/the/program: no such file")


def texts_have_points():
    job = odd(CUDAW_RELEASE="memory")
    job.pause()
    other, _ = hog()
    done = cudaw("resume", "--timeout", "0.5", job.pid)
    check(re.search(r"lacks 0\.\d\d GiB of the 0\.06 GiB that are needed, after 0\.5 s", done.stderr),
          f"it says {done.stderr!r}")
    other.discard()
    job.resume()
    finish(job)


def snapshot():
    job, path = odd(), directory()
    cudaw_ok("snapshot", "--gpu-only", job.pid, path)
    for name in os.listdir(path):
        mode = stat.S_IMODE(os.stat(f"{path}/{name}").st_mode)
        equal(oct(mode), oct(0o600), f"the permissions of {name}")
    cudaw_ok("verify", path)
    finish(job)


main(*[unsanitized(case) for case in (paused_and_resumed, sets_its_own_runtime, texts_have_points, snapshot)])
