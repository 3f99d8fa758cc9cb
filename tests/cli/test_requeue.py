#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What contrib/slurm/requeue asks of cudaw and Slurm, which are stand-ins here; tests/slurm runs it with both."""
import os
import subprocess

from clilib import LIMIT_S, equal, main, scratch

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "contrib", "slurm", "requeue")
CUDAW = """
echo "cudaw $*" >> "$SAID"
[ "$SNAPSHOT" ] || exit $ENDS
[ "$1" != snapshot ] || eval "$SNAPSHOT"
echo $$ > "$SAID.pid"
kill -USR1 $PPID
read -r _ < "$SAID.fifo"
exit $ENDS
"""
STAND_INS = {"cudaw": CUDAW,
             "scontrol": 'echo "scontrol $*" >> "$SAID"; [ -e "$SAID.away" ] || { : > "$SAID.away"; exit 1; }',
             "sleep": ""}


class Batch:
    """Runs of the job 7, with @files in the directory of its snapshot."""

    def __init__(self, *files):
        self.path = scratch()
        self.saved = f"{self.path}/snapshots/7"
        os.mkfifo(f"{self.path}/said.fifo")
        if files:
            os.makedirs(self.saved)
        for name in files:
            self.write(f"{self.saved}/{name}", "")
        for name, text in STAND_INS.items():
            self.write(f"{self.path}/{name}", f"#!/bin/sh\n{text}\n")

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def run(self, ends, **env):
        """The exit code, and what was asked. With @SNAPSHOT Slurm warns it, and that is what the snapshot does."""
        said = f"{self.path}/said"
        self.write(said, "")
        done = subprocess.run(["sh", SCRIPT, "train"], stderr=subprocess.DEVNULL, timeout=LIMIT_S, check=False,
                              env={"PATH": f"{self.path}:{os.environ['PATH']}", "HOME": self.path, "SAID": said,
                                   "ENDS": str(ends), **env})
        with open(said, encoding="ascii") as file:
            return done.returncode, file.read().splitlines()

    def snapshots(self):
        return sorted(os.listdir(f"{self.path}/snapshots"))


BEGINS = ["cudaw run --name requeue-7 -- train"]


def test_it_begins():
    """Also after a first snapshot that was cut off; the snapshot stays if the job fails."""
    for files in (), ("manifest.new", "data-1"):
        batch = Batch(*files)
        equal(batch.run(3, SLURM_JOB_ID="7", SLURM_RESTART_COUNT="1"), (3, BEGINS), "what it does")
        equal(batch.snapshots(), ["7"] if files else [], "what is there then")


def test_what_another_job_left_is_put_aside():
    batch = Batch("manifest.json")
    equal(batch.run(0, SLURM_JOB_ID="7"), (0, BEGINS), "what it does")
    kept, = batch.snapshots()
    equal(kept.rpartition(".")[0], "7", "the name of the snapshot")


def test_it_goes_on():
    batch = Batch("manifest.json")
    restores = [f"cudaw restore --wait {batch.saved}"]
    again = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2"}
    equal(batch.run(1, **again), (1, restores), "what it does with a job that fails")
    holds = ["scontrol requeuehold 7"] * 2      # slurmctld is away at first
    equal(batch.run(125, **again), (0, restores + holds), "what it does if the job cannot be restored")
    equal(batch.snapshots(), ["7"], "what is there then")
    equal(batch.run(0, **again), (0, restores), "what it does with a job that ends well")
    equal(batch.snapshots(), [], "what is there then")


WHOLE = 'mkdir -p "$4"; : > "$4/manifest.json"'
KILL = 'kill -KILL $(cat "$SAID.pid")'
LET_END = ': > "$SAID.fifo"'
GONE = 'while kill -0 $(cat "$SAID.pid") 2> /dev/null; do :; done'


def test_what_becomes_of_the_job_decides():
    """Not only the exit code of the command that takes the snapshot."""
    requeues = ["scontrol requeue 7"] * 2
    for snapshot, code, asked, left in (
            ((WHOLE, KILL, "exit 0"), 0, requeues, ["7"]),
            ((WHOLE, KILL, "exit 1"), 0, requeues, ["7"]),
            ((WHOLE, KILL, GONE, "exit 1"), 0, requeues, ["7"]),
            ((WHOLE, KILL, "kill -KILL $$"), 0, requeues, ["7"]),
            ((KILL, GONE, "exit 1"), 137, [], []),      # by somebody else
            ((LET_END, "exit 3"), 5, [], []),           # it has ended by itself
            ((LET_END, GONE, "exit 3"), 5, [], [])):
        batch = Batch()
        takes = [f"cudaw snapshot --stop requeue-7 {batch.saved}"]
        equal(batch.run(5, SLURM_JOB_ID="7", SNAPSHOT="; ".join(snapshot)), (code, BEGINS + takes + asked), snapshot)
        equal(batch.snapshots(), left, snapshot)


def test_without_slurm_it_does_nothing():
    batch = Batch("manifest.json")
    code, asked = batch.run(0)
    equal((code != 0, asked, batch.snapshots()), (True, [], ["7"]), "what it does")


if __name__ == "__main__":
    main()
