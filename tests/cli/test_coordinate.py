#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw pause of a job of several processes: together or not at all."""
import threading
import time

from clilib import (FakeJob, Directory, at_rest, back, cudaw, equal, contains, main, obey, orders, say,
                    silent)
from harness import PATIENCE, check, until


def test_all_commit_when_all_are_at_rest():
    directory = Directory()
    stuck, launched, drained = (threading.Event() for _ in range(3))
    took = []

    def ahead(job, connection):
        say(connection, "held stuck 0")
        stuck.set()
        launched.wait(60 * PATIENCE)
        say(connection, "held drained 0")
        drained.set()
        obey(job, connection)

    def behind(job, connection):
        stuck.wait(60 * PATIENCE)
        begin = time.monotonic()
        say(connection, "held drained 0")
        order = next(orders(job, connection))
        took.append(time.monotonic() - begin)
        launched.set()
        drained.wait(60 * PATIENCE)
        say(connection, f"held drained {order.split()[1]}")
        obey(job, connection)

    one = FakeJob(directory, name="train", answers={"hold": ahead})
    two = FakeJob(directory, name="train", answers={"hold": behind})
    result = cudaw("pause", "--timeout", "9", "train")
    equal((result.code, result.err), (0, ""))
    # After 200 ms without a change, if it is held up so long, all make a step.
    first, *between, last = one.requests
    equal((first, last), ("hold 9000", "commit"))
    check(not between or (took[0] >= 0.19 and all(order.startswith("step ") for order in between)),
          f"what came between, after {took[0]} s, is {between}")
    equal(two.requests, ["hold 9000", "step 1", "commit"])
    equal(sorted(result.out.splitlines()), sorted(f"paused {job.pid} (train)" for job in (one, two)))


def test_all_make_a_call_where_nothing_changes():
    directory = Directory()

    def stuck(job, connection):
        say(connection, "held stuck 0")
        equal(next(orders(job, connection)), "step 1")
        say(connection, "held drained 1")
        obey(job, connection)

    jobs = [FakeJob(directory, answers={"hold": stuck}) for _ in range(2)]
    equal(cudaw("pause", "abc123").code, 0)
    equal([job.requests for job in jobs], [["hold", "step 1", "commit"]] * 2)


def test_ranks_that_wait_for_others_hear_who_shares_their_gpu():
    directory = Directory()

    def peers(job, connection):
        say(connection, "comms 1:2:5")
        say(connection, "held drained 0")
        obey(job, connection)

    one = FakeJob(directory, answers={"hold": peers})
    two = FakeJob(directory, answers={"hold": peers})
    alone = FakeJob(directory, answers={"hold": peers}, gpu="1 GPU-5678 Simulated GPU")
    without = FakeJob(directory)
    equal(cudaw("pause", "abc123").code, 0)
    equal(one.requests, ["hold", f"beside {two.pid}", "commit"])
    equal(two.requests, ["hold", f"beside {one.pid}", "commit"])
    equal([alone.requests, without.requests], [["hold", "commit"]] * 2)


def test_if_one_can_not_the_others_run_on():
    for end, code, message in [("timeout kernels did not end in time", 5, "kernels did not end"),
                               ("nomem 31 GiB needed", 1, "31 GiB needed"),
                               ("busy another pause is under way", 1, "another pause"),
                               ("denied not yours", 4, "not yours")]:
        directory = Directory()
        bad = FakeJob(directory, name="train", answers={"hold": ["end " + end]})
        good = FakeJob(directory, name="train")
        result = cudaw("pause", "train")
        equal((result.code, result.out), (code, ""))
        contains(result.err, f"cudaw: pause {bad.pid} (train): {message}")
        contains(result.err, f"cudaw: pause {good.pid} (train): it goes on, as not all of its job")
        equal(good.requests[-1], "abort")


def test_one_that_says_nonsense_or_hangs_up_stops_the_others():
    for answer, message, code in [(b"held perhaps 1\n", "malformed answer", 1),
                                  (b"held stuck\n", "malformed answer", 1),
                                  (b"held stuck 0\n", "its program has closed the connection", 5)]:
        directory = Directory()
        bad, good = FakeJob(directory, answers={"hold": answer}), FakeJob(directory)
        result = cudaw("pause", "abc123")
        equal((result.code, result.out), (code, ""))
        contains(result.err, f"cudaw: pause {bad.pid}: {message}")
        equal(good.requests[-1], "abort")


def test_a_failure_after_the_commit_resumes_the_others():
    directory = Directory()
    bad = FakeJob(directory, answers={"pause": ["end failed unmap: error 700"]})
    good = FakeJob(directory)
    result = cudaw("pause", "abc123")
    equal((result.code, result.out), (1, ""))
    contains(result.err, f"cudaw: pause {bad.pid}: unmap: error 700")
    contains(result.err, f"cudaw: pause {good.pid}: it goes on")
    equal((bad.requests, good.requests), (["hold", "commit"], ["hold", "commit", "resume"]))


def test_a_failure_after_the_commit_resumes_the_others_together():
    directory = Directory()
    FakeJob(directory, answers={"pause": ["end failed unmap: error 700"]})
    begun = threading.Event()

    def late(job, connection):
        begun.wait(60 * PATIENCE)
        back(job, connection)

    def early(job, connection):
        say(connection, "held drained 0")
        begun.set()
        obey(job, connection, "resume")

    one, two = FakeJob(directory, answers={"regain": late}), FakeJob(directory, answers={"regain": early})
    result = cudaw("pause", "abc123")
    equal((result.code, result.out), (1, ""))
    for job in (one, two):
        contains(result.err, f"cudaw: pause {job.pid}: it goes on")
        equal(job.requests, ["hold", "commit", "regain", "commit"])


def test_a_failure_after_the_commit_does_not_wait_for_memory():
    directory = Directory()
    FakeJob(directory, answers={"pause": ["end failed unmap: error 700"]})

    def waits(job, connection):
        while not job.over.wait(0.1):
            say(connection, "progress waiting 0 0")

    def holds(job, connection):
        ends = threading.Thread(target=back, args=(job, connection), daemon=True)
        ends.start()
        while ends.is_alive() and len(job.requests) < 4:
            say(connection, "progress ranks 0 0")
            time.sleep(0.1)
        ends.join()

    one, two = FakeJob(directory, answers={"regain": holds}), FakeJob(directory, answers={"regain": waits})
    begin = time.monotonic()
    result = cudaw("pause", "--timeout", "5", "abc123")
    check(time.monotonic() - begin < 40, f"it took {time.monotonic() - begin:.1f} s")
    contains(result.err, f"cudaw: pause {one.pid}: it goes on")
    contains(result.err, f"cudaw: pause {two.pid}: it was paused, waits for GPU memory")
    equal(one.requests[-2:], ["regain", "commit"])


def test_a_failure_leaves_those_paused_that_were():
    """They were to give back the rest of their memory."""
    directory = Directory()
    refuses = FakeJob(directory, state="paused", answers={"hold": ["end unsupported it has a context"]})
    gives = FakeJob(directory, state="paused", answers={"hold": ["note already paused", "end ok"]})
    result = cudaw("pause", "--release", "all", "abc123")
    equal((result.code, result.out), (6, f"paused {gives.pid}: already paused\n"))
    equal(result.err, f"cudaw: pause {refuses.pid}: it has a context\n")
    equal([job.requests for job in (refuses, gives)], [["hold all"]] * 2)


def test_a_failure_after_the_commit_leaves_those_paused_that_were():
    directory = Directory()
    bad = FakeJob(directory, answers={"pause": ["end failed unmap: error 700"]})
    out = [FakeJob(directory, state=state, answers={"hold": ["note already paused", "end ok"]})
           for state in ("paused", "failed")]
    result = cudaw("pause", "abc123")
    equal(result.code, 1)
    contains(result.err, f"cudaw: pause {bad.pid}: unmap: error 700")
    equal([job.requests for job in out], [["hold"]] * 2)


def test_a_silence_after_the_commit_ends():
    directory = Directory()
    bad = FakeJob(directory, answers={"pause": ["end failed unmap: error 700"]})
    mute = FakeJob(directory, answers={"resume": silent})
    result = cudaw("pause", "abc123")
    equal((result.code, result.out, mute.requests), (1, "", ["hold", "commit", "resume"]))
    contains(result.err, f"cudaw: pause {bad.pid}: unmap: error 700")
    contains(result.err, f"cudaw: pause {mute.pid}: no answer; the request may still succeed")


def test_a_failure_lets_a_resume_go_on():
    """Kernels of the one that failed may wait for it. One that is silent would else be left behind."""
    directory = Directory()
    bad = FakeJob(directory, answers={"hold": ["end timeout no"]})
    waits = FakeJob(directory, state="waiting", answers={"hold": ["note already paused", "end ok"],
                                                         "resume": silent})
    mute = FakeJob(directory, state="waiting", answers={"hold": silent, "resume": silent})
    result = cudaw("pause", "--timeout", "0.1", "abc123")
    equal((result.code, result.out), (5, ""))
    contains(result.err, f"cudaw: pause {bad.pid}: no")
    contains(result.err, f"cudaw: pause {waits.pid}: it goes on when process {mute.pid} answers; if that takes 10 s, ")
    # The command does not wait until it has read that.
    until(lambda: len(waits.requests) > 1 and len(mute.requests) > 1, 10, "the jobs are asked to resume")
    contains(result.err, f"cudaw: pause {mute.pid}: no answer")
    equal((bad.requests, waits.requests, mute.requests), (["hold 100"], *[["hold 100", "regain"]] * 2))


def test_a_failure_lets_those_go_on_that_answer():
    directory = Directory()
    FakeJob(directory, answers={"hold": ["end timeout no"]})
    waits = [FakeJob(directory, state="waiting", answers={"hold": ["note already paused", "end ok"], "resume": silent})
             for _ in range(2)]
    result = cudaw("pause", "abc123")
    for job in waits:
        contains(result.err, f"cudaw: pause {job.pid}: it goes on, as not all of its job could be paused")


def test_one_that_is_paused_already_is_at_rest():
    directory = Directory()
    done = FakeJob(directory, answers={"hold": ["note already paused", "end ok"]})
    other = FakeJob(directory)
    result = cudaw("pause", "abc123")
    equal((result.code, result.err), (0, ""))
    contains(result.out, f"paused {done.pid}: already paused\n")
    equal((done.requests, other.requests), (["hold"], ["hold", "commit"]))


def test_jobs_do_not_wait_for_other_jobs():
    directory = Directory()
    bad = FakeJob(directory, answers={"hold": ["end timeout no"]})
    good = FakeJob(directory)
    alone = FakeJob(directory, id="bbbbbb")
    pair = [FakeJob(directory, id="cccccc") for _ in range(2)]
    result = cudaw("pause", "--all")
    equal(result.code, 5)
    equal((bad.requests, good.requests[-1], alone.requests), (["hold"], "abort", ["pause"]))
    equal([job.requests for job in pair], [["hold", "commit"]] * 2)
    equal(sorted(result.out.splitlines()), sorted(f"paused {job.pid}" for job in pair + [alone]))


def test_one_process_of_several_by_its_pid():
    directory = Directory()
    jobs = [FakeJob(directory) for _ in range(2)]
    equal(cudaw("pause", str(jobs[0].pid)).code, 0)
    equal([job.requests for job in jobs], [["pause"], []])


def test_no_wait_waits_for_the_commit():
    directory = Directory()

    def copying(job, connection):
        say(connection, "progress copy 1 7")
        job.silent(connection)

    jobs = [FakeJob(directory, answers={"pause": copying}) for _ in range(2)]
    result = cudaw("pause", "--no-wait", "abc123")
    equal((result.code, sorted(result.out.splitlines())),
       (0, sorted(f"pausing {job.pid}" for job in jobs)))
    equal([job.requests for job in jobs], [["hold", "commit"]] * 2)


def test_what_another_command_has_done_is_not_undone():
    """It has paused the one meanwhile, and is about to pause the other."""
    directory = Directory()
    paused = FakeJob(directory, answers={"hold": ["note already paused", "end ok"]})
    busy = FakeJob(directory, answers={"hold": ["end busy a pause is under way"]})
    result = cudaw("pause", "abc123")
    equal((result.code, result.out), (1, f"paused {paused.pid}: already paused\n"))
    contains(result.err, f"pause {busy.pid}: a pause is under way")
    equal((paused.requests, busy.requests), (["hold"], ["hold"]))


def test_no_wait_reports_a_process_that_does_not_answer():
    directory = Directory()
    deaf, _ = FakeJob(directory, answers={"hold": silent}), FakeJob(directory)
    result = cudaw("pause", "--no-wait", "--timeout", "0.1", "abc123")
    equal((result.code, result.out), (5, ""))
    contains(result.err, f"pause {deaf.pid}: no answer")


def test_a_part_that_is_not_heard_from():
    """What it was started with tells that it is of the job, whose others are not asked then."""
    directory = Directory()
    deaf = FakeJob(directory, env={"CUDAW_JOB": "abc123"}, answers={"status": silent})
    part, other = FakeJob(directory, name="train"), FakeJob(directory, id="bbbbbb")
    for verb, target in (("pause", "abc123"), ("resume", "train"), ("pause", "--all")):
        result = cudaw(verb, target)
        equal(result.code, 5)
        equal(result.err, f"cudaw: {verb} abc123: its process {deaf.pid}: no answer\n")
        equal((deaf.requests, part.requests), ([], []))
    equal(other.requests, ["pause"])
    equal(cudaw("pause", str(part.pid)).code, 0)


def test_they_resume_when_all_can():
    directory = Directory()
    jobs = [FakeJob(directory) for _ in range(2)]
    equal(cudaw("resume", "abc123").code, 0)
    equal([job.requests for job in jobs], [["regain", "commit"]] * 2)


def test_none_resumes_where_one_can_not():
    directory = Directory()
    good = FakeJob(directory)
    bad = FakeJob(directory, answers={"regain": ["end timeout no memory came free"]})
    done = cudaw("resume", "abc123")
    equal(done.code, 5)
    contains(done.err, f"resume {bad.pid}: no memory came free")
    contains(done.err, f"resume {good.pid}: it stays paused")
    equal((bad.requests, good.requests), (["regain"], ["regain", "abort"]))


def test_one_that_waits_for_its_turn_stops_no_others():
    directory = Directory()
    turn = "end turn it runs as soon as it has room"
    one, two = (FakeJob(directory, answers={"regain": [turn]}) for _ in range(2))
    done = cudaw("resume", "--no-wait", "abc123")
    equal(done.code, 0)
    for job in (one, two):
        contains(done.out, f"begun {job.pid}: it runs as soon as it has room")
        equal(job.requests, ["regain"])
    other = FakeJob(directory)
    done = cudaw("resume", "abc123")
    equal((done.code, other.requests), (0, ["regain", "commit"]))
    for job in (one, two):
        equal(job.requests, ["regain", "regain", "resume"])


AGAIN = "end again it comes to rest for a turn"


def times(count):
    """Answers a request with "again" so many times, and then as ever."""
    def answer(job, connection):
        if sum(request == "hold" for request in job.requests) <= count:
            say(connection, AGAIN)
        else:
            at_rest(job, connection)
    return answer


def test_a_pause_that_is_possible_soon_is_asked_for_again():
    directory = Directory()
    late, other = FakeJob(directory, answers={"hold": times(2)}), FakeJob(directory)
    done = cudaw("pause", "abc123")
    equal((done.code, done.err), (0, ""))
    equal([sum(request.startswith("hold") for request in job.requests) for job in (late, other)], [3, 3])
    equal(late.requests[-1], "commit")


def test_it_is_asked_for_until_the_time_is_up():
    directory = Directory()
    late, other = FakeJob(directory, answers={"hold": [AGAIN]}), FakeJob(directory)
    done = cudaw("pause", "--timeout", "0.1", "abc123")
    equal(done.code, 1)
    contains(done.err, f"pause {late.pid}: it comes to rest for a turn")
    contains(done.err, f"pause {other.pid}: it goes on")
    equal(cudaw("pause", "--no-wait", "abc123").code, 1)


def test_it_is_not_asked_for_where_another_process_fails():
    directory = Directory()
    late, bad = (FakeJob(directory, answers={"hold": [end]}) for end in (AGAIN, "end nomem too little"))
    done = cudaw("pause", "abc123")
    equal((done.code, late.requests, bad.requests), (1, ["hold"], ["hold"]))
    contains(done.err, f"pause {bad.pid}: too little")


def test_a_resume_that_nobody_waits_for_has_no_phases():
    directory = Directory()
    jobs = [FakeJob(directory) for _ in range(2)]
    equal(cudaw("resume", "--no-wait", "abc123").code, 0)
    equal([job.requests for job in jobs], [["regain"]] * 2)


if __name__ == "__main__":
    main()
