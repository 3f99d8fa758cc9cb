#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that are found by their processes: in containers, with runtime directories that the command
does not know, before their first CUDA call, by the PID of any of their processes; and what a hostile
user leaves where root looks for them."""
import contextlib
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import harness  # noqa: E402
from harness import BUILD, CUDAW, answered, check, contains, equal, need_other_users, until  # noqa: E402
from clilib import Result, alone, needs_to_be_alone, scratch  # noqa: E402
from proclib import descendants, is_zombie  # noqa: E402

COUNTER = f"{BUILD}/tests/programs/counter"
ENDLESS = f"{COUNTER} --mib 16 --steps 1000000 --step-ms 20"
PRIVATE_TMP = "mount -t tmpfs none /tmp && "
USER = 2147000001   # nobody's
SIM = os.environ.get("CUDAW_REAL_LIBCUDA", f"{BUILD}/tests/sim/libcuda.so.1")


def cudaw(*args, env=None, limit=150):
    done = subprocess.run([CUDAW, *args], env={**os.environ, **(env or {})}, text=True, timeout=limit,
                          stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return Result(done)


def rows(env=None):
    """By name."""
    def ps():
        result = cudaw("ps", "--json", env=env)
        equal(result.code, 0, f"the exit code of ps, which says {result.err!r}")
        return json.loads(result.out)
    return {row["name"]: row for row in answered(ps)}


@contextlib.contextmanager
def running(script, *unshare, env=None, as_user=None):
    """A shell script in new namespaces; yields its PID here. All its processes end with it."""
    needs_to_be_alone()
    if os.environ.get("SANITIZE"):
        raise harness.Skip("its programs are not built with sanitizers")
    command = ["sh", "-c", script]
    if unshare:
        command = ["unshare", *unshare, *command]
    if as_user:
        command = ["setpriv", "--reuid", str(as_user), "--clear-groups", *command]
    process = subprocess.Popen(command, env={**os.environ, "CUDAW_REAL_LIBCUDA": SIM, **(env or {})},
                               stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process.pid
    finally:
        pids = [process.pid, *descendants(process.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.wait()
        until(lambda: all(map(is_zombie, pids)), 20, "its processes have ended")


def job(name, options=ENDLESS):
    return f"{CUDAW} run --name {name} -- {options}"


def listed(name, state="running", env=None):
    """Its row, when it is in the state."""
    return until(lambda: (row := rows(env).get(name)) and row["state"] == state and row, 20,
                 f"{name} is {state}")


def pauses(word, row, code=0):
    """Pause and resume it by this word."""
    for verb, done in (("pause", "paused"), ("resume", "resumed")):
        result = cudaw(verb, str(word))
        equal((word, result.code), (word, code), f"cudaw {verb}, which says {result.err!r}: it")
        if not code:
            contains(result.out, f"{done} {row['pid']} ({row['name']})")


# ---- containers

def test_a_private_tmp():
    with running(f"{PRIVATE_TMP} exec {job('private')}", "--mount") as pid:
        row = listed("private")
        equal(row["pid"], pid)
        for word in ("private", row["id"], pid):
            pauses(word, row)
        equal(cudaw("pause", "--all").out.split(":")[0], f"paused {pid} (private)")
        equal(listed("private", "paused")["pid"], pid)


def test_a_pid_namespace():
    script = f"{PRIVATE_TMP} echo 4999 > /proc/sys/kernel/ns_last_pid; {job('apart')} & wait"
    with running(script, "--mount", "--pid", "--fork", "--mount-proc") as launcher:
        row = listed("apart")
        check(row["pid"] in descendants(launcher), f"{row['pid']} is not the PID here")
        equal(row["own_pid"], 5000)
        for word in ("apart", row["pid"], launcher, 5000):
            pauses(word, row)
        result = cudaw("snapshot", "--gpu-only", "apart", scratch() + "/new")
        equal((result.code, result.out), (6, ""))
        contains(result.err, "its files are in another mount namespace")


def test_a_user_namespace():
    """Root there is somebody else here."""
    needs_to_be_alone(root=True)
    need_other_users()
    namespaces = ("--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc")
    with running(f"{PRIVATE_TMP} {job('users')}; true", *namespaces, as_user=USER):
        row = listed("users")
        equal(row["uid"], USER)
        pauses("users", row)
        pauses(row["pid"], row)


def test_a_user_sees_no_other_users():
    needs_to_be_alone(root=True)
    need_other_users()
    with running(f"{PRIVATE_TMP} exec {job('mine')}", "--mount"):
        row = listed("mine")
        done = subprocess.run(["setpriv", "--reuid", str(USER), "--clear-groups", CUDAW, "ps", "--json"],
                              text=True, capture_output=True, check=True)
        equal((json.loads(done.stdout), done.stderr), ([], ""))
        done = subprocess.run(["setpriv", "--reuid", str(USER), "--clear-groups", CUDAW, "pause",
                               str(row["pid"])], text=True, capture_output=True, check=False)
        equal((done.returncode, done.stdout), (4, ""))


def test_another_runtime_directory():
    directory, other = scratch(0o700), scratch(0o700)
    with running(f"exec {job('there')}", env={"CUDAW_RUNTIME_DIR": directory}):
        pauses("there", listed("there"))
        # Whoever names a directory means the jobs of that directory.
        equal(set(rows({"CUDAW_RUNTIME_DIR": directory})), {"there"})
        equal(rows({"CUDAW_RUNTIME_DIR": other}), {})
        equal(cudaw("pause", "there", env={"CUDAW_RUNTIME_DIR": other}).code, 3)


def test_closed_standard_descriptors():
    """No file or socket of the command takes their numbers."""
    with running(f"{PRIVATE_TMP} exec {job('private')}", "--mount"):
        listed("private")
        for closed in ("<&-", "2>&-", "<&- 2>&-"):
            done = subprocess.run(["sh", "-c", f'"$0" ps {closed}', CUDAW], text=True, check=True,
                                  stdout=subprocess.PIPE)
            contains(done.stdout, "private")
        done = subprocess.run(["sh", "-c", '"$0" ps <&- >&-', CUDAW], text=True, check=False,
                              stderr=subprocess.PIPE)
        equal((done.returncode, done.stderr), (1, "cudaw: stdout: Bad file descriptor\n"))


# ---- the PID of any of its processes

def test_the_pid_of_a_wrapper_or_a_child():
    child = f"{COUNTER} --mib 16 --steps 1000000 --step-ms 20 & sleep 1000 & wait"
    with running(f"cd /; {CUDAW} run --name wrapped -- sh -c '{child}'; true") as wrapper:
        row = listed("wrapped")
        processes = until(lambda: len(pids := descendants(wrapper)) == 3 and pids, 20, "its shell has two children")
        for pid in [wrapper, *processes]:
            pauses(pid, row)
        result = cudaw("pause", "1")
        equal((result.code, result.out), (3, ""), "the init of all, which says it")


def test_a_process_above_two_jobs():
    with running(f"{job('one')} & {job('two')} & wait") as wrapper:
        ids = sorted(listed(name)["id"] for name in ("one", "two"))
        result = cudaw("pause", str(wrapper))
        equal((result.code, result.out), (2, ""))
        found = re.fullmatch(f"cudaw: process {wrapper} belongs to 2 jobs: (.*), (.*); give an ID\n",
                             result.err)
        check(found and sorted(found.groups()) == ids, result.err)
        equal({row["state"] for row in rows().values()}, {"running"})


def test_a_stopped_job_is_continued_by_its_wrapper():
    with running(f"{job('halted')}; true") as wrapper:
        row = listed("halted")
        os.kill(row["pid"], 19)
        until(lambda: {r["error"] for r in rows().values()} == {"stopped"}, 20, "it is stopped")
        equal(cudaw("pause", str(wrapper)).code, 1)
        equal(cudaw("resume", str(wrapper)).code, 0)
        listed("halted")


# ---- before the first CUDA call

def test_a_job_that_has_made_no_cuda_call():
    fifo = os.path.join(scratch(), "go")
    os.mkfifo(fifo)
    script = f"sleep 1000 & read x < {fifo}; exec {ENDLESS}"
    with running("exec " + job("early", f"sh -c '{script}'")) as pid:
        row = listed("early", "starting")
        equal((row["pid"], row["error"], row["gpu"], row["carried"]), (pid, None, [], 0))
        contains(row["command"], "sh -c sleep 1000 & read")
        until(lambda: len(descendants(pid)) == 1, 10, "its child runs")
        equal(len(rows()), 1, "the number of rows")
        for word in ("early", row["id"], pid, descendants(pid)[0]):
            for verb in ("pause", "resume", "trim"):
                result = cudaw(verb, str(word))
                equal((verb, word, result.code, result.out), (verb, word, 3, ""))
                contains(result.err, f"job {row['id']}, process {pid}, is starting: it has made no CUDA call")
        equal(cudaw("pause", "--all").code, 0)
        with open(fifo, "w", encoding="ascii") as file:
            file.write("go\n")
        pauses("early", listed("early"))
        equal(len(rows()), 1, "the number of rows later")


def test_a_name_that_a_starting_job_has_too():
    with running(f"{job('twin', 'sleep 1000')} & {job('twin', ENDLESS)} & wait"):
        found = until(lambda: (both := json.loads(cudaw("ps", "--json").out)) and
                      sorted(row["state"] for row in both) == ["running", "starting"] and both, 20, "both are listed")
        result = cudaw("pause", "twin")
        equal((result.code, result.out), (2, ""))
        contains(result.err, "'twin' is the name of 2 jobs: ")
        for row in found:
            equal(cudaw("pause", row["id"]).code, 0 if row["state"] == "running" else 3)


def test_a_job_whose_cuda_calls_fail():
    """Behind a wrapper, which has called nothing: the row is that of the one that has."""
    code = "import ctypes, time; ctypes.CDLL(\"libcuda.so.1\").cuInit(0); time.sleep(1000)"
    script = f"{sys.executable} -c '{code}'; true"
    env = {"CUDAW_SIM_FAULT": "cuInit:1:100", "SCRIPT": script}
    with running("exec " + job("without", 'sh -c "$SCRIPT"'), env=env) as pid:
        until(lambda: rows().get("without", {}).get("past_cudaw"), 20, "it has called CUDA")
        row, child = rows()["without"], descendants(pid)[0]
        equal((row["pid"], row["state"], row["error"]), (child, "starting", None))
        why = "has called CUDA, but no cuInit() has succeeded"
        contains(cudaw("ps").out, f"{child}: {why}")
        result = cudaw("pause", "without")
        equal((result.code, result.out), (3, ""))
        contains(result.err, f"process {child}, is starting: it {why}")


def test_a_native_program_is_no_job():
    native = {"LD_LIBRARY_PATH": os.path.dirname(SIM)}
    with running(f"exec {ENDLESS}", env=native) as pid:
        until(lambda: "libcuda" in open(f"/proc/{pid}/maps", encoding="ascii").read(), 20, "it is loaded")
        equal(rows(), {})


# ---- what a user may leave for root

def test_a_link_in_the_path():
    needs_to_be_alone()
    script = (f"{PRIVATE_TMP} mkdir -m 700 /tmp/real /tmp/real/dir && ln -s real /tmp/link && "
              f"exec {job('linked')}")
    with running(script, "--mount", env={"CUDAW_RUNTIME_DIR": "/tmp/link/dir"}) as pid:
        until(lambda: os.path.exists(f"/proc/{pid}/root/tmp/real/dir/{pid}.sock"), 20, "it listens")
        listed("linked", "starting")
        equal(cudaw("pause", "linked").code, 3)


def moved_away(pid, replacement):
    """A job with something else in place of its socket."""
    path = f"/proc/{pid}/root/tmp/cudaw-0/{pid}.sock"
    until(lambda: os.path.exists(path), 20, "it listens")
    os.rename(path, path + ".away")
    replacement(path)


def test_another_file_in_place_of_the_socket():
    for replacement in (os.mkfifo, os.mkdir, lambda path: os.symlink(path.rsplit("/", 1)[1] + ".away", path),
                        lambda path: os.symlink("/etc/passwd", path)):
        with running(f"{PRIVATE_TMP} exec {job('replaced')}", "--mount") as pid:
            moved_away(pid, replacement)
            equal((rows()["replaced"]["state"], cudaw("pause", "--all").out), ("starting", ""))


def test_the_socket_of_another_process():
    """A user can put it there: nothing that is meant for one job reaches the other."""
    theirs, own = scratch(0o700), scratch(0o700)
    with (running(f"exec {job('victim')}", env={"CUDAW_RUNTIME_DIR": theirs}) as victim,
          running(f"exec {job('impostor')}", "--mount", env={"CUDAW_RUNTIME_DIR": own}) as impostor):
        listed("victim"), listed("impostor")
        subprocess.run(["nsenter", "--mount", f"--target={impostor}", "mount", "--bind",
                        f"{theirs}/{victim}.sock", f"{own}/{impostor}.sock"], check=True)
        equal({name: row["state"] for name, row in rows().items()},
              {"victim": "running", "impostor": "starting"})
        equal(cudaw("pause", "impostor").code, 3)


HANG = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("/dev/fuse", os.O_RDWR)
data = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if libc.mount(b"fuse", sys.argv[1].encode(), b"fuse", 0, data):
    sys.exit(os.strerror(ctypes.get_errno()))
print("hangs", flush=True)
_, _, unique = struct.unpack("IIQ", os.read(fd, 1 << 20)[:16])
os.write(fd, struct.pack("IiQIIIIII", 40, 0, unique, 7, 22, 0, 0, 0, 4096))    # FUSE_INIT
while True:
    os.read(fd, 1 << 20)    # who waits for an answer to a request that was read cannot be killed
"""


@contextlib.contextmanager
def hanging(pid, path):
    """A file system in user space that answers nothing, mounted where the process @pid sees it."""
    if not os.path.exists("/dev/fuse"):
        raise harness.Skip("there is no /dev/fuse")
    server = subprocess.Popen(["nsenter", "--mount", f"--target={pid}", sys.executable, "-c", HANG, path],
                              stdout=subprocess.PIPE, text=True)
    try:
        if server.stdout.readline() != "hangs\n":
            raise harness.Skip("no such mount can be made")
        yield
    finally:
        server.kill()
        server.wait()


def test_a_mount_that_hangs():
    needs_to_be_alone()
    with (running(f"{PRIVATE_TMP} exec {job('hangs')}", "--mount") as pid,
          running(f"{PRIVATE_TMP} exec {job('good')}", "--mount") as good):
        listed("hangs"), listed("good")
        with hanging(pid, "/tmp/cudaw-0"):
            begin = time.monotonic()
            result = cudaw("pause", "--all", limit=100)
            took = time.monotonic() - begin
            equal((result.code, result.out.split(":")[0]), (0, f"paused {good} (good)"))
            contains(result.err, f"process {pid} of user 0 is left out")
            check(took < 40, f"it took {took} s")


MAPS = """
import mmap, sys, time
with open("/tmp/x/libcuda.so.1", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
time.sleep(1000)
"""


def test_a_library_on_a_mount_that_hangs():
    """Of a process that does not run under cudaw: commands look at what its libraries are."""
    script = f"{PRIVATE_TMP} mkdir /tmp/x && cp {SIM} /tmp/x/libcuda.so.1 && exec {sys.executable} -c '{MAPS}'"
    with running(script, "--mount") as pid:
        until(lambda: "libcuda" in open(f"/proc/{pid}/maps", encoding="ascii").read(), 20, "it is mapped")
        with hanging(pid, "/tmp/x"):
            for args, code in ((("ps",), 0), (("resume", pid), 3), (("pause", pid), 3),
                               (("snapshot", pid, scratch() + "/no"), 3), (("pause", "--driver", pid), 5)):
                begin = time.monotonic()
                result = cudaw(*map(str, args), limit=60)
                took = time.monotonic() - begin
                equal((args, result.code), (args, code), f"the exit code, with {result.err!r}")
                check(took < 40, f"{args} took {took} s")
                contains(result.err, str(pid))


def test_text_from_there_is_cleaned():
    name = "a\33[31m\u202eb\nc"
    script = f"{PRIVATE_TMP} exec sleep 1000"
    with running(script, "--mount", env={"LD_PRELOAD": harness.faces() + "/libcuda.so.1",
                                         "CUDAW_NAME": name, "CUDAW_JOB": "\33[2J" }):
        until(lambda: "starting" in cudaw("ps").out, 20, "it is listed")
        for result in (cudaw("ps"), cudaw("ps", "--json"), cudaw("pause", name)):
            check(not re.search("\33|\\\\u001b|\u202e", result.out + result.err), repr(result))
        equal([row["name"] for row in rows().values()], ["a?[31m???b?c"])


if __name__ == "__main__":
    alone()
    for setting in [key for key in os.environ if key.startswith("CUDAW_") and key != "CUDAW_TEST_ALONE"]:
        del os.environ[setting]
    harness.main()
