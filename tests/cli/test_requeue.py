#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What contrib/slurm/requeue asks of cudaw and Slurm, which are stand-ins here; tests/slurm runs it with both."""
import os
import subprocess

from clilib import LIMIT_S, equal, main, scratch

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "contrib", "slurm", "requeue")
STAND_INS = {"cudaw": 'echo "cudaw $*" >> "$SAID"; exit $ENDS',
             "scontrol": 'echo "scontrol $*" >> "$SAID"; [ -e "$SAID.away" ] || { : > "$SAID.away"; exit 1; }',
             "sleep": ""}


class Batch:
    """Runs of the job 7, with @files in the directory of its snapshot."""

    def __init__(self, *files):
        self.path = scratch()
        self.saved = f"{self.path}/snapshots/7"
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
        """The exit code, and what was asked."""
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


def test_without_slurm_it_does_nothing():
    batch = Batch("manifest.json")
    code, asked = batch.run(0)
    equal((code != 0, asked, batch.snapshots()), (True, [], ["7"]), "what it does")


if __name__ == "__main__":
    main()
