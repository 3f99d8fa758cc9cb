# SPDX-License-Identifier: Apache-2.0
"""Programs at a terminal, and a shell that runs them."""
import os
import pty
import select
import signal

from simlib import is_stopped   # first: it says where the modules of tests/ are
from gpulib import BUILD, CUDAW, base_environment, check
from harness import until


class Terminal:
    """A program with a terminal of its own, whose session it leads."""

    def __init__(self, *command, **env):
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.closerange(3, 1024)
            os.execvpe(command[0], command, {**base_environment(), "STEP_LINGER": "1", **env})
        self.said = ""

    def type(self, text):
        os.write(self.fd, text.encode())

    def read_until(self, condition, what):
        def read():
            if select.select([self.fd], [], [], 0)[0]:
                self.said += os.read(self.fd, 4096).decode(errors="replace")
            return condition(self.said)
        until(read, 30, what)

    def wait_steps(self, count):
        wanted = self.said.count("step ") + count
        self.read_until(lambda said: said.count("step ") >= wanted, "it makes steps")

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


class Shell(Terminal):
    """With a job that it runs."""

    def __init__(self, **env):
        super().__init__("bash", "--norc", "--noprofile", "-i", PS1="ready> ", **env)
        self.read_until(lambda said: "ready> " in said, "the shell is ready")
        program = f"{BUILD}/tests/programs/counter"
        self.type(f"{CUDAW} run -- {program} --mib 32 --verify 1 --steps 10000000 --step-ms 5\n")
        self.wait_steps(3)
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="utf-8") as file:
            self.job = int(file.read())

    def stop(self):
        """By Ctrl-Z; until the shell is there again."""
        before = self.said.count("Stopped")
        self.type("\x1a")
        self.read_until(lambda said: said.count("Stopped") > before, "the shell says so")
        check(is_stopped(self.job), "the job is not stopped")

    def go_on(self):
        self.type("fg\n")
        self.wait_steps(3)

    def end_well(self):
        self.type("\x03")
        self.read_until(lambda said: "every word right" in said, "it ends well")
        self.end()
