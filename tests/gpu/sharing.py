#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes that share GPU memory by exported descriptors are paused together: nothing of it stays on
the GPU, and after the resume all of them see the same memory at the same addresses, word by word. On
one GPU, and on two if the machine has them.
"""
import shutil
import signal
import statistics
import time

from gpulib import (Job, check, cudaw, cudaw_ok, equal, figure, gpu_count, jobs, main, process_used,
                    same_lines, seeded)

STEPS, STEP_MS, STILL, PAUSES = 120, 10, 0.1, 5
MIB, OBJECTS, BALLAST = 2, 48, 320
UNSUPPORTED = 6     # the exit code of cudaw pause
FOREVER = 100000000
MANY = 60000        # lines that a pipe holds
native = {}


def arguments(*extra, steps=None, ranks=2):
    return ("--ranks", ranks, "--objects", OBJECTS, "--mib", MIB, "--steps", steps or STEPS,
            "--step-ms", STEP_MS, *extra)


def rows(name="sharing"):
    return [row for row in jobs().values() if row["name"] == name]


def states():
    return {row["state"] for row in rows()}


def started(*extra, ranks=2, env=None, steps=FOREVER):
    job = Job("sharing", *arguments(*extra, steps=steps, ranks=ranks), name="sharing", env=env)
    job.until(lambda: len(rows()) == ranks, 60, "all ranks use CUDA")
    job.wait_steps(2)
    return job


def pause(release):
    said = cudaw_ok("pause", "--release", release, "sharing")
    found = rows()
    equal({row["state"] for row in found}, {"paused"}, "the states after cudaw pause")
    check("on the GPU" not in said or release == "memory", f"cudaw pause says {said!r}")
    used = {row["pid"]: process_used(row["pid"]) for row in found if release == "all"}
    check(not any(used.values()), f"MiB that are still used, by process: {used}")


def resume():
    """Returns the rows of cudaw ps after it."""
    cudaw_ok("resume", "sharing")
    found = rows()
    equal({row["state"] for row in found}, {"running"}, "the states after cudaw resume")
    return found


def verified(job):
    check("every word right" in job.finish(), "not every rank verified its memory")


def shared(what, release, *extra, ranks=2):
    """Paused at random moments, it prints what the native run prints."""
    def case():
        job = Job("sharing", *arguments(*extra, ranks=ranks), name="sharing")
        job.until(lambda: len(rows()) == ranks, 60, "all ranks use CUDA")
        rng, times = seeded(), []
        for step in sorted(rng.sample(range(1, STEPS * 3 // 5), PAUSES)):
            job.wait_steps(step)
            time.sleep(rng.uniform(0, 0.02))
            pause(release)
            job.check_still(STILL)
            for row in resume():
                phases = row["resume_phases"]
                times += [phases["imports"] if "sharing" in phases else 0]   # host memory stays
        figure(f"imports_{what}_{release}", statistics.median(times), "ms")
        key = (what, ranks)
        if key not in native:
            native[key] = Job("sharing", *arguments(*extra, ranks=ranks), mode="native").result()
        same_lines(job.result(), native[key], f"after {PAUSES} pauses")
    return f"{what}, {release}", case


def all_memory_is_carried():
    job = started()
    equal({row["carried"] for row in rows()}, {OBJECTS * MIB << 20}, "the bytes that are carried")
    verified(job)


def memory_of_descriptors_is_carried_until_they_are_closed():
    """What each rank has freed is kept by the descriptor that the other one has; what it had before is free."""
    job = Job("sharing", *arguments("--parcels", 1, "--each-line", 1, steps=FOREVER), name="sharing")
    for steps in (3, 6):
        job.make_steps(steps)
        job.until(lambda: {row["carried"] for row in rows()} == {(OBJECTS + 1) * MIB << 20}, 30,
                  "the bytes that are carried are those of its own memory, and of one descriptor")
        pause("all")
        resume()
    job.process.stdin.write("\n" * MANY)
    verified(job)


def a_signal_to_one_is_refused():
    job = started()
    job.send(10)
    job.until(lambda: any("pauses all of them" in (row["reason"] or "") for row in rows()), 30,
              "the reason says so")
    equal(states(), {"running"}, "the states after it")
    verified(job)


def what_the_exporter_freed_is_refused_by_name(call, *extra):
    def case():
        job = started(*extra)
        job.wait_steps(6)
        done = cudaw("pause", "--release", "all", "sharing")
        equal(done.returncode, UNSUPPORTED, "the exit code of cudaw pause")
        check(f"{OBJECTS} allocations imported ({call})" in done.stderr,
              f"cudaw pause says {done.stderr!r}")
        equal(states(), {"running"}, "the states after it")
        pause("memory")
        resume()
        verified(job)
    kind = ", beside a pool" if "--pooled" in extra else ""
    return f"what the exporter freed is refused by name, {call}{kind}", case


def what_is_about_to_be_closed_is_waited_for():
    """As when ranks destroy a communicator: the exporters have freed what the importers close next."""
    job = started("--frees", 3, "--closes", 10)
    job.wait_steps(5)
    pause("all")
    check(job.steps() >= 10, f"the job is paused in step {job.steps()}")
    resume()
    job.wait_steps(job.steps() + 2)
    verified(job)


def the_rest_is_released_later():
    job = started("--ipc", 1)
    for _ in range(2):
        pause("memory")
        pause("all")
        resume()
        job.wait_steps(job.steps() + 2)
    verified(job)


def small_allocations_are_shared_after_a_resume():
    """A resume maps many small allocations at once, and memory of one such mapping is shared then."""
    for release in ("memory", "all"):
        # It makes a step for each line that it gets.
        job = Job("sharing", *arguments("--ipc", 1, "--kib", 300, "--ballast", BALLAST, "--late", 4,
                                        "--each-line", 1, steps=FOREVER), name="sharing")
        job.process.stdin.write("\n" * 2)
        job.wait_steps(2)
        pause("memory")
        resume()
        job.process.stdin.write("\n" * MANY)
        job.wait_steps(6)
        for _ in range(2):
            pause(release)
            resume()
            job.wait_steps(job.steps() + 2)
        verified(job)


def an_exporter_that_ended_is_not_waited_for():
    job = Job("sharing", *arguments("--leaves", 3, ranks=3, steps=FOREVER), name="sharing")
    job.wait_steps(6)
    for release in ("all", "memory"):
        pause(release)
        resume()
    verified(job)


def host_memory_is_paused_alone():
    """It stays where it is: the other rank, which is another job here, runs on, and waits for this one."""
    job = started("--host", 1, env={"SHARING_JOB": "b12345"})
    own = job.status()["id"]
    other = next(row["pid"] for row in rows() if row["pid"] != job.pid)
    for paused, runs in ((["b12345"], [own]), ([own], ["b12345"]), ([own, "b12345"], [])):
        pids = [job.pid if who == own else other for who in paused]
        cudaw_ok("pause", "--release", "all", *paused)
        equal([row["state"] for row in rows() if row["pid"] in pids], ["paused"] * len(pids), "the states of those")
        check(not any(process_used(pid) for pid in pids), "one of them has GPU memory")
        equal([row["state"] for row in rows() if row["pid"] not in pids], ["running"] * len(runs), "those of others")
        cudaw_ok("resume", *paused)
        job.wait_steps(job.steps() + 3)
    job.send(signal.SIGUSR1)
    job.until(lambda: job.state() == "paused", 30, "a signal to one of them pauses it")
    cudaw_ok("resume", own)
    job.wait_steps(job.steps() + 3)
    verified(job)


def host_memory_that_its_exporter_freed_is_carried():
    job = started("--host", 1, "--frees", 3)
    job.wait_steps(6)
    for release in ("all", "memory"):
        pause(release)
        resume()
        job.wait_steps(job.steps() + 3)
    verified(job)


def host_memory_of_the_driver_is_refused_by_name():
    job = started("--host", 1, env={"CUDAW_TO_DRIVER": "exports"})
    done = cudaw("pause", "--release", "all", "sharing")
    equal(done.returncode, UNSUPPORTED, "the exit code of cudaw pause")
    check(f"{OBJECTS} allocations of host memory (cuMemCreate)" in done.stderr, f"cudaw pause says {done.stderr!r}")
    pause("memory")
    resume()
    verified(job)


def descriptors_of_the_driver_are_refused_by_name():
    job = started(env={"CUDAW_TO_DRIVER": "exports"})
    done = cudaw("pause", "--release", "all", "sharing")
    equal(done.returncode, UNSUPPORTED, "the exit code of cudaw pause")
    check(f"{OBJECTS} allocations exported (cuMemExportToShareableHandle)" in done.stderr,
          f"cudaw pause says {done.stderr!r}")
    pause("memory")
    resume()
    verified(job)


def an_import_waits_for_a_paused_exporter():
    """Rank 1 imports while rank 0 waits for stdin, as its only CUDA call after the pause."""
    job = Job("sharing", *arguments("--waits", 1, steps=FOREVER), name="sharing")
    job.wait_line("exported")
    job.until(lambda: len(rows()) == 2, 60, "all ranks use CUDA")
    cudaw_ok("pause", "sharing")
    job.tell()
    time.sleep(0.3)
    equal(job.steps(), 0, "the steps while it is paused")
    cudaw_ok("resume", "sharing")
    job.wait_steps(3)
    pause("all")
    resume()
    verified(job)


CASES = [shared("two processes", release) for release in ("all", "memory")]
CASES += [shared("a ring", release, "--ring", 1, ranks=3) for release in ("all", "memory")]
CASES += [shared("legacy handles", release, "--ipc", 1) for release in ("all", "memory")]
CASES += [shared("small allocations", release, "--ipc", 1, "--kib", 300)
          for release in ("all", "memory")]
CASES += [shared("events", release, "--ipc", 1, "--events", 3) for release in ("all", "memory")]
CASES += [what_the_exporter_freed_is_refused_by_name(*row) for row in (
    ("cuMemImportFromShareableHandle", "--frees", 3),
    ("cuIpcOpenMemHandle", "--frees", 3, "--late", 5, "--ipc", 1),
    ("cuIpcOpenMemHandle", "--frees", 3, "--ipc", 1, "--kib", 300, "--pooled", 1))]
CASES += [shared("their own imports", "all", "--self", 1),
          shared("what a descriptor keeps", "all", "--parcels", 1),
          shared("what a descriptor keeps", "memory", "--parcels", 1, "--bare", 1),
          shared("what its own descriptor keeps", "all", "--self", 1, "--parcels", 1, ranks=1),
          shared("mappings alone", "all", "--bare", 1),
          shared("host memory", "all", "--host", 1),
          shared("host memory", "memory", "--host", 1, "--bare", 1),
          shared("its own host memory", "all", "--host", 1, "--self", 1, "--late", STEPS // 4, ranks=1),
          shared("late exports", "memory", "--late", STEPS // 4)]

if shutil.which("nvidia-smi") and gpu_count() > 1:
    CASES += [shared("two GPUs", release, "--gpus", 2) for release in ("all", "memory")]

main(*CASES, all_memory_is_carried, memory_of_descriptors_is_carried_until_they_are_closed, a_signal_to_one_is_refused,
     what_is_about_to_be_closed_is_waited_for, the_rest_is_released_later,
     small_allocations_are_shared_after_a_resume,
     an_exporter_that_ended_is_not_waited_for,
     host_memory_is_paused_alone, host_memory_that_its_exporter_freed_is_carried,
     host_memory_of_the_driver_is_refused_by_name,
     descriptors_of_the_driver_are_refused_by_name, an_import_waits_for_a_paused_exporter)
