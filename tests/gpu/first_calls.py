#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first driver call after a pause may be any: it waits until the resume, or is answered at once,
and works."""
import time

from gpulib import Job, check, main

# Answered without a look at any device.
NEVER_WAIT = ("error_name", "driver_version", "event_query", "event_destroy", "stream_query",
              "context_set", "context_set_other", "context_push", "context_current", "context_device",
              "primary_state", "capture_mode")


def said(job, what):
    return [line.split()[1] for line in job.lines if line.startswith(what + " ")]


def one_call(job, name):
    job.pause()
    job.tell()
    job.until(lambda: name in said(job, "calling"), 10, f"the job comes to {name}")
    if name in NEVER_WAIT:
        job.until(lambda: name in said(job, "returned"), 10, f"{name} returns while the job is paused")
    else:
        time.sleep(0.03)
        check(name not in said(job, "returned"), f"{name} did not wait")
    job.resume()
    job.until(lambda: name in said(job, "returned"), 20, f"{name} returns after the resume")


def first_calls(release, **env):
    job = Job("first_calls", env={"CUDAW_RELEASE": release, **env})
    done = 0
    while True:
        job.until(lambda: len(said(job, "ready")) > done or
                  "first_calls: every word right" in job.lines, 30, "the next call is ready")
        if len(said(job, "ready")) == done:
            break
        one_call(job, said(job, "ready")[done])
        done += 1
    job.tell()
    job.result()
    check(done >= 40, f"only {done} calls were made")


def after_a_release_of_the_memory():
    first_calls("memory")


def after_a_release_of_the_whole_gpu():
    first_calls("all")


main(after_a_release_of_the_memory, after_a_release_of_the_whole_gpu)
