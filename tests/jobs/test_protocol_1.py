#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Conversations of protocol 1, recorded between the first command and the first library
(protocol-1.txt: "> " is what the command said, "< " what the job answered): a job of today answers
that command as it was answered then. New keys may stand beside the old ones. tests/cli has the
other half.
"""
import os
import socket

from snapshotjobs import counter, finish, directory
from gpulib import RUNTIME_DIR, check, equal, main

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "protocol-1.txt")


def essence(line):
    """What of a line depends on no time, size or machine."""
    words = line.split(" ")
    if words[0] in ("end", "protocol", "state"):
        return line
    return " ".join(words[:2] if words[0].endswith("_phase") or words[0] == "held" else words[:1])


def talk(job, conversation, path):
    """Send what the command sent, when it did; check that the recorded answers come, in order."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(os.path.join(RUNTIME_DIR, f"{job.pid}.sock"))
        answers = client.makefile("r")
        heard = []
        for line in conversation:
            text = line[2:].replace("/DIR", path)
            if line[0] == ">":
                client.sendall(text.encode() + b"\n")
                continue
            while True:
                found = answers.readline().rstrip("\n")
                check(found, f"'{essence(text)}' does not come after {heard}")
                heard.append(found)
                if essence(found) == essence(text) or found.startswith("end "):
                    break
            if not text.startswith("end invalid"):
                equal(essence(found), essence(text), f"the answer to {conversation[0]}")
        equal(answers.readline(), "", "what comes after the end")


def the_first_command_is_answered_as_ever():
    job, path = counter(16), directory()
    with open(FILE, encoding="ascii") as file:
        for conversation in file.read().strip().split("\n\n"):
            talk(job, conversation.splitlines(), path)
    finish(job)


main(the_first_command_is_answered_as_ever)
