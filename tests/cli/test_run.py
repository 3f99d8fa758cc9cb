#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw run: the environment of the program, its exit code, and what can go wrong."""
import glob
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

from clilib import (BUILD, CUDAW, FACES, LIMIT_S, Directory, FakeJob, Skip, contains, cudaw, equal, installed_copy, main,
                    scratch)
from harness import until

FACE = os.path.join(FACES, "libcuda.so.1")
AUDITOR = os.path.join(FACES, "cudaw-audit.so")
PRINT = [sys.executable, "-c",
         "import os; print('\\n'.join(f'{k}={v}' for k, v in os.environ.items()))"]


def environment(*args, env=None):
    result = cudaw("run", *args, *PRINT, env=env)
    equal((result.code, result.err), (0, ""))
    return dict(line.split("=", 1) for line in result.out.splitlines() if "=" in line)


def test_sets_the_environment():
    env = environment("--name", "train-1.a_b", "--", env={"LD_PRELOAD": None})
    equal(env["LD_PRELOAD"], FACE)
    equal(env["CUDAW_NAME"], "train-1.a_b")
    equal((env["SPT_NOENV"], environment(env={"SPT_NOENV": ""})["SPT_NOENV"]), ("1", ""))
    assert re.fullmatch("[a-f][0-9a-f]{5}", env["CUDAW_JOB"]), env["CUDAW_JOB"]


def test_prepares_for_snapshots():
    output = os.path.join(scratch(), "output")
    io_uring = "import ctypes, errno; ctypes.CDLL(None, use_errno=True).syscall(425, 1, 0); " \
               "print(errno.errorcode[ctypes.get_errno()]); print(open('/proc/self/status').read())"
    program = [sys.executable, "-c", f"{PRINT[-1]}; {io_uring}"]
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0"}
    env.pop("NCCL_SOCKET_IFNAME", None)
    terminal, end = pty.openpty()
    with open(output, "w+", encoding="utf-8") as file:
        done = subprocess.run([CUDAW, "run", "--snapshot", "--snapshot", *program], stdin=end, stdout=file,
                              stderr=subprocess.PIPE, timeout=LIMIT_S, check=True, text=True, env=env)
        file.seek(0)
        lines = file.read().splitlines()
    os.close(terminal)
    os.close(end)
    with open("/proc/self/status", encoding="utf-8") as file:
        others = int(re.search(r"Seccomp_filters:\t(\d+)", file.read())[1])
    assert {"NCCL_SOCKET_IFNAME=lo", "GLOO_SOCKET_IFNAME=eth0", "ENOSYS", "Seccomp:\t2",
            f"Seccomp_filters:\t{others + 1}"} <= set(lines), lines
    equal(done.stderr, "cudaw: warning: --snapshot: stdin is a terminal, so a restore needs one, too; expected a file "
          "or /dev/null\ncudaw: warning: --snapshot: stderr is a pipe, with which no snapshot can be taken; expected a "
          "file or /dev/null\n")
    if os.getuid() == 0:
        result = cudaw("run", "--snapshot", "grep", "-E", "^(NoNewPrivs|Seccomp):", "/proc/self/status",
                       command=installed_copy(scratch()), user=12345)
        equal(result.out, "NoNewPrivs:\t1\nSeccomp:\t2\n")


def test_each_run_is_a_job_of_its_own():
    jobs = {environment(env={"CUDAW_JOB": "abcdef"})["CUDAW_JOB"] for _ in range(5)}
    equal(len(jobs), 5)
    assert "abcdef" not in jobs


def test_keeps_what_is_preloaded():
    other = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    other = re.search(r"=> (\S*libc\S*)", other).group(1)
    equal(environment(env={"LD_PRELOAD": other})["LD_PRELOAD"], f"{other}:{FACE}")
    equal(environment(env={"LD_PRELOAD": ""})["LD_PRELOAD"], FACE)


def test_a_library_that_is_the_driver_is_refused():
    """Programs would get it in place of ours."""
    directory = scratch()
    driver = shutil.copy(os.path.join(BUILD, "tests", "sim", "libcuda.so.1"), f"{directory}/mine.so")
    for value, named in [(driver, driver), (f"/no/such.so:{driver}", driver), ("libcuda.so.1", "libcuda.so.1"),
                         ("mine.so", "mine.so")]:
        result = subprocess.run([CUDAW, "run", "true"], env={"LD_PRELOAD": value, "LD_LIBRARY_PATH": directory},
                                capture_output=True, text=True, timeout=LIMIT_S, check=False)
        equal(result.returncode, 125)
        contains(result.stderr, f"cudaw: LD_PRELOAD={named}: programs would get this library")
    # A face is ours.
    for path in FACE, shutil.copy(FACE, f"{directory}/face.so"):
        equal(environment(env={"LD_PRELOAD": f"{path}:"})["LD_PRELOAD"], FACE)
    result = cudaw("run", CUDAW, "run", *PRINT)
    contains(result.out, f"LD_PRELOAD={FACE}\n")
    contains(result.out, f"LD_AUDIT={AUDITOR}\n")


def test_keeps_a_name_that_is_set():
    equal(environment(env={"CUDAW_NAME": "mine"})["CUDAW_NAME"], "mine")
    assert "CUDAW_NAME" not in environment(env={"CUDAW_NAME": None})


def test_the_library_is_loaded():
    maps = cudaw("run", "cat", "/proc/self/maps")
    contains(maps.out, os.path.realpath(FACE))


def test_a_program_that_opens_the_unversioned_name_gets_it():
    """As Numba does; natively that is a link, often to another file than the face."""
    program = "import ctypes; ctypes.CDLL('libcuda.so'); print(open('/proc/self/maps').read())"
    maps = cudaw("run", sys.executable, "-c", program)
    equal({line.split()[-1] for line in maps.out.splitlines() if "libcuda.so" in line}, {os.path.realpath(FACE)})


def test_keeps_who_audits():
    for old, new in (None, AUDITOR), ("", AUDITOR), ("/a:/b", f"{AUDITOR}:/a:/b"):
        # The loader says that it has no /a.
        result = cudaw("run", "cat", "/proc/self/environ", env={"LD_AUDIT": old})
        equal([value for value in result.out.split("\0") if value.startswith("LD_AUDIT=")], [f"LD_AUDIT={new}"])


def test_room_for_static_tls():
    """Which libraries of a program take, under an auditor, from a reserve that is small."""
    ours = "glibc.rtld.optional_static_tls=4096"
    other, same = "glibc.malloc.perturb=0", "glibc.rtld.optional_static_tls=1024"
    for old, new in (None, ours), ("", ours), (other, f"{other}:{ours}"), (same, same):
        equal(environment(env={"GLIBC_TUNABLES": old})["GLIBC_TUNABLES"], new)


def test_wrong_settings_are_said_at_once():
    directory = scratch()
    for name, value, why in [
            ("RELEASE", "mem", "expected all or memory; all is used"),
            ("ADDRESSING", "Mapped", "expected mapped or translated; the default is used"),
            ("TO_DRIVER", "memory,export", "expected some of memory, multicast, fabric or exports, separated by "
             "commas; the words that are known count"),
            ("CHECK", "yes", "expected 0, 1, warn or strict; 1 is used"),
            ("VERIFY", "yes", "expected 0 or 1; 1 is used"),
            ("PREPARE", "2", "expected 0 or 1; 1 is used"),
            ("SNAPSHOT_COMPRESS", "gzip", "expected none, lz4 or zstd; none is used"),
            ("LOG", "loud", "expected error, warn, info or debug; error is used"),
            ("HOST_POOL", "8x", "expected a number of bytes, as 8G; the default is used"),
            ("HOST_POOL", "-1", "expected a number of bytes, as 8G; the default is used"),
            ("MEM", "0", "expected a number of bytes from 2M on, as 20G; there is no limit"),
            ("HOST_POOL", "20000000T", "expected a number of bytes, as 8G; the default is used"),
            ("SPILL_DIR", f"{directory}/no", "No such file or directory; nothing is written there"),
            ("SPILL_DIR", "/dev/shm", "its files are memory; nothing is written there"),
            ("SNAPSHOT_DIR", "here", "expected an absolute path; no snapshot is written"),
            ("SNAPSHOT_DIR", f"{directory}/no/new",
             "its directory does not exist; no snapshot is written"),
            ("SNAPSHOT_DIR", "/dev/null", "Permission denied; no snapshot is written"),
            ("TRACE", f"{directory}/no/trace",
             "its directory does not exist; the program runs without a trace"),
            ("LOG_FILE", f"{directory}/no/log",
             "its directory does not exist; stderr is used"),
            ("LOG_FILE", directory, "Is a directory; stderr is used")]:
        result = cudaw("run", "true", env={f"CUDAW_{name}": value})
        equal((result.code, result.err), (0, f"cudaw: warning: CUDAW_{name}={value}: {why}\n"))
    for name, value in [("RELEASE", "memory"), ("RELEASE", ""), ("CHECK", "warn"), ("CHECK", "0"),
                        ("ADDRESSING", "mapped"), ("TO_DRIVER", "memory,exports"), ("HOST_POOL", "8G"), ("HOST_POOL", "0"),
                        ("SPILL_DIR", directory), ("SNAPSHOT_DIR", f"{directory}/new/"),
                        ("TRACE", "trace"), ("TRACE", f"{directory}/trace"),
                        ("LOG_FILE", "/dev/null"), ("LOG_FILE", f"{directory}/log")]:
        equal(cudaw("run", "true", env={f"CUDAW_{name}": value}).err, "")


def test_a_relative_path_leads_from_here():
    """A program may change its directory."""
    result = cudaw("run", "printenv", "CUDAW_SPILL_DIR", "CUDAW_LOG_FILE", "CUDAW_NAME",
                   env={"CUDAW_SPILL_DIR": ".", "CUDAW_LOG_FILE": "log", "CUDAW_NAME": "name"})
    equal(result.out, f"{os.getcwd()}/.\n{os.getcwd()}/log\nname\n")


def test_a_memory_limit_that_no_gpu_has():
    """By NVML; in a job with a limit, too, which programs in it take for the GPU's size."""
    libraries = scratch()
    shutil.copy(f"{BUILD}/tests/preload/nvml.so", f"{libraries}/libnvidia-ml.so.1")
    memory = os.path.join(libraries, "memory")
    with open(memory, "w", encoding="ascii") as file:
        file.write(f"{4 << 30} {4 << 30}")
    env = {"LD_LIBRARY_PATH": libraries, "TEST_NVML_COUNT": "2", "TEST_NVML_FILE": memory,
           "TEST_NVML_UUID": "GPU-00000000-0000-0000-0000-000000000001"}
    warning = "cudaw: warning: --mem: no GPU here has more than 4.0 GiB, so it limits nothing\n"
    for size, err in ("4G", ""), ("5G", warning):
        for around in [], ["run", "--mem", "64M", CUDAW]:
            result = cudaw(*around, "run", "--mem", size, "true", env=env)
            equal((result.code, result.err), (0, err))
    # NVML may hang in the driver, where nothing can kill it: then it must not be a child of the program.
    parent = os.path.join(libraries, "parent")
    result = cudaw("run", "--mem", "5G", "sh", "-c", "echo $$", env={**env, "TEST_NVML_MS": "1000000", "TEST_NVML_PARENT": parent})
    equal((result.code, result.err), (0, "cudaw: warning: --mem: NVML has not answered in 3 s, so the GPUs' memory is not known\n"))
    with open(parent, encoding="ascii") as file:
        equal(file.read() == result.out.strip(), False, "NVML was called in a child of the program")
    # Time in which the command is stopped does not count, as in a frozen control group.
    os.unlink(parent)
    with subprocess.Popen([CUDAW, "run", "--mem", "5G", "true"], stderr=subprocess.PIPE, text=True, env={
            **os.environ, **env, "TEST_NVML_MS": "1000000", "TEST_NVML_PARENT": parent}) as command:
        until(lambda: os.path.exists(parent), 30, "NVML is asked")
        command.send_signal(signal.SIGSTOP)
        time.sleep(5)
        command.send_signal(signal.SIGCONT)
        contains(command.communicate(timeout=LIMIT_S)[1], "NVML has not answered in 3 s")
    # NVML's face comes only with a limit.
    for args, there in [([], False), (["--mem", "64M"], True)]:
        preloaded = cudaw("run", *args, "sh", "-c", "echo $LD_PRELOAD", env=env).out
        equal("libnvidia-ml.so.1" in preloaded, there)
    preloaded = cudaw("run", "sh", "-c", "echo $LD_PRELOAD", env={**env, "CUDA_DEVICE_MEMORY_LIMIT_1": "1g"}).out
    contains(preloaded, "limited/libnvidia-ml.so.1")
    # Neither of these values is one.
    for name, value in (("CUDA_DEVICE_MEMORY_LIMIT", "0"), ("CUDA_DEVICE_MEMORY_LIMIT", "half"),
                        ("CUDA_DEVICE_MEMORY_LIMIT_1", ""), ("CUDA_DEVICE_MEMORY_LIMIT_OF_1", "1g"),
                        ("CUDAW_MEM", "1M")):
        result = cudaw("run", "sh", "-c", "echo $LD_PRELOAD", env={**env, name: value})
        equal((name, value, "libnvidia-ml.so.1" in result.out), (name, value, False))


def test_wrong_limits_of_schedulers_are_said_at_once():
    for name, value in ("CUDA_DEVICE_MEMORY_LIMIT", "half"), ("CUDA_DEVICE_MEMORY_LIMIT_1", "1.5g"):
        result = cudaw("run", "true", env={name: value})
        equal((result.code, result.err),
              (0, f"cudaw: warning: {name}={value}: expected a number of bytes, as 4147m; it limits nothing\n"))


def test_variables_with_longer_names_are_of_others():
    for name in "CUDA_DEVICE_MEMORY_LIMIT_POLICY", "CUDA_DEVICE_MEMORY_LIMITS", "CUDA_DEVICE_MEMORY_LIMIT_01":
        result = cudaw("run", "true", env={name: "half"})
        equal((result.code, result.err), (0, ""))


def test_wrong_signals_are_those_that_a_job_does_not_take():
    expected = "expected a signal's name, a number or none"
    for pause, resume, why in [
            ("nonsense", None, f"CUDAW_SIGNAL_PAUSE=nonsense: {expected}; USR1 is used"),
            ("", None, f"CUDAW_SIGNAL_PAUSE=: {expected}; USR1 is used"),
            ("SIGKILL", None, f"CUDAW_SIGNAL_PAUSE=SIGKILL: {expected}; USR1 is used"),
            (None, "65", f"CUDAW_SIGNAL_RESUME=65: {expected}; USR2 is used"),
            (None, "RTMIN+40", f"CUDAW_SIGNAL_RESUME=RTMIN+40: {expected}; USR2 is used"),
            (None, "10", "CUDAW_SIGNAL_RESUME=10: this signal pauses; no signal resumes"),
            ("USR2", None, "CUDAW_SIGNAL_RESUME=USR2: this signal pauses; no signal resumes"),
            ("none", "none", None), ("SIGHUP", "RTMIN+1", None), ("64", "USR1", None)]:
        result = cudaw("run", "true", env={"CUDAW_SIGNAL_PAUSE": pause,
                                           "CUDAW_SIGNAL_RESUME": resume})
        lines = result.err.splitlines()
        said = why and (f"settings: {why}" if expected in why else
                        f"signals: CUDAW_SIGNAL_RESUME: signal {resume or 12} is CUDAW_SIGNAL_PAUSE already; "
                        "no signal resumes")
        equal((result.code, lines[:-1]), (0, [f"cudaw: warning: {why}"] if why else []))
        # What the job itself says of it.
        equal([line.split(" ", 3)[3] for line in lines[1:]], [said] if said else [])


def test_a_signal_that_is_blocked_is_said():
    """A program inherits that from who starts it, and no pause by signal reaches it."""
    why = "this signal is blocked here, and in programs started from here"
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    try:
        result, doctor = cudaw("run", "true"), cudaw("doctor")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])
    equal((result.code, result.err), (0, f"cudaw: warning: CUDAW_SIGNAL_RESUME=USR2: {why}\n"))
    lines = [line for line in doctor.out.splitlines() if why in line]
    equal(len(lines), 1)
    contains(lines[0], "CUDAW_SIGNAL_RESUME")


def test_settings_are_named_in_one_table():
    tree = os.path.join(os.path.dirname(__file__), "..", "..")
    table, others = [], {}
    for room in ("common", "kparams", "vmem", "checkpoint", "wrapper", "tools"):
        for path in glob.glob(os.path.join(tree, room, "**", "*.[ch]"), recursive=True):
            with open(path, encoding="utf-8") as file:
                names = re.findall(r'"(CUDAW_[A-Z_]+[A-Z])"', file.read())
            if os.path.relpath(path, tree) == "common/settings.h":
                table = names
            elif names:
                others[path] = names
    equal(others, {})
    assert table
    env = {name: "" for name in table + ["CUDAW_SIM_MEMORY"]}
    assert "no such setting" not in cudaw("run", "true", env=env).err


def test_names_that_are_no_setting_are_said():
    for name, more in [("RELASE", "did you mean CUDAW_RELEASE?"), ("RELEASE_", "did you mean CUDAW_RELEASE?"),
                       ("SIGNAL_PAUZE", "did you mean CUDAW_SIGNAL_PAUSE?"),
                       ("DANCE", "'cudaw help settings' lists them"), ("", "'cudaw help settings' lists them"),
                       ("X" * 200, "'cudaw help settings' lists them")]:
        equal(cudaw("run", "true", env={f"CUDAW_{name}": "memory"}).err,
           f"cudaw: warning: CUDAW_{name[:25]}=memory: there is no such setting; {more}\n")


def test_options_of_the_program_are_left_to_it():
    for args in [["echo", "--name", "x"], ["--", "echo", "--name", "x"]]:
        equal(cudaw("run", *args).out, "--name x\n")


def test_exits_as_the_program():
    equal(cudaw("run", "--", "sh", "-c", "exit 42").code, 42)
    equal(cudaw("run", "--", "sh", "-c", "kill -TERM $$").code, -15)


def test_is_replaced_by_the_program():
    code = "import os; print(os.getpid())"
    process = subprocess.Popen([CUDAW, "run", sys.executable, "-c", code], text=True,
                               stdout=subprocess.PIPE)
    equal(int(process.communicate(timeout=LIMIT_S)[0]), process.pid)


def test_not_found():
    for program in ["no-such-program", "/no/such/program"]:
        # A directory of PATH that may not be searched would make it "Permission denied".
        result = cudaw("run", program, env={"PATH": "/usr/bin:/bin"})
        equal(result.code, 127)
        equal(result.err, f"cudaw: {program}: No such file or directory\n")


def test_a_trace_goes_only_for_a_program_that_is_there():
    directory = scratch()
    trace = os.path.join(directory, "trace")
    shutil.copy("/bin/true", f"{directory}/here")
    for program, path, gone in [("no-such-program", "/bin", False), ("/no/such", None, False),
                                (directory, None, False), ("true", "/no:/bin", True),
                                ("/bin/true", "", True), ("true", None, True),
                                ("here", "/no:", True), ("here", ":/no", True)]:
        with open(trace, "w", encoding="ascii"):
            pass
        result = subprocess.run([CUDAW, "run", "--trace", trace, program], cwd=directory, check=False,
                                env={} if path is None else {"PATH": path}, capture_output=True,
                                timeout=LIMIT_S)
        equal((program, path, result.returncode == 0, os.path.exists(trace)),
           (program, path, gone, not gone))


def test_not_executable():
    path = os.path.join(scratch(), "program")
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\n")
    for program in [path, "/"]:
        result = cudaw("run", program)
        equal(result.code, 126)
        contains(result.err, f"cudaw: {program}: Permission denied")


def test_scripts_without_interpreter_run():
    path = os.path.join(scratch(), "script")
    with open(path, "w", encoding="ascii") as file:
        file.write("echo ran\n")
    os.chmod(path, 0o755)
    result = cudaw("run", path)
    equal((result.code, result.out, result.err), (0, "ran\n", ""))


def test_library_missing():
    prefix = scratch()
    result = cudaw("run", "true", command=installed_copy(prefix, faces=False))
    equal(result.code, 125)
    contains(result.err, f"{prefix}/lib/cudaw-")
    contains(result.err, "libcuda.so.1: No such file or directory")
    command = installed_copy(os.path.join(prefix, "other"))
    os.remove(os.path.join(prefix, "other", "lib", os.path.basename(FACES), "cudaw-audit.so"))
    result = cudaw("run", "true", command=command)
    equal(result.code, 125)
    contains(result.err, "cudaw-audit.so: No such file or directory")


def test_library_is_found_from_a_link_to_the_command():
    link = os.path.join(scratch(), "gpu")
    os.symlink(CUDAW, link)
    equal(cudaw("run", "true", command=link).code, 0)


def test_installed_where_nothing_can_be_preloaded_from():
    prefix = os.path.join(scratch(), "with space")
    result = cudaw("run", "true", command=installed_copy(prefix))
    equal(result.code, 125)
    contains(result.err, "with a space or a colon")


def test_static_program_runs_with_a_warning():
    directory = scratch()
    path = os.path.join(directory, "static")
    with open(f"{directory}/static.c", "w", encoding="ascii") as file:
        file.write("int main(void) { return 7; }\n")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler or subprocess.run([compiler, "-static", "-o", path, f"{directory}/static.c"],
                                      capture_output=True, check=False).returncode:
        raise Skip("no static libc here")
    result = cudaw("run", path)
    equal(result.code, 7)
    equal(result.err, f"cudaw: warning: {path} is a static program, so it runs without cudaw and "
                   "cannot be paused\n")
    # Found in PATH as well.
    contains(cudaw("run", "static", env={"PATH": f"/nowhere:{directory}"}).err, f"{path} is a static")
    result = cudaw("run", "--require", path, env=PAUSABLE)
    equal((result.code, result.out), (125, ""))
    equal(result.err, f"cudaw: {path} is a static program, so it would run without cudaw; not started (--require)\n")


PAUSABLE = {"CUDAW_REAL_LIBCUDA": os.path.join(BUILD, "tests", "sim", "libcuda.so.1")}


def test_what_could_never_be_paused_is_not_started():
    equal(cudaw("run", "--require", "sh", "-c", "exit 42", env=PAUSABLE).code, 42)
    for env, why in [({"CUDAW_REAL_LIBCUDA": "/no/such"}, "driver: CUDAW_REAL_LIBCUDA=/no/such"),
                     ({"CUDAW_RUNTIME_DIR": "relative"}, "runtime directory relative: CUDAW_RUNTIME_DIR is not"),
                     ({"CUDAW_RUNTIME_DIR": "/no/such"}, "runtime directory /no/such: it cannot be made")]:
        result = cudaw("run", "--require", "echo", "started", env={**PAUSABLE, **env})
        equal((env, result.code, result.out), (env, 125, ""))
        assert result.err.startswith(f"cudaw: {why}"), result.err
        assert result.err.endswith("; not started (--require)\n"), result.err
        equal(cudaw("run", "echo", "started", env={**PAUSABLE, **env}).out, "started\n")


def test_a_name_that_another_job_has_is_warned_of():
    FakeJob(Directory(), name="train")
    for name, ignored in [("train", False), ("train", True), ("other", False)]:
        done = subprocess.run([CUDAW, "run", "--name", name, sys.executable, "-c",
                               "import signal; print(signal.getsignal(signal.SIGCHLD).name)"],
                              capture_output=True, text=True, timeout=LIMIT_S, check=True,
                              preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN) if ignored else None)
        # It is as it was.
        equal(done.stdout, "SIG_IGN\n" if ignored else "SIG_DFL\n")
        equal(done.stderr, "cudaw: warning: another job is called 'train': commands will need an ID, which "
              "'cudaw ps train' shows\n" if name == "train" else "")


def test_setuid_program_runs_with_a_warning():
    path = os.path.join(scratch(), "setuid")
    shutil.copy("/bin/true", path)
    if os.getuid() != 0:
        raise Skip("needs root")
    os.chown(path, 12345, 12345)
    os.chmod(path, 0o755 | stat.S_ISUID)
    result = cudaw("run", path)
    equal(result.code, 0)
    contains(result.err, "is set-uid or set-gid")
    # As its owner no rights are gained, and the loader takes LD_PRELOAD.
    result = cudaw("run", path, command=installed_copy(scratch()), user=12345)
    equal((result.code, result.err), (0, ""))


if __name__ == "__main__":
    main()
