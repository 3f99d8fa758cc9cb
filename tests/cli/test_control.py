#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw pause and resume: which processes are meant, outcomes, exit codes, progress."""
import os
import re
import shutil
import signal
import subprocess
import threading
import time

from clilib import (BUILD, CUDAW, LIMIT_S, PATIENCE, Directory, FakeJob, Skip, contains, cudaw, dead_pid,
                    ends_with_us, equal, installed_copy, live_pid, main, open_terminal, say, scratch, silent, state, stop,
                    until)

GIB = 1 << 30


def moves(_job, connection):
    """The answer to a pause or resume that copies 8 GiB, in an instant."""
    for done in (0, 4, 8):
        say(connection, f"progress copy {done * GIB} {8 * GIB}")
    say(connection, "pause_us 250125", f"pause_bytes {8 * GIB}", "resume_us 2000000",
        f"resume_bytes {8 * GIB}", "end ok")


def test_pause_and_resume_by_each_address():
    for verb, figures in [("pause", "8.0 GiB in 250 ms, 34.3 GB/s"),
                          ("resume", "8.0 GiB in 2.0 s, 4.3 GB/s")]:
        for address in [lambda job: "abc123", lambda job: "train", lambda job: str(job.pid)]:
            job = FakeJob(Directory(), name="train", answers={verb: moves})
            result = cudaw(verb, address(job))
            equal((result.code, result.err), (0, ""))
            equal(result.out, f"{verb}d {job.pid} (train): {figures}\n")
            equal(job.requests, [verb])


def test_a_job_without_name():
    job = FakeJob(Directory())
    equal(cudaw("pause", "abc123").out, f"paused {job.pid}\n")


def test_timeout_is_passed_on():
    job = FakeJob(Directory())
    for given, sent in [("2", "2000"), ("0.25", "250"), ("1e3", "1000000"), ("5s", "5000")]:
        equal(cudaw("pause", "--timeout", given, "abc123").code, 0)
        equal(job.requests.pop(), f"pause {sent}")


def test_notes():
    FakeJob(Directory(), pause_us=9, pause_bytes=9, answers={
        "pause": ["note already paused", "end ok"]})
    # The figures in status are of an earlier pause.
    assert re.fullmatch(r"paused \d+: already paused\n", cudaw("pause", "abc123").out)
    FakeJob(Directory(), answers={"resume": ["note the context is new", "resume_us 1000000",
                                          f"resume_bytes {GIB}", "end ok"]})
    contains(cudaw("resume", "abc123").out, ": 1.0 GiB in 1.0 s, 1.1 GB/s; the context is new\n")


def test_all_processes_of_a_job_at_once():
    directory = Directory()
    together = threading.Barrier(4)

    def wait_for_others(_job, connection):
        together.wait(10 * PATIENCE)
        say(connection, "end ok")

    jobs = [FakeJob(directory, name="train", answers={"pause": wait_for_others}) for _ in range(4)]
    other = FakeJob(directory, id="fff000", name="other")
    result = cudaw("pause", "train")
    equal((result.code, result.err), (0, ""))
    equal(sorted(result.out.splitlines()), sorted(f"paused {job.pid} (train)" for job in jobs))
    equal(other.requests, [])


def test_several_targets_and_no_process_twice():
    directory = Directory()
    one, two = FakeJob(directory, name="one"), FakeJob(directory, id="bbbbbb", name="two")
    third = FakeJob(directory, id="cccccc", name="third")
    equal(cudaw("pause", "one", "abc123", str(one.pid), "bbbbbb").code, 0)
    equal((one.requests, two.requests, third.requests), (["pause"], ["pause"], []))


def test_all():
    directory = Directory()
    jobs = [FakeJob(directory, id=f"aaaaa{i}") for i in range(3)]
    equal(cudaw("resume", "--all").code, 0)
    equal([job.requests for job in jobs], [["resume"]] * 3)
    result = cudaw("resume", "--all", env={"CUDAW_RUNTIME_DIR": Directory().path})
    equal((result.code, result.out, result.err), (0, "", "cudaw: there are no jobs\n"))


def test_a_number_is_a_pid_first():
    directory = Directory()
    job = FakeJob(directory)
    named = FakeJob(directory, id="bbbbbb", name=str(job.pid))
    equal(cudaw("pause", str(job.pid)).code, 0)
    equal((job.requests, named.requests), (["pause"], []))
    # A number that is no such PID may be a name.
    numbered = FakeJob(directory, id="123456", name="7")
    equal(cudaw("pause", "7").code, 0)
    equal(cudaw("pause", "123456").code, 0)
    equal(numbered.requests, ["pause", "pause"])


def test_an_id_goes_before_a_name():
    directory = Directory()
    by_id = FakeJob(directory)
    by_name = FakeJob(directory, id="bbbbbb", name="abc123")
    equal(cudaw("pause", "abc123").code, 0)
    equal((by_id.requests, by_name.requests), (["pause"], []))


def test_the_id_of_a_job_without_an_answer_is_not_the_name_of_another():
    directory = Directory()
    by_id = FakeJob(directory, answers={"status": silent}, env={"CUDAW_JOB": "abc123"})
    by_name = FakeJob(directory, id="bbbbbb", name="abc123")
    equal(cudaw("pause", "abc123").code, 3)
    equal((by_id.requests, by_name.requests), ([], []))


def test_a_name_of_two_jobs_lists_their_ids():
    directory = Directory()
    jobs = [FakeJob(directory, id=name, name="train") for name in ("aaaaaa", "bbbbbb", "bbbbbb")]
    result = cudaw("pause", "train")
    equal((result.code, result.out), (2, ""))
    assert re.fullmatch("cudaw: 'train' is the name of 2 jobs: "
                        "(aaaaaa, bbbbbb|bbbbbb, aaaaaa); give an ID\n", result.err), result.err
    equal([job.requests for job in jobs], [[], [], []])
    equal(cudaw("pause", "aaaaaa").code, 0)


def test_a_name_of_two_jobs_of_which_one_is_stopped():
    """Nothing is sent to the one that answers, and the other is not continued."""
    directory = Directory()
    stopped = FakeJob(directory, answers={"status": silent}, env={"CUDAW_JOB": "aaaaaa", "CUDAW_NAME": "train"})
    jobs = [FakeJob(directory, id="bbbbbb", name="train"), FakeJob(directory, id="cccccc", name="third")]
    stop(stopped.pid)
    for args in (["pause", "train"], ["pause", "--dry-run", "train"], ["resume", "train"], ["resume", "third", "train"],
                 ["trim", "train"], ["wait", "train", "--for", "freed"],
                 *(["snapshot", *options, "train", scratch()] for options in ([], ["--stop"], ["--gpu-only"]))):
        result = cudaw(*args)
        equal((args, result.code, result.out), (args, 2, ""))
        assert re.fullmatch("cudaw: 'train' is the name of 2 jobs: "
                            "(aaaaaa, bbbbbb|bbbbbb, aaaaaa); give an ID\n", result.err), result.err
        equal((args, state(stopped.pid), [job.requests for job in jobs]), (args, "T", [[], []]))
    equal((cudaw("pause", "bbbbbb").code, jobs[0].requests), (0, ["pause"]))


def test_an_id_that_begins_another_one():
    """A job that lies about its ID is not taken for a process of the other one."""
    directory = Directory()
    jobs = [FakeJob(directory, id=name, name="train") for name in ("abc123", "abc", "abc123")]
    equal(cudaw("pause", "train").code, 2)
    equal([job.requests for job in jobs], [[], [], []])


def test_the_jobs_on_a_gpu():
    directory = Directory()
    first = FakeJob(directory, id="aaaaaa", gpu="0 GPU-aa11 A")
    # A job is not paused in part.
    part = FakeJob(directory, id="aaaaaa", gpu="0 GPU-bb22 B")
    other = FakeJob(directory, id="bbbbbb", gpu=["0 GPU-bb22 B", "1 GPU-cc33 C"])
    without = FakeJob(directory, id="cccccc", gpu=None)
    jobs = (first, part, other, without)
    for gpu, meant in [("GPU-aa11", (first, part)), ("gpu-AA", (first, part)),
                       ("GPU-bb22", (first, part, other)), ("GPU-cc", (other,))]:
        result = cudaw("resume", "--dry-run", "--gpu", gpu)
        equal((gpu, result.code, result.out, result.err),
              (gpu, 0, "".join(f"would resume {job.pid}\n" for job in jobs if job in meant), ""))
    equal([job.requests for job in jobs], [[], [], [], []])
    result = cudaw("pause", "--gpu", "GPU-dd44")
    equal((result.code, result.out), (6, ""))
    contains(result.err, "--gpu GPU-dd44: no job uses it, and without NVML (libnvidia-ml.so.1) nobody knows")
    equal(cudaw("pause", "--all", "--gpu", "GPU-cc33").code, 0)
    equal([job.requests for job in jobs], [[], [], ["pause"], []])


def test_a_gpu_by_its_number():
    """As NVML counts it, whatever the job does."""
    directory = Directory()
    job = FakeJob(directory, gpu="0 GPU-one A")
    FakeJob(directory, id="bbbbbb", gpu="1 GPU-two A")
    libraries = scratch()
    shutil.copy(f"{BUILD}/tests/preload/nvml.so", f"{libraries}/libnvidia-ml.so.1")
    env = {"LD_LIBRARY_PATH": libraries, "TEST_NVML_UUID": "GPU-one"}
    equal(cudaw("pause", "--gpu", "1", "--dry-run", env=env).out, f"would pause {job.pid}\n")
    for number in ("2", "4294967295"):
        result = cudaw("pause", "--gpu", number, env=env)
        equal((number, result.code, result.out), (number, 6, ""))
        contains(result.err, f"--gpu {number}: NVML (libnvidia-ml.so.1) is missing or has no GPU")


def test_a_gpu_that_is_not_there():
    """A script that drains a GPU takes 0 for: its jobs are paused."""
    Directory()
    libraries = scratch()
    shutil.copy(f"{BUILD}/tests/preload/nvml.so", f"{libraries}/libnvidia-ml.so.1")
    there, gone = "GPU-11111111-2222-3333-4444-555555555555", "GPU-11111111-2222-3333-4444-666666666666"
    env = {"LD_LIBRARY_PATH": libraries, "TEST_NVML_COUNT": "2", "TEST_NVML_UUID": there}
    for gpu in (there, "gpu-1111"):
        result = cudaw("pause", "--gpu", gpu, env=env)
        equal((gpu, result.code, result.err), (gpu, 0, "cudaw: there are no such jobs\n"))
    for args in (["pause", "--gpu", gone], ["resume", "--dry-run", "--gpu", gone], ["trim", "--gpu", "GPU-2"],
                 ["turns", "drain", gone]):
        result = cudaw(*args, env=env)
        equal((args, result.code, result.out), (args, 6, ""))
        contains(result.err, f"{args[-1]}: this machine has no such GPU\n")


def test_jobs_of_another_user_are_roots():
    command = installed_copy(scratch())
    user = 12345 if os.getuid() == 0 else None
    for verb in ("pause", "resume"):
        result = cudaw(verb, "--user", "root", user=user, command=command, env={"CUDAW_RUNTIME_DIR": None})
        equal((result.code, result.out), (4, ""))
        equal(result.err, "cudaw: --user root: only root sees the jobs of other users\n")
    own = user or os.getuid()
    equal(cudaw("pause", "--user", str(own), user=user, command=command, env={"CUDAW_RUNTIME_DIR": None}).code, 0)


def test_the_jobs_of_a_user():
    if os.getuid() != 0:
        raise Skip("needs root")
    directory = Directory()
    os.chmod(directory.path, 0o777)
    mine = FakeJob(directory, id="aaaaaa")
    theirs = FakeJob(directory, id="bbbbbb", user=2147000001)
    os.chmod(directory.path, 0o700)
    for user, job in [("root", mine), ("0", mine), ("2147000001", theirs)]:
        equal(cudaw("pause", "--dry-run", "--user", user).out, f"would pause {job.pid}\n")
    # Another user's stopped job is not continued.
    stop(mine.pid)
    equal(cudaw("resume", "--user", "2147000001").code, 0)
    equal(state(mine.pid), "T")
    equal(cudaw("resume", "--dry-run", "--user", "0").out, f"would resume {mine.pid}\n")
    equal(state(mine.pid), "T")
    equal((mine.requests, theirs.requests), ([], ["resume"]))


def test_a_job_that_does_not_say_its_gpus():
    directory = Directory()
    deaf = FakeJob(directory, answers={"status": silent})
    job = FakeJob(directory, id="bbbbbb", gpu="0 GPU-aa11 A")
    result = cudaw("pause", "--gpu", "GPU-aa11")
    equal((result.code, result.out), (5, f"paused {job.pid}\n"))
    equal(result.err, f"cudaw: pause {deaf.pid}: its GPUs are unknown: no answer\n")


def test_what_narrows_is_checked():
    FakeJob(Directory())
    for args, message in [(("--gpu", "GPU"), "--gpu 'GPU': expected the number of a GPU"),
                          (("--gpu", ""), "--gpu '': expected"),
                          (("--gpu", "GPU-"), "--gpu 'GPU-': expected"),
                          (("--gpu", "GPU-" + 80 * "a"), "--gpu 'GPU-aaa"),
                          (("--user", "nobody-of-this-name"), "there is no such user"),
                          (("--user", "-1"), "there is no such user"),
                          (("--user", "4294967295"), "there is no such user"),
                          (("--user", "0", "abc123"), "--all, --gpu and --user take no ID"),
                          (("--dry-run",), "expected an ID, NAME or PID, or --all")]:
        result = cudaw("pause", *args)
        equal((args, result.code, result.out), (args, 2, ""))
        contains(result.err, message)


def test_a_dry_run_of_single_jobs():
    job = FakeJob(Directory(), name="train")
    result = cudaw("pause", "--dry-run", "train", "nothing")
    equal((result.code, result.out), (3, f"would pause {job.pid} (train)\n"))
    equal(job.requests, [])


def test_no_such_job():
    directory = Directory()
    job = FakeJob(directory, name="train")
    FakeJob(directory, id="ffffff", name="y" * 120)
    dead, alien, stale = dead_pid(), live_pid(), dead_pid()
    with open(directory.socket(stale), "w", encoding="ascii"):
        pass
    for target, message in [("nothing", "there is no job 'nothing'; 'cudaw ps' lists"),
                            ("trai", "there is no job 'trai'; did you mean 'train'?"),
                            ("abd123", "there is no job 'abd123'; did you mean 'abc123'?"),
                            ("Train", "there is no job 'Train'; did you mean 'train'?"),
                            ("t" * 200, "there is no job 'ttt"),
                            ("", "there is no job ''"),
                            ("99999999999999999999", "there is no job '99999999999999999999'"),
                            ("0", "there is no process 0"),
                            (str(dead), f"there is no process {dead}"),
                            (str(stale), f"there is no process {stale}"),
                            (str(alien), f"process {alien} is not a cudaw job")]:
        result = cudaw("pause", target)
        equal((target, result.code, result.out), (target, 3, ""))
        contains(result.err, "cudaw: " + message)
    equal(job.requests, [])


def test_a_snapshot_looks_for_the_job_before_it_looks_for_criu():
    FakeJob(Directory())
    result = cudaw("snapshot", "nobody", scratch() + "/snapshot", env={"CUDAW_CRIU": "/no/such/criu"})
    equal((result.code, result.out), (3, ""))
    contains(result.err, "'nobody'")
    assert "criu" not in result.err.lower(), result.err


def test_no_name_is_not_that_of_a_job_without_one():
    job = FakeJob(Directory())
    equal((cudaw("pause", "").code, job.requests), (3, []))


def test_a_known_job_is_paused_beside_an_unknown_one():
    job = FakeJob(Directory(), name="train")
    result = cudaw("pause", "nothing", "train")
    equal((result.code, result.out), (3, f"paused {job.pid} (train)\n"))


def test_no_such_job_among_those_that_answer():
    FakeJob(Directory(), answers={"status": silent})
    result = cudaw("pause", "train")
    equal(result.code, 3)
    contains(result.err, "no job that answers is called 'train' (1 do not answer; try a PID)")


def test_a_process_of_another_user():
    if os.getuid() == 0:
        result = cudaw("pause", "1", user=12345, command=installed_copy(scratch()),
                       env={"CUDAW_RUNTIME_DIR": None})
    else:
        if os.stat("/proc/1").st_uid == os.getuid():
            raise Skip("process 1 is this user's")
        Directory()
        result = cudaw("pause", "1")
    equal((result.code, result.err), (4, "cudaw: process 1 belongs to another user\n"))


def test_how_a_job_says_no():
    for end, code, message in [
            ("denied not your job", 4, "not your job"),
            ("timeout 1 kernel still runs after 2000 ms", 5, "1 kernel still runs after 2000 ms"),
            ("unsupported no virtual memory management", 6, "no virtual memory management"),
            ("nomem 31 GiB needed, 4 GiB free", 1, "31 GiB needed, 4 GiB free"),
            ("busy a pause is under way", 1, "a pause is under way"),
            ("invalid no such request", 1, "no such request"),
            ("failed cuMemUnmap: error 700", 1, "cuMemUnmap: error 700"),
            ("failed", 1, "failed"),
            (f"failed {'/folder' * 36}: {'why ' * 60}not", 1, f"{'/folder' * 36}: {'why ' * 60}not"),
            ("lunch back at two", 1, "back at two")]:
        job = FakeJob(Directory(), name="train", answers={"pause": ["end " + end]})
        result = cudaw("pause", "train")
        equal((end, result.code, result.out), (end, code, ""))
        equal(result.err, f"cudaw: pause {job.pid} (train): {message}\n")


def test_the_first_failure_decides():
    directory = Directory()
    jobs = [FakeJob(directory, id=f"aaaaa{i}", answers={"pause": ["end " + end]})
            for i, end in enumerate(("ok", "unsupported no", "timeout no"))]
    result = cudaw("pause", "--all")
    first = min((job.pid, code) for job, code in zip(jobs[1:], (6, 5)))[1]
    equal(result.code, first)
    equal(len(result.err.splitlines()), 2)
    equal(result.out, f"paused {jobs[0].pid}\n")


def test_a_hanging_job_times_out():
    directory = Directory()
    hung = FakeJob(directory, answers={"pause": silent})
    good = FakeJob(directory, id="bbbbbb")
    begin = time.monotonic()
    result = cudaw("pause", "--timeout", "0.5", "--all")
    assert 2.5 <= time.monotonic() - begin < 30
    equal((result.code, result.out), (5, f"paused {good.pid}\n"))
    contains(result.err, f"cudaw: pause {hung.pid}: no answer; the request may still succeed")


def test_a_job_that_hangs_whole_times_out_too():
    hung = FakeJob(Directory(), answers={"status": silent, "pause": silent})
    result = cudaw("pause", "--timeout", "0.1", str(hung.pid))
    equal(result.code, 5)
    equal(hung.requests, ["pause 100"])


def test_progress_keeps_a_job_from_timing_out():
    def slow(_job, connection):
        for done in range(35):
            say(connection, f"progress copy {done} 35")
            time.sleep(0.1)
        say(connection, "end ok")

    FakeJob(Directory(), answers={"pause": slow})
    equal(cudaw("pause", "--timeout", "0.1", "abc123").code, 0)


CLOSED = "its program has closed the connection before the answer"


def test_malformed_answers():
    for answer, message in [(b"progress copy many 7\nend ok\n", "malformed answer"),
                            (b"progress\nend ok\n", "malformed answer"),
                            (b"pause_us 0x10\nend ok\n", "malformed answer"),
                            (b"pause_bytes 1.5\nend ok\n", "malformed answer"),
                            (b"pause_bytes 9223372036854775808\nend ok\n", "malformed answer"),
                            (b"pause_us " + b"9" * 400 + b"\nend ok\n", "malformed answer"),
                            (b"x" * 5000, "malformed answer"),
                            (b"\nend ok\n", "malformed answer"),
                            (b"end\n", "malformed answer"),
                            (b"progress copy 1 7\n", CLOSED), (b"", CLOSED)]:
        job = FakeJob(Directory(), answers={"pause": answer})
        result = cudaw("pause", "abc123")
        equal((answer[:60], result.code), (answer[:60], 5 if message == CLOSED else 1))
        equal(result.err, f"cudaw: pause {job.pid}: {message}\n")


def test_one_that_ends_as_soon_as_it_runs_on():
    job = FakeJob(Directory(), answers={"resume": b"progress copy 7 7\nready\n"})
    result = cudaw("resume", "abc123")
    equal((result.code, result.out, result.err), (0, f"resumed {job.pid}; it has ended since\n", ""))


def test_messages_are_cleaned():
    FakeJob(Directory(), answers={"pause": b"end failed \x1b[2Jgone\n"})
    contains(cudaw("pause", "abc123").err, "?[2Jgone")


def test_no_wait():
    def long(job, connection):
        say(connection, "progress copy 1 7")
        silent(job, connection)

    directory = Directory()
    job = FakeJob(directory, answers={"pause": long, "resume": ["end busy a pause is under way"]})
    quick = FakeJob(directory, id="bbbbbb")
    deaf = FakeJob(directory, id="cccccc", answers={"pause": silent, "trim": silent})
    took = []
    # On a loaded machine any single run may take a second.
    while len(took) < 3 or (min(took) >= 0.9 and len(took) < 30):
        begin = time.monotonic()
        equal(cudaw("pause", "--no-wait", "abc123").out, f"pausing {job.pid}\n")
        took.append(time.monotonic() - begin)
    assert min(took) < 0.9, took
    equal(cudaw("pause", "--no-wait", "bbbbbb").out, f"paused {quick.pid}\n")
    equal(cudaw("resume", "--no-wait", "abc123").code, 1)
    equal(cudaw("trim", "--no-wait", "cccccc").out, f"trimming {deaf.pid}\n")
    result = cudaw("pause", "--no-wait", "--timeout", "0.1", "cccccc")
    equal((result.code, result.out), (5, ""))
    contains(result.err, f"pause {deaf.pid}: no answer")
    equal((job.requests, deaf.requests), (["pause"] * len(took) + ["resume"], ["trim", "pause 100"]))


seen_enough = threading.Event()


def on_terminal(*args, columns=100, enough="", then=None, term="xterm"):
    """
    Run the command with stderr on a terminal; its exit code, what it showed there, and the seconds
    until it began to. Jobs that copy go on until something that matches @enough was shown, and then
    the command gets the signal @then.
    """
    seen_enough.clear()
    master, slave = open_terminal()
    subprocess.run(["stty", "cols", str(columns)], stdin=slave, check=True)
    begin, first = time.monotonic(), None
    process = subprocess.Popen([CUDAW, *args], stderr=slave, stdout=subprocess.PIPE,
                               env={**os.environ, "TERM": term})
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:
            break
        if not part:
            break
        first = first or time.monotonic() - begin
        shown += part
        if re.search(enough, shown.decode(errors="replace")) and not seen_enough.is_set():
            seen_enough.set()
            if then:
                process.send_signal(then)
    os.close(master)
    process.communicate(timeout=LIMIT_S)
    assert seen_enough.is_set() or not enough, shown
    return process.returncode, shown.decode(), first


def copying(_job, connection):
    """30 GiB at 1 GiB/s, by the clock, until enough of it is seen; after a wait for kernels."""
    say(connection, "progress drain 0 0")
    time.sleep(0.05)
    begin = time.monotonic()
    while (passed := time.monotonic() - begin) < 30 and not seen_enough.is_set():
        say(connection, f"progress copy {int(passed * GIB)} {30 * GIB}")
        time.sleep(0.02)
    say(connection, f"progress copy {30 * GIB} {30 * GIB}", "end ok")


def test_progress_on_a_terminal():
    job = FakeJob(Directory(), answers={"pause": copying})
    form = (rf"pausing {job.pid}: copy ([\d.]+) ([MG])iB of 30\.0 GiB, ([\d.]+) GB/s, "
            r"([\d.]+) s left\x1b\[K")
    # Where it was held up: it does not copy yet, or so slowly that it will take minutes, or it is done.
    held_up = (rf"pausing {job.pid}: ((drain )?([\d.]+ s|\d+ min \d+ s)|"
               r"copy ([\d.]+ [KMG]i|\d+ )B of 30\.0 GiB"
               r"(, [\d.]+ GB/s, (\d+ ms|\d+ min \d+ s|\d+ h \d+ min) left)?)\x1b\[K")
    code, shown, first = on_terminal("pause", "abc123", enough=r" 1\.1 GB/s.*\r")
    equal(code, 0)
    lines = shown.split("\r")
    equal(lines[0], "")
    equal(lines[-1], "\x1b[K")
    # One line, rewritten.
    assert "\n" not in shown
    assert len(lines) >= 4, lines
    matches = [re.fullmatch(form, line) for line in lines[1:-2]]    # the last one may be of the end
    for line, match in zip(lines[1:], matches):
        if not match:
            assert re.fullmatch(held_up, line), line
            continue
        done, unit = match[1], match[2]
        rate, left_s = float(match[3]), float(match[4])
        left = (30 - float(done) / (1 if unit == "G" else 1024)) * GIB / 1e9
        # The rate is rounded to a tenth, the time to a second.
        assert abs(left - rate * left_s) <= 0.05 * left_s + 0.5 * rate + 0.1, lines
    assert any(match and match[3] == "1.1" for match in matches), lines
    assert first > 1, first


def test_progress_of_several_processes_is_summed():
    directory = Directory()
    for _ in range(2):
        FakeJob(directory, answers={"regain": copying})
    form = r"\rresuming 2 processes: copy \d+\.\d GiB of 60\.0 GiB, 2\.[12] GB/s"
    _, shown, _ = on_terminal("resume", "abc123", enough=form)
    assert re.search(form, shown), shown


def draining(seconds):
    """A pause that waits for kernels, for so long or until enough of it is seen."""
    def answer(_job, connection):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not seen_enough.wait(0.1):
            say(connection, "progress drain 0 0")
        say(connection, "end ok")
    return answer


def test_progress_while_kernels_run():
    job = FakeJob(Directory(), answers={"pause": draining(30)})
    begin = time.monotonic()
    code, shown, first = on_terminal("pause", "abc123", enough=rf"\rpausing {job.pid}: drain [\d.]+ s\x1b")
    took = time.monotonic() - begin
    equal(code, 0)
    assert first > 1, first
    # The seconds are rounded to a tenth.
    seconds = float(re.search(r"drain ([\d.]+) s", shown)[1])
    assert 1 <= seconds <= took + 0.1, (shown, took)


def test_progress_fits_the_terminal():
    FakeJob(Directory(), answers={"pause": copying})
    lines = on_terminal("pause", "abc123", columns=20, enough=r"(\r[^\r]+){4}")[1].split("\r")
    assert len(lines) > 3, lines
    equal({len(line.replace("\x1b[K", "")) for line in lines[1:-1]}, {19})


def test_an_interrupt_ends_the_line():
    def stuck(job, connection):
        while not job.over.wait(0.05):
            say(connection, "progress drain 0 0")

    job = FakeJob(Directory(), answers={"pause": stuck})
    code, shown, _ = on_terminal("pause", "abc123", enough="drain", then=signal.SIGINT)
    equal(code, -signal.SIGINT)
    equal(shown.split("\r\n")[1:], ["cudaw: interrupted: the pause goes on; 'cudaw resume' takes it back", ""])
    job.over.set()


def test_an_interrupt_says_what_becomes_of_the_jobs():
    """Not only on a terminal."""
    def under_way(job, connection):
        say(connection, "progress drain 0 0")
        heard.append(job)
        job.silent(connection)

    for verb, several, said in [("pause", False, "the pause goes on; 'cudaw resume' takes it back"),
                                ("resume", False, "the resume goes on; 'cudaw pause' takes it back"),
                                ("trim", False, "the trim goes on"),
                                ("resume", True, "the resume goes on; 'cudaw pause' takes it back"),
                                ("pause", True, "jobs whose processes were not all at rest run on")]:
        directory, heard = Directory(), []
        for _ in range(1 + several):
            FakeJob(directory, answers=dict.fromkeys(("pause", "resume", "trim", "hold", "regain"), under_way))
        command = ends_with_us(subprocess.Popen([CUDAW, verb, "abc123"], stdout=subprocess.DEVNULL,
                                                stderr=subprocess.PIPE, text=True))
        until(lambda: len(heard) == 1 + several and state(command.pid) == "S", 10,
              "all are asked, and it waits for their answers")
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=LIMIT_S)
        equal((command.returncode, errors), (-signal.SIGINT, f"cudaw: interrupted: {said}\n"))


def test_a_dumb_terminal_gets_no_escapes():
    FakeJob(Directory(), answers={"pause": draining(3)})
    equal(on_terminal("pause", "abc123", term="dumb"), (0, "", None))


def test_no_progress_when_it_is_quick():
    FakeJob(Directory(), answers={"pause": moves})
    code, shown, first = on_terminal("pause", "abc123")
    equal(code, 0)
    # It is not, where it was held up for a second.
    assert not shown or first > 1, (shown, first)


def test_no_progress_without_a_terminal():
    seen_enough.clear()
    threading.Timer(1.5, seen_enough.set).start()
    FakeJob(Directory(), answers={"pause": copying})
    equal(cudaw("pause", "abc123").err, "")


def test_root_pauses_the_job_of_a_user():
    if os.getuid() != 0:
        raise Skip("needs root")
    directory = Directory()
    os.chown(directory.path, 12345, 12345)
    job = FakeJob(directory, user=12345, name="theirs")
    equal(cudaw("pause", "theirs").code, 0)
    equal(job.requests, ["pause"])


if __name__ == "__main__":
    main()
