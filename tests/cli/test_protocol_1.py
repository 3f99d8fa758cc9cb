#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A job of the first library, as recorded (tests/jobs/protocol-1.txt), is listed, paused and resumed by
the command of today, which asks it for nothing that it does not know.
"""
import json
import os

from clilib import FakeJob, Directory, cudaw, equal, contains, main, read_line, say

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "jobs", "protocol-1.txt")


def recorded():
    """The conversations by their first line; of two with the same one, the first."""
    found = {}
    with open(FILE, encoding="ascii") as file:
        for text in file.read().strip().split("\n\n"):
            lines = text.splitlines()
            found.setdefault(lines[0][2:], lines[1:])
    return found


RECORDED = recorded()


def play(request):
    """The answers to a request of that text. A commit may come where the record has a step before."""
    def answer(job, connection):
        equal(job.requests[-1], request)
        orders = [line[2:] for line in RECORDED[request] if line[0] == ">"]
        for line in RECORDED[request]:
            if line[0] == "<":
                if not (line.startswith("< held") and job.requests[-1] == "commit"):
                    say(connection, line[2:])
            elif job.requests[-1] != "commit":
                job.requests.append(read_line(connection))
                assert job.requests[-1] in orders, f"the order {job.requests[-1]!r} is not known"
    return answer


def old_job(directory):
    job = FakeJob(directory, answers={"pause": play("pause 9000 all"), "resume": play("resume 9000"),
                                   "hold": play("hold 9000 memory"), "regain": play("regain"),
                                   "trim": play("trim")})
    lines = [line[2:] for line in RECORDED["status"]]
    job.answers["status"] = [f"pid {job.pid}" if line.startswith("pid ") else line for line in lines]
    return job


def test_it_is_listed():
    job = old_job(Directory())
    row, = json.loads(cudaw("ps", "--json").out)
    equal((row["pid"], row["state"], row["managed"]), (job.pid, "running", 16777216))


def test_it_is_paused_and_resumed():
    job = old_job(Directory())
    result = cudaw("pause", "--timeout", "9", "--release", "all", str(job.pid))
    equal((result.code, result.err), (0, ""))
    contains(result.out, f"paused {job.pid}: 18.0 MiB in")
    result = cudaw("resume", "--timeout", "9", str(job.pid))
    equal((result.code, result.err), (0, ""))
    contains(result.out, f"resumed {job.pid}: 18.0 MiB in")
    result = cudaw("trim", str(job.pid))
    equal((result.code, result.err), (0, ""))


def test_its_ranks_are_paused_and_resumed():
    directory = Directory()
    ranks = [old_job(directory) for _ in range(2)]
    id_of_both = RECORDED["status"][1].split(" ")[2]
    result = cudaw("pause", "--timeout", "9", "--release", "memory", id_of_both)
    equal((result.code, result.err), (0, ""))
    result = cudaw("resume", id_of_both)
    equal((result.code, result.err), (0, ""))
    equal([rank.requests for rank in ranks], [["hold 9000 memory", "commit", "regain", "commit"]] * 2)


if __name__ == "__main__":
    main()
