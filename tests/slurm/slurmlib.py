# SPDX-License-Identifier: Apache-2.0
"""A Slurm of the test's own: slurmctld and slurmd without munge and systemd, in a directory and on ports of its own.
Its GPU is the simulated one, which four jobs may have at a time (shards), and whose memory cudawd gives out.
"""
import contextlib
import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "jobs"))

from simlib import MIB, REPOSITORY, SCRATCH, is_stopped, knows_gpu  # noqa: E402
from gpulib import BUILD, base_environment, cudaw_ok, equal  # noqa: E402
from harness import PATIENCE, Failure, Skip, after_case, check, ends_with_us, until  # noqa: E402
from daemons import start_daemon  # noqa: E402
from proclib import fields, send, with_environment  # noqa: E402

MEMORY_MIB, CONTEXT_MIB, MARGIN_MIB = 288, 16, 16
COUNTER = f"{BUILD}/tests/programs/counter"
SERVERS = ("slurmctld", "slurmd")
WHOLE = ("-c", 8)   # all processors of the machine, so that another job must stop for it
clusters = []

# The other scheduler of 23.11.4 starts no job if there is no accounting: "has invalid account".
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={path}/state
SlurmdSpoolDir={path}/spool
SlurmctldPidFile={path}/slurmctld.pid
SlurmdPidFile={path}/slurmd.pid
SlurmctldLogFile={path}/slurmctld.log
SlurmdLogFile={path}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerTimeSlice=5
GresTypes=gpu,shard
PreemptType=preempt/partition_prio
PreemptMode=SUSPEND,GANG
SlurmctldParameters=preempt_send_user_signal
AuthInfo=cred_expire=5
SchedulerParameters=sched_interval=2,bf_interval=1
JobRequeue=1
TaskProlog={repository}/contrib/slurm/task-prolog
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=100 Gres=gpu:1,shard:4
PartitionName=low Nodes=ALL PriorityTier=1 OverSubscribe=FORCE:1 Default=YES
PartitionName=high Nodes=ALL PriorityTier=10 OverSubscribe=FORCE:1
PartitionName=gang Nodes=ALL PriorityTier=1 OverSubscribe=FORCE:2
PartitionName=requeue Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
"""
GRES = """
Name=gpu File=/dev/null
Name=shard Count=4
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    """What is there; nothing yet, if it is not."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


class Cluster:
    """One machine. @options are cudawd's, @conf are more lines for slurm.conf, which Slurm knows since that version,
    and @env goes to all of its jobs.
    """

    def __init__(self, *options, conf="", since=(0, 0), **env):
        for server in SERVERS:
            if not shutil.which(server, path=f"{os.environ['PATH']}:/usr/sbin"):
                raise Skip(f"no {server} here: make deps-slurm")
        self.path = os.path.join(SCRATCH, f"slurm-{len(os.listdir(SCRATCH))}")
        for directory in ("state", "spool", "out"):
            os.makedirs(f"{self.path}/{directory}")
        write(f"{self.path}/slurm.conf", CONF.format(host=socket.gethostname().split(".")[0], path=self.path,
                                                     ports=free_ports(2), user=getpass.getuser(),
                                                     repository=REPOSITORY) + conf)
        write(f"{self.path}/gres.conf", GRES)
        self.env = {**base_environment(), "SLURM_CONF": f"{self.path}/slurm.conf", "STEP_LINGER": "",
                    "PATH": f"{BUILD}/bin:{os.environ['PATH']}:/usr/sbin", "CUDAW_TURNS": "user",
                    "CUDAW_SIM_MEMORY": str(MEMORY_MIB * MIB), "CUDAW_SIM_CONTEXT": str(CONTEXT_MIB * MIB),
                    "CUDAW_RELEASE": "memory", **env}
        self.servers = {}
        version = re.search(r" (\d+)\.(\d+)", self.run_ok("slurmctld", "-V"))
        if (int(version[1]), int(version[2])) < since:
            raise Skip(f"Slurm{version[0]} does not have {conf.strip()}")
        clusters.append(self)
        for server in SERVERS:
            self.start(server)
        until(lambda: "idle" in self.run("sinfo", "-h", "-p", "low", "-o", "%t").stdout, 30, "the node is idle")
        self.daemon = start_daemon("--margin", f"{MARGIN_MIB}M", "--quantum", "0.5", "--linger", "600",
                                   *options, env=knows_gpu())

    def start(self, server):
        with open(f"{self.path}/{server}.out", "ab") as out:
            self.servers[server] = ends_with_us(subprocess.Popen([server, "-D"], env=self.env, stdout=out,
                                                                 stderr=out))

    def restart(self, server):
        """As an administrator does: slurmctld first writes what it knows. One that is killed may lose a job that it
        has started in its last seconds, and start another one twice.
        """
        self.servers[server].terminate()
        self.servers[server].wait(60 * PATIENCE)
        self.start(server)

    def run(self, *command):
        return subprocess.run([str(word) for word in command], env=self.env, capture_output=True, text=True,
                              timeout=300)

    def run_ok(self, *command):
        done = self.run(*command)
        equal(done.returncode, 0, f"the exit code of {command} ({done.stderr.strip()})")
        return done.stdout

    def submit(self, script, *options, partition="low", **env):
        """A batch job with a shard, of these lines of shell."""
        path = f"{self.path}/job-{len(os.listdir(f'{self.path}/out'))}"
        write(path, "#!/bin/sh\n" + script + "\n")
        return self.submit_script(path, options=options, partition=partition, **env)

    def submit_script(self, *command, options=(), partition="low", **env):
        number = len(os.listdir(f"{self.path}/out"))
        exports = ",".join(["ALL", *(f"{key}={value}" for key, value in env.items())])
        out = f"{self.path}/out/{number}"
        write(out, "")
        said = self.run_ok("sbatch", "--parsable", "-p", partition, "--gres=shard:1", "-n1", "-o", out,
                           "--open-mode=append", f"--export={exports}", *options, *command)
        return SlurmJob(self, said.strip(), out)

    def counting(self, mib, *options, steps=10000000, partition="low", step_ms=2, **env):
        return self.submit(f"exec {COUNTER} --mib {mib} --verify 1 --steps {steps} --step-ms {step_ms}", *options,
                           partition=partition, **env)

    def end(self, good):
        if not good:
            for name in ("slurmctld.log", "slurmd.log"):
                print(f"# {name}:\n# " + "\n# ".join(read(f"{self.path}/{name}").splitlines()[-25:]), flush=True)
            for number in os.listdir(f"{self.path}/out"):
                print(f"# job {number} said: {read(f'{self.path}/out/{number}')[-300:]!r}", flush=True)
        until(self.nothing_is_left, 30, "Slurm and all of its jobs have ended")

    def nothing_is_left(self):
        """What is left is killed: a job, too, that slurmctld does not know. It would disturb the next case."""
        left = with_environment(f"SLURM_CONF={self.path}/slurm.conf")
        for pid in left[:]:
            with contextlib.suppress(OSError):
                parent = int(fields(pid)[1])
                if read(f"/proc/{parent}/comm") == "slurmstepd\n":     # which shows no environment
                    left.append(parent)
        for pid in left:
            send(pid, "KILL")
        return not left


class SlurmJob:
    def __init__(self, cluster, number, out):
        self.cluster, self.number, self.out = cluster, number, out

    def state(self):
        return self.cluster.run("squeue", "-h", "-t", "all", "-j", self.number, "-o", "%T").stdout.strip()

    def reason(self):
        """Why it waits."""
        return self.cluster.run("squeue", "-h", "-j", self.number, "-o", "%r").stdout.strip()

    def wait_state(self, state, timeout=60):
        until(lambda: self.state() == state, timeout, f"Slurm's job {self.number} is {state}")

    def said(self):
        return read(self.out)

    def steps(self):
        return len(re.findall("^step ", self.said(), re.M))

    def wait_steps(self, more, timeout=60):
        wanted = self.steps() + more

        def made():
            check(self.state() != "FAILED", f"job {self.number} fails: {self.said()[-300:]!r}")
            return self.steps() >= wanted

        until(made, timeout, f"job {self.number} makes {more} steps")

    def time_of_line(self, text, seconds=60):
        """When it was seen to have said that."""
        for _ in range(seconds * PATIENCE * 1000):
            if text in self.said():
                return time.time()
            time.sleep(0.001)
        raise Failure(f"job {self.number} does not say {text!r}, but {self.said()[-300:]!r}")

    def rows(self):
        """Its processes, as cudawd shows them."""
        return [row for row in json.loads(cudaw_ok("turns", "--json"))["members"]
                if row["name"] == f"slurm-{self.number}"]

    def pid(self):
        until(self.rows, 60, f"job {self.number} has joined cudawd")
        return self.rows()[0]["pid"]

    def signal(self, name):
        self.cluster.run_ok("scancel", "-s", name, "--full", self.number)

    def finish(self):
        """It verifies its memory, and ends."""
        self.signal("INT")
        until(lambda: "every word right" in self.said(), 60, f"job {self.number} ends well: {self.said()[-300:]}")
        self.wait_state("COMPLETED")


def on_gpu(job):
    return sum(gpu["mapped"] for row in job.rows() for gpu in row["gpu"])


def check_suspended(job, pid):
    until(lambda: is_stopped(pid), 30, f"job {job.number} is stopped")
    equal((job.state(), on_gpu(job)), ("SUSPENDED", 0), "its state, and bytes on the GPU")


def events(kind, job):
    """What cudawd has said of this kind, of the job."""
    found = [json.loads(line) for line in cudaw_ok("events", "--json").splitlines()]
    return [event for event in found if event["event"] == kind and event["name"] == f"slurm-{job.number}"]


def end_clusters(good):
    while clusters:
        clusters.pop().end(good)


after_case.insert(0, end_clusters)
