#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw ps: the table, the JSON, jobs that do not answer as they should, dead sockets, and
runtime directories that are not to be trusted."""
import json
import os
import pwd
import re
import signal
import socket
import subprocess
import time

from clilib import (CUDAW, LIMIT_S, Directory, FakeJob, Skip, alone, contains, cudaw, dead_pid,
                    ends_with_us, equal, installed_copy, live_pid, main, on_terminal, say, scratch, silent, status,
                    stop)
from json_docs import REPOSITORY, page

GIB = 1 << 30
HIGH_UID = 3000000000


def ps_json(**kwargs):
    result = cudaw("ps", "--json", **kwargs)
    equal((result.code, result.err), (0, ""))
    return json.loads(result.out)


def only(jobs):
    equal(len(jobs), 1)
    return jobs[0]


def test_a_job_of_another_protocol():
    job = FakeJob(Directory(), protocol=2)
    row, = json.loads(cudaw("ps", "--json").out)
    equal((row["pid"], row["error"]), (job.pid, "it uses another version of the protocol than this command"))
    result = cudaw("pause", "abc123")
    equal((result.code, job.requests), (3, []), "by its ID, which is not known")
    contains(result.err, "(1 do not answer; try a PID)")
    equal((cudaw("pause", str(job.pid)).code, job.requests), (0, ["pause"]))


def test_no_directory_is_no_jobs():
    missing = "cudaw: CUDAW_RUNTIME_DIR=/no/such: there is no such directory, and so there are no jobs\n"
    for path, message in [("/no/such", missing), (Directory().path, "")]:
        env = {"CUDAW_RUNTIME_DIR": path}
        for args, lines in [((), 1), (("--json",), 1)]:
            result = cudaw("ps", *args, env=env)
            equal((result.code, result.err, len(result.out.splitlines())), (0, message, lines))
        equal(json.loads(result.out), [])


def test_states_are_those_of_the_page():
    """A process that does not answer has none."""
    with open(os.path.join(REPOSITORY, "common", "protocol", "protocol.h"), encoding="utf-8") as file:
        states = re.findall('X\\([A-Z]+, "([a-z]+)"\\)', re.search(r"#define STATE_MAP(?:.*\\\n)+.*", file.read())[0])
    listed = re.search(r"^\| `state` \| (.*);", page(), re.M)[1]
    # The tests of jobs see the other two.
    equal(set(re.findall(r"`(\w+)`", listed)), {*states, "starting", "locked"})
    directory = Directory()
    jobs = {FakeJob(directory, state=state).pid: (state, None) for state in states}
    stopped = FakeJob(directory, answers={"status": silent})
    stop(stopped.pid)
    equal({row["pid"]: (row["state"], row["error"]) for row in ps_json()}, {**jobs, stopped.pid: (None, "stopped")})


def test_a_stopped_job_is_known_by_its_environment():
    directory = Directory()
    env = {"CUDAW_JOB": "aaaaaa", "CUDAW_NAME": "train"}
    stopped = FakeJob(directory, answers={"status": silent}, env=env)
    stop(stopped.pid)
    FakeJob(directory, id="bbbbbb", name="other")
    for word in ("train", "aaaaaa", str(stopped.pid)):
        equal(cudaw("ps", "-o", "id,name,pid,state", word).out.split()[4:], ["aaaaaa", "train", str(stopped.pid), "stopped"])
        equal(cudaw("ps", "--quiet", word).out, "aaaaaa\n")
    equal({row["id"]: row["name"] for row in ps_json()}, {"aaaaaa": "train", "bbbbbb": "other"})


def test_why_one_refuses_a_connection():
    directory = Directory()
    for end, error in (("failed no descriptor", "its program has no free descriptor (RLIMIT_NOFILE)"),
                       ("busy all wait", "too many requests wait for it already")):
        job = FakeJob(directory, answers={"status": ["end " + end]})
        equal({row["pid"]: row["error"] for row in ps_json()}[job.pid], error)


def test_a_high_uid():
    """As of containers in user namespaces."""
    if os.geteuid():
        raise Skip("needs root")
    directory = Directory()
    os.chown(directory.path, HIGH_UID, -1)
    FakeJob(directory, user=HIGH_UID)
    row = only(ps_json())
    equal((row["uid"], row["user"]), (HIGH_UID, str(HIGH_UID)))


def test_json_is_exact():
    job = FakeJob(Directory(), name="train", command="python train.py", state="paused",
                  gpu=["0 GPU-aa NVIDIA H200", "3 GPU-bb Other GPU"], limit=f"{20 * GIB} 4097", carried=33500000001,
                  left_to_driver=529 << 20, paused=33500000001, pause_us=1100125,
                  pause_bytes=33500000001, pause_phase=["drain 250", "copy 1000000"],
                  spilled=4096, pool=8192, reason="asked to", signals="USR1 is kept", snapshot="/disk/train",
                  addressing="translated GPU 3 has no virtual memory")
    row = only(ps_json())
    assert 0 <= row["age_ms"] < 1000 * LIMIT_S, row
    equal(row, {
        "pid": job.pid, "own_pid": job.pid, "age_ms": row["age_ms"], "uid": os.getuid(), "user": pwd.getpwuid(os.getuid()).pw_name,
        "error": None, "by_driver": False, "id": "abc123", "name": "train",
        "command": "python train.py", "state": "paused", "reason": "asked to", "failed_ms": None, "signals": "USR1 is kept", "waits": None, "no_turns": None, "past_cudaw": None, "addressing": "translated",
        "gpu": [{"ordinal": 0, "uuid": "GPU-aa", "name": "NVIDIA H200", "limit": None, "limit_used": None},
                {"ordinal": 3, "uuid": "GPU-bb", "name": "Other GPU", "limit": 20 * GIB, "limit_used": 4097}],
        "snapshot": "/disk/train", "carried": 33500000001, "left_to_driver": 529 << 20,
        "paused": 33500000001, "spilled": 4096, "freed": False, "pool": 8192,
        "pause_phases": {"drain": 0.25, "copy": 1000.0},
        "pause_ms": 1100.125, "pause_bytes": 33500000001,
        "pause_gbps": float(f"{33500000001 / 1e6 / 1100.125:.12g}"),
        "resume_ms": None, "resume_bytes": None, "resume_gbps": None,
        "resume_phases": {}, "schema": 1})


def test_table():
    job = FakeJob(Directory(), name="train", gpu=["0 GPU-aa A", "3 GPU-bb B"], limit=f"{20 * GIB} {GIB}", state="waiting",
                  carried=31 * GIB + GIB // 5, left_to_driver=529 << 20, paused=100, spilled=20, pause_us=1100000,
                  pause_bytes=31 * GIB, resume_us=250000, resume_bytes=8 * GIB, command="python t.py")
    head, row = cudaw("ps", "--wide").out.splitlines()
    for title, value in [("ID", "abc123"), ("NAME", "train"), ("PID", str(job.pid)), ("GPU", "0,3"),
                         ("USER", pwd.getpwuid(os.getuid()).pw_name), ("STATE", "waiting"),
                         ("CARRIED", "31.2 GiB"), ("LEFT TO DRIVER", "529 MiB"), ("LIMIT", "1.0 GiB of 20.0 GiB"), ("PAUSED", "120 B"),
                         ("LAST PAUSE", "1.1 s, 30.3 GB/s"), ("LAST RESUME", "250 ms, 34.4 GB/s"), ("COMMAND", "python t.py")]:
        at = (" " + head).index(" " + title)
        assert row[at:].startswith(value), f"{title} in {row!r}"


def test_the_age_of_a_process():
    job = FakeJob(Directory())
    time.sleep(1.1)
    assert 1000 < only(ps_json())["age_ms"] < 1000 * LIMIT_S
    head, row = cudaw("ps").out.splitlines()
    assert re.match(r"\d+(\.\d)? s ", row[head.index("AGE"):]), row
    # In another PID namespace it is not seen.
    inside = subprocess.run(["unshare", "-r", "--pid", "--fork", "--mount-proc", CUDAW, "ps", "--json"],
                            text=True, capture_output=True, check=False)
    if inside.returncode:
        raise Skip("no PID namespace can be made")
    row = only(json.loads(inside.stdout))
    equal((row["pid"], row["own_pid"], row["age_ms"]), (job.pid, job.pid, None))


def test_reasons_are_below_the_table():
    directory = Directory()
    job = FakeJob(directory, state="waiting", reason="2.00 GiB of GPU memory are missing")
    other = FakeJob(directory, addressing="translated GPU 3 cannot map")
    third = FakeJob(directory, addressing="mapped", snapshot="/disk/\33[1mtrain")
    fourth = FakeJob(directory, signals="signal USR1 does not pause this process")
    fifth = FakeJob(directory, reason="pause: host memory is short", failed_us=3 * 3600 * 10**6)
    equal(sorted(cudaw("ps").out.splitlines()[6:]),
       sorted([f"{job.pid}: 2.00 GiB of GPU memory are missing",
               f"{other.pid}: translated addresses: GPU 3 cannot map",
               f"{third.pid}: only /disk/?[1mtrain has its memory",
               f"{fourth.pid}: signal USR1 does not pause this process",
               f"{fifth.pid}: pause: host memory is short; 3 h 0 min ago"]))
    equal([row["failed_ms"] for row in ps_json() if row["pid"] in (job.pid, fifth.pid)], [None, 3 * 3600 * 1000])


def test_table_without_what_was_not_said():
    FakeJob(Directory(), gpu=None)
    row = cudaw("ps", "--wide").out.splitlines()[1].split()
    equal((row[1], row[4], row[-3:]), ("-", "-", ["-", "-", "./job"]))


LONG = "python train.py --config " + "very/" * 30 + "long.yaml"


def test_a_table_fits_the_terminal():
    directory = Directory()
    FakeJob(directory, name="n" * 64, command=LONG, gpu=[f"{i} GPU-{i} A" for i in range(8)], carried=1023 << 20)
    FakeJob(directory, id="bbbbbb", name="short", command="x\u00e9" * 60, state="resuming")
    for columns, env in [(80, {}), (100, {}), (200, {}), (60, {"COLUMNS": "80"}), (0, {})]:
        width = int(env.get("COLUMNS", columns or 80))
        lines = on_terminal("ps", columns=columns, **env)[1]
        equal(max(map(len, lines)), width, str((columns, env, lines)))
        equal(len(lines), 3)
        assert lines[1].endswith("+") and " nnnn" in lines[1], lines
        equal(("n" * 64 in lines[1], "n+ " in lines[1]), (width == 200, width != 200))
        assert "\u00e9+" in lines[2] or "x+" in lines[2], lines
        contains(lines[2], " short ")
    contains(on_terminal("ps", "--wide")[1][1], LONG)


def test_a_pipe_gets_whole_commands():
    FakeJob(Directory(), name="n" * 64, command=LONG)
    row = cudaw("ps", env={"COLUMNS": "80"}).out.splitlines()[1]
    assert "n" * 64 in row and row.endswith(LONG), row


def test_chosen_columns():
    job = FakeJob(Directory(), name="train", reason="asked to", pause_us=1100000, pause_bytes=31 * GIB)
    equal(cudaw("ps", "-o", "Name,pid,LAST-PAUSE").out,
       f"NAME   {'PID':<{len(str(job.pid))}}  LAST PAUSE\ntrain  {job.pid}  1.1 s, 30.3 GB/s\n")


def test_ids_alone():
    directory = Directory()
    for name in ("aaaaaa", "aaaaaa", "bbbbbb"):
        FakeJob(directory, id=name, name="train")
    deaf = FakeJob(directory, answers={"status": silent})
    equal(sorted(cudaw("ps", "--quiet").out.splitlines()), sorted(["aaaaaa", "bbbbbb", str(deaf.pid)]))


def test_the_jobs_that_are_named():
    directory = Directory()
    jobs = {name: [FakeJob(directory, id=name, name=job) for _ in range(2)]
            for name, job in [("aaaaaa", "one"), ("bbbbbb", "two"), ("cccccc", "two")]}
    pids = {name: {job.pid for job in parts} for name, parts in jobs.items()}
    for words, meant in [(["one"], pids["aaaaaa"]), (["bbbbbb"], pids["bbbbbb"]),
                         (["two"], pids["bbbbbb"] | pids["cccccc"]),     # to see their IDs
                         (["one", "cccccc"], pids["aaaaaa"] | pids["cccccc"]),
                         ([str(jobs["aaaaaa"][0].pid)], {jobs["aaaaaa"][0].pid})]:
        result = cudaw("ps", "--json", *words)
        equal((words, result.code, result.err), (words, 0, ""))
        equal((words, {row["pid"] for row in json.loads(result.out)}), (words, meant))
    result = cudaw("ps", "-q", "one", "nobody")
    equal((result.code, result.out), (3, "aaaaaa\n"))
    contains(result.err, "there is no job 'nobody'")
    equal(cudaw("ps", "--json", "").code, 3)


def test_watch():
    job = FakeJob(Directory(), name="train")
    watch = ends_with_us(subprocess.Popen([CUDAW, "ps", "--watch", "train"], text=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE))
    lines = iter(watch.stdout.readline, "")
    for state in ("running", "paused"):
        job.answers["status"] = status(job.pid, name="train", state=state)
        while f" {state} " not in next(lines):
            pass
    os.kill(job.pid, signal.SIGKILL)
    job.listener.close()
    _, errors = watch.communicate(timeout=LIMIT_S)
    equal(watch.returncode, 3)
    contains(errors, "there is no job 'train'")


def test_several_jobs_by_pid():
    directory = Directory()
    jobs = [FakeJob(directory, id=f"aaaaa{i}") for i in range(5)]
    equal([job["pid"] for job in ps_json()], sorted(job.pid for job in jobs))


def test_unknown_keys_are_skipped():
    job = FakeJob(Directory())
    job.answers["status"] = ["colour green", "bare"] + status(job.pid)
    equal(only(ps_json())["error"], None)


def test_hanging_jobs_hold_up_nobody():
    directory = Directory()
    for _ in range(60):
        FakeJob(directory, answers={"status": silent})
    good = FakeJob(directory, name="good")
    begin = time.monotonic()
    jobs = ps_json()
    assert 0.9 < time.monotonic() - begin < 45      # one after the other they take 60 s
    equal([job["name"] for job in jobs if not job["error"]], ["good"])
    equal([job["error"] for job in jobs if job["pid"] != good.pid], ["no answer"] * 60)
    contains(cudaw("ps").out, "no answer")


def test_a_job_that_drips_is_given_up():
    def drip(_job, connection):
        while True:
            connection.sendall(b"colour green\n")
            time.sleep(0.05)

    FakeJob(Directory(), answers={"status": drip})
    equal(only(ps_json())["error"], "no answer")


def test_malformed_answers():
    good = b"protocol 1\nid abc123\nstate running\n"
    for answer in [b"\n", b"x" * 5000, good + b"carried lots\nend ok\n", good + b"gpu 0\nend ok\n",
                   good + b"carried -1\nend ok\n", good + b"pause_us inf\nend ok\n",
                   good + b"pause_us 1.2\nend ok\n",
                   good + b"carried 99999999999999999999\nend ok\n",
                   good + b"name a\0b\nend ok\n", b"protocol 1\nend ok\n", b"end ok\n",
                   b"end\n", good + b"end failed\n",
                   good + b"gpu 0 GPU-1 a\n" * 65 + b"end ok\n"]:
        FakeJob(Directory(), answers={"status": answer})
        job = only(ps_json())
        equal((answer[:60], job["error"]), (answer[:60], "malformed answer"))
        equal((job["id"], job["state"], job["gpu"]), (None, None, []))


def test_an_answer_that_breaks_off():
    for answer in [b"", b"protocol 1\n", b"protocol 1\nend o"]:
        FakeJob(Directory(), answers={"status": answer})
        equal(only(ps_json())["error"], "its program has closed the connection before the answer")


def test_another_protocol():
    FakeJob(Directory(), protocol=2)
    contains(only(ps_json())["error"], "another version")


def test_control_characters_do_not_reach_the_terminal():
    job = FakeJob(Directory())
    evil = b"\x1b]0;owned\x07\xc2\x9b31m\xff\xc3\xa9\xed\xa0\x80"
    job.answers["status"] = (b"protocol 1\nid abc123\nstate \x1b[31m\nname " + evil +
                             b"\ncommand " + b"\xc3\xa9" * 200 + b"\nend ok\n")
    found = only(ps_json())
    equal(found["name"], "?]0;owned???31m?\u00e9???")
    equal(found["state"], "?[31m")
    # Cut in the middle of a character.
    equal(found["command"].rstrip("?"), "\u00e9" * 127)
    assert "\x1b" not in cudaw("ps").out


def test_dead_sockets_are_removed():
    directory = Directory()
    dead, alive = dead_pid(), live_pid()
    for pid in (dead, alive):
        socket.socket(socket.AF_UNIX).bind(directory.socket(pid))
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind(directory.sharing_socket(pid))
    # A process of another PID namespace.
    elsewhere = dead_pid()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(directory.sharing_socket(elsewhere))
    listener.listen()
    equal(ps_json(), [])
    # Not those of a process that may be about to listen.
    equal(sorted(os.path.join(directory.path, name) for name in os.listdir(directory.path)),
          sorted([directory.socket(alive), directory.sharing_socket(alive),
                  directory.sharing_socket(elsewhere)]))


def test_other_files_are_left_alone():
    directory = Directory()
    names = ["note.txt", "12x.sock", "-5.sock", ".sock", "99999999999999999999.sock", "-5.sharing", "1"]
    for name in names:
        with open(os.path.join(directory.path, name), "w", encoding="ascii"):
            pass
    equal(ps_json(), [])
    equal(sorted(os.listdir(directory.path)), sorted(names))


def refused(path, why, **kwargs):
    for command in [["ps"], ["pause", "x"], ["resume", "--all"]]:
        result = cudaw(*command, env={"CUDAW_RUNTIME_DIR": path}, **kwargs)
        equal((result.code, result.out), (1, ""))
        equal(result.err, f"cudaw: {path} cannot be used, and so jobs cannot be found: {why}\n")


def test_hostile_directories_are_refused():
    directory = Directory()
    FakeJob(directory)
    link = os.path.join(scratch(), "link")
    os.symlink(directory.path, link)
    refused(link, "it is a symbolic link")
    file = os.path.join(scratch(), "file")
    with open(file, "w", encoding="ascii"):
        pass
    refused(file, "it is not a directory")
    refused("relative", "CUDAW_RUNTIME_DIR is not an absolute path")
    for mode in (0o770, 0o720, 0o755, 0o777):
        refused(Directory(mode).path, "other users may enter it (its mode must be 0700)")


def test_directory_of_another_user_is_refused():
    why = "it belongs to another user ({}): set CUDAW_RUNTIME_DIR to a directory of your own"
    if os.getuid() != 0:
        refused("/", why.format(0))
        return
    path = scratch()
    os.chown(path, 12346, 12346)
    refused(path, why.format(12346), user=12345, command=installed_copy(scratch()))


if __name__ == "__main__":
    alone()     # the command looks into each process for those that the driver has paused
    main()
