#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pauses in the midst of what a program does: threads, several devices and contexts, an open
capture; and what many of them leave behind.
"""
import os
import time

from simlib import (HELD, SANITIZED, counted, errors_of_cudaw, gpus_used, held_back, hold, let_go, not_by_tsan,
                    paused_and_resumed, process_used, shared)
from gpulib import Job, check, cudaw, cudaw_ok, equal, main, same_lines, seeded
from leaks import check_no_leak, settled

ENDLESS = ("--steps", 100000000)


def soak(cycles, *args, **env):
    rng = seeded()
    job = Job("soak", *args, *ENDLESS, env=env)
    job.wait_steps(5)
    for i in range(cycles):
        by = ("signal", "command")[i % 2]
        time.sleep(rng.uniform(0, 0.02))
        job.pause(by)
        if i % 10 == 0:
            job.check_still(0.1)
        job.resume(by)
    job.wait_steps(job.steps() + 5)
    check("every byte right" in job.finish(), "the job did not verify its memory")
    equal(errors_of_cudaw(job), [], "what cudaw says on stderr")


def threads_through_20_pauses():
    soak(20, "--threads", 4)


def threads_in_several_contexts():
    soak(10, "--threads", 6, "--contexts", 3)


def several_devices():
    soak(10, "--threads", 4, "--devices", 2, "--contexts", 2, CUDAW_SIM_DEVICES="2")


def only_the_memory_is_released():
    soak(10, "--threads", 4, CUDAW_RELEASE="memory")


def each_device_is_given_back():
    devices = {"CUDAW_SIM_DEVICES": "2", "CUDAW_SIM_SHARED": os.environ["CUDAW_SIM_SHARED"] + "2"}
    job = Job("soak", "--devices", 2, *ENDLESS, env=devices)
    job.wait_steps(20)
    used = gpus_used(devices["CUDAW_SIM_SHARED"])
    check(len(used) == 2 and all(used), f"the running job uses {used} bytes")
    equal(len(job.status()["gpu"]), 2, "the number of GPUs in cudaw ps")
    job.pause()
    equal(gpus_used(devices["CUDAW_SIM_SHARED"]), [0, 0], "the bytes in use while paused")
    job.resume()
    check("every byte right" in job.finish(), "the job did not verify its memory")


def while_a_capture_is_open():
    args = ("--steps", 12, "--capture-ms", 150)
    native = Job("capture", *args, mode="native").result()
    job = Job("capture", *args)
    for captures, by in ((2, "command"), (5, "signal"), (8, "command")):
        job.until(lambda n=captures: job.lines.count("capturing") >= n, 30, "a capture is open")
        job.pause(by)
        # The pause let the capture end; the graph was launched before it, or is after it.
        check(job.steps() >= captures - 1, "the pause came in the midst of a step")
        job.check_still(0.3)
        job.resume(by)
    same_lines(job.result(), native, "after pauses during captures")


def a_capture_that_does_not_end():
    """The pause gives up in time, and the capture is not broken by it."""
    job = Job("capture", "--steps", 2, "--capture-line", 1)
    job.wait_line("capturing")
    done = cudaw("pause", "--timeout", 1, job.pid)
    equal(done.returncode, 5, "the exit code of cudaw pause --timeout 1")
    check("capture" in done.stderr, f"stderr does not say why: {done.stderr!r}")
    equal(job.state(), "running", "the state after it")
    check("every word right" in job.result(), "the capture was broken")


def captures_that_end_with_their_owner():
    """A pause does not wait for the capture of a context or of a thread that is gone."""
    for case in ("context-gone", "thread-gone"):
        job = Job("frees", case)
        job.wait_line("holding")
        paused_and_resumed(job)
        job.tell()
        check("right" in job.result(), f"frees {case}")


def each_thread_has_a_stream_of_its_own():
    """The end of one thread's capture of CU_STREAM_PER_THREAD is not that of another's."""
    job = Job("frees", "two-threads")
    job.wait_line("holding")
    done = cudaw("pause", "--timeout", 1, job.pid)
    equal(done.returncode, 5, "the exit code of cudaw pause --timeout 1")
    job.tell()
    check("right" in job.result(), "the capture was broken")


def ordered_frees_are_asked_about_a_few_at_a_time():
    printed, made = counted("frees", "ordered-many")
    check("right" in printed, "frees")
    asked = made["cuEventQuery"]
    check(asked < 30000, f"cuEventQuery() was called {asked} times for 1000 allocations")


def ordered_frees_pass_apart_from_others():
    for case in "ordered-behind", "ordered-between":
        check("right" in Job("frees", case).result(), f"frees {case}")


def a_pool_gives_a_stream_what_it_has_freed():
    check("right" in Job("frees", "ordered-alone").result(), "frees ordered-alone")


def frees_for_which_there_are_no_events():
    for count in range(1, 5):
        job = Job("frees", "ordered-eventless", env={"CUDAW_SIM_FAULT": f"cuEventCreate:{count}:2"})
        check("right" in job.result(), f"frees ordered-eventless, fault {count}")
    for count in range(1, 3):
        job = Job("frees", "ordered-eventless-end", env={"CUDAW_SIM_FAULT": f"cuEventCreate:{count}:2"})
        check("right" in job.result(), f"frees ordered-eventless-end, fault {count}")


def frees_that_cannot_wait_are_put_off():
    """The second small allocation is the fence, after the one that is made ahead."""
    for name in "full-busy", "full-then-busy":
        job = Job("frees", name, env={"CUDAW_SIM_FAULT": "cuMemAlloc_v2:2:2"})
        check("right" in job.result(), f"frees {name}")


def memory_of_ordered_frees_goes_back():
    """To other processes: behind a synchronisation, by a trim, and in a pause, whose resume needs no room for it."""
    deeds = (("ordered-synchronized", lambda job: None), ("ordered-idle", lambda job: cudaw_ok("trim", job.pid)),
             ("ordered-idle", paused_and_resumed))
    for case, deed in deeds:
        job = Job("frees", case)
        job.wait_line("holding")
        if case == "ordered-idle":
            check(process_used(job.pid) >= 512, "the memory went back before anybody asked")
        deed(job)
        check(process_used(job.pid) < 512, f"{case}: {process_used(job.pid)} MiB are in use")
        job.tell()
        check("right" in job.result(), f"frees {case}")


def beside_a_call(call, after, program, *options, **env):
    """A @call of cudaw's, behind @after of them, is held from the first line of the program to its third."""
    job = Job(program, *options, env={**HELD, **env, "CUDAW_SIM_HELD_CALL": call})
    job.wait_line("holding")
    hold("call", after)
    job.tell()
    job.until(lambda: held_back("call"), 30, f"{call} waits")
    job.tell()
    job.until(lambda: job.lines.count("holding") == 3, 30, f"the program goes on beside {call}")
    let_go("call")
    job.tell()
    check("right" in job.result(), f"{program} {options}")
    return job


def a_first_capture_begins_beside_a_question():
    beside_a_call("cuEventQuery", 0, "frees", "ordered-captured-first")


def memory_of_a_dmabuf_serves_nobody_else():
    check("right" in Job("frees", "dmabuf").result(), "frees dmabuf")


def memory_of_a_descriptor_that_is_closed_serves_allocations():
    for env in {}, {"CUDAW_MEM": "64M"}:
        check("right" in Job("frees", "descriptor-closed", env=env).result(), f"frees descriptor-closed, {env}")


def freed_memory_is_there_for_variables():
    job = Job("frees", "variable", env={"CUDAW_SIM_FAULT": "cuModuleGetGlobal_v2:1:2"})
    check("right" in job.result(), "frees variable")


def freed_memory_is_there_for_changes():
    _, made = counted("frees", "changes")
    for call in "cuMemMap", "cuMemSetAccess", "cuGraphExecUpdate_v2":
        job = Job("frees", "changes", env={"CUDAW_SIM_FAULT": f"{call}:{made[call]}:2"})
        check("right" in job.result(), f"frees changes, {call}")


def beside_the_end_of_a_context(call, after, *options):
    """GPU 1 is used while the end of GPU 0's primary context waits in a @call of cudaw's, behind @after of them."""
    return beside_a_call(call, after, "primary_ends", *options, CUDAW_SIM_DEVICES="2")


def a_stream_has_the_handle_of_one_that_ends_with_its_context():
    # The last of these calls asks whether the context has ended.
    job = beside_the_end_of_a_context("cuDevicePrimaryCtxGetState", 2, "--stream", 1)
    check(SANITIZED or "no handle twice" not in job.lines, "the driver gave no handle twice")


def memory_has_the_addresses_of_what_ends_with_its_context():
    for freed in 0, 1:
        beside_the_end_of_a_context("cuMemUnmap", 1, "--freed", freed)


def left_to_driver(job):
    return job.status()["left_to_driver"]


def memory_that_is_left_to_the_driver():
    for value, expected in (("memory", []), ("exports,memory", []), ("exports", []),
                            ("memori", ["memori: expected some of memory, multicast, fabric or exports"])):
        job = Job("hold", env={"CUDAW_TO_DRIVER": value})
        job.wait_line("holding")
        equal(left_to_driver(job) > 0, "memory" in value, f"memory is left to the driver with {value}")
        paused_and_resumed(job)
        job.tell()
        check("every byte right" in job.result(), "the job did not verify its memory")
        found = errors_of_cudaw(job)
        equal(len(found), len(expected), f"the number of messages in {found}")
        check(all(text in line for text, line in zip(expected, found)), f"cudaw says {found}")


def a_release_that_fails_is_not_counted():
    job = Job("frees", "release", env={"CUDAW_SIM_FAULT": "cuMemRelease:1:1"})
    job.wait_line("holding")
    equal(job.status()["carried"], 2 << 20, "the carried bytes")
    job.tell()
    check("right" in job.result(), "frees release")


def a_fork_while_the_driver_is_bound():
    equal(Job("fork_binding").result(), "the child could use CUDA", "what the program says")


def nothing_leaks():
    """A job that makes no call itself is the same after 5 pauses and after 50 more."""
    job = Job("hold")
    job.wait_line("holding")
    paused_and_resumed(job, 5)
    before = settled(job.pid)
    paused_and_resumed(job, 50)
    # A mapping or 0.2 MiB of memory in each pause would show, and a copy of the job's 16 MiB in some.
    check_no_leak(before, settled(job.pid, before), 400, 8, counted_by_us=not SANITIZED)
    job.tell()
    check("every byte right" in job.result(), "the job did not verify its memory")


main(threads_through_20_pauses, threads_in_several_contexts, several_devices,
     only_the_memory_is_released, each_device_is_given_back, while_a_capture_is_open,
     a_capture_that_does_not_end, captures_that_end_with_their_owner,
     each_thread_has_a_stream_of_its_own, a_stream_has_the_handle_of_one_that_ends_with_its_context,
     memory_has_the_addresses_of_what_ends_with_its_context, memory_that_is_left_to_the_driver,
     a_release_that_fails_is_not_counted,
     not_by_tsan(a_fork_while_the_driver_is_bound),
     ordered_frees_are_asked_about_a_few_at_a_time, ordered_frees_pass_apart_from_others,
     a_pool_gives_a_stream_what_it_has_freed, frees_for_which_there_are_no_events,
     frees_that_cannot_wait_are_put_off, a_first_capture_begins_beside_a_question, memory_of_ordered_frees_goes_back, memory_of_a_dmabuf_serves_nobody_else,
     memory_of_a_descriptor_that_is_closed_serves_allocations, freed_memory_is_there_for_variables,
     freed_memory_is_there_for_changes, nothing_leaks, *shared("frees.py"))
