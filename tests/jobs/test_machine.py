#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Machines without this or that, programs without CUDA, and what the libraries look like from
outside: their addresses, their exports, and their installation.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile

from simlib import REPOSITORY, SIM_DIR, errors_of_cudaw, process_used, unsanitized
from gpulib import (BUILD, MODES, RUNTIME_DIR, SCRATCH, Job, Skip, check, equal, faces, main,
                    until)

TOOLKIT = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "lib64")
ENDLESS = ("--steps", 1000000, "--step-ms", 10)


def program(name):
    path = os.path.join(BUILD, "tests", "programs", name)
    if not os.path.exists(path):
        raise Skip(f"{name} is not built: it takes nvcc")
    return path


def outcome(name, mode):
    """What a program does where there is no driver: its status, and what it says itself."""
    program(name)
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    if "libcuda.so.1 " in cache:
        raise Skip("there is a real driver on this machine")
    saved = os.environ.pop("CUDAW_REAL_LIBCUDA")
    try:
        job = Job(name, "--steps", 3, mode=mode)
    finally:
        os.environ["CUDAW_REAL_LIBCUDA"] = saved
    status = job.wait_end(20)
    said = errors_of_cudaw(job)
    own = [line for line in job.stderr().splitlines() if line not in said]
    return status, job.lines, own, said


def without_a_driver(mode):
    def case():
        status, _, own, said = outcome("counter", mode)
        equal(status, 1, "the exit status")
        check(len(own) == 1 and own[0].endswith("error 100"), f"it says {own}")
        check(len(said) == 1 and "libcuda.so.1" in said[0], f"cudaw says {said}")
    return f"no driver, by {MODES[mode]}", case


def runtime_without_a_driver(name, mode):
    def case():
        native, found = outcome(name, "native"), outcome(name, mode)
        equal(native[3], [], "what cudaw says natively")
        equal(found[:3], native[:3], "status, stdout and stderr")
        check(len(found[3]) == 1 and "libcuda.so.1" in found[3][0], f"cudaw says {found[3]}")
    return f"no driver for {name}, by {MODES[mode]}", unsanitized(case)


def a_driver_that_is_no_library():
    path = os.path.join(SCRATCH, "libcuda.so.1")
    with open(path, "w", encoding="ascii") as file:
        file.write("not a library\n")
    job = Job("counter", "--steps", 3, env={"CUDAW_REAL_LIBCUDA": path})
    equal(job.wait_end(), 1, "the exit status")
    said = errors_of_cudaw(job)
    check(len(said) == 1 and path in said[0], f"cudaw says {said}")
    check("error 100" in job.stderr(), f"it says {job.stderr()!r}")


def a_runtime_directory_that_others_may_write():
    """It is said, the program runs, and the signals still pause it."""
    directory = os.path.join(SCRATCH, "open")
    os.mkdir(directory)
    os.chmod(directory, 0o777)
    job = Job("counter", "--mib", 16, *ENDLESS, env={"CUDAW_RUNTIME_DIR": directory})
    job.wait_steps(3)
    before = process_used(job.pid)
    job.send(signal.SIGUSR1)
    until(lambda: (process_used(job.pid) or 0) < before, 10, "the job is paused")
    job.check_still()
    job.send(signal.SIGUSR2)
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")
    said = errors_of_cudaw(job)
    check(len(said) == 1 and directory in said[0], f"cudaw says {said}")
    equal(os.listdir(directory), [], "what is in the directory")


def maps(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        return file.read()


def a_program_that_never_uses_cuda():
    """Not even one that is linked to libcuda.so.1: no thread, no socket, no driver."""
    job = Job("counter", "--start-line", 1, *ENDLESS)
    job.wait_line("before CUDA")
    check(faces() in maps(job.pid), "the library that is loaded is not ours")
    check(SIM_DIR not in maps(job.pid), "the real driver is loaded before the first CUDA call")
    equal(os.listdir(f"/proc/{job.pid}/task"), [str(job.pid)], "the threads before it")
    check(not os.path.exists(os.path.join(RUNTIME_DIR, f"{job.pid}.sock")), "there is a socket")
    job.tell()
    job.wait_line("step 1")
    check(SIM_DIR in maps(job.pid), "the driver is not loaded after it, so this shows nothing")
    job.finish()


def intercepted():
    """The driver's functions by whether driver.calls has them pass through our code."""
    rules, names = [], []
    with open(os.path.join(REPOSITORY, "wrapper", "face", "driver.calls"), encoding="ascii") as file:
        for words in (line.replace(";", " ").split() for line in file if not line.startswith("#")):
            if words:
                pattern = words[0].replace("*", ".*").replace("{", "(?:").replace(",", "|").replace("}", ")")
                rules.append((words[1], re.compile(pattern + r"\Z")))
    done = subprocess.run(["nm", "-D", "--defined-only", os.environ["CUDAW_REAL_LIBCUDA"]],
                          capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        name = line.split()[-1]
        if re.fullmatch(r"cu[A-Z][A-Za-z]*(_v\d)?", name):
            names.append((name, next(word for word, rule in rules if rule.match(name)) != "pass"))
    return names


def addresses_from_cugetprocaddress():
    """Asked for by its plain name, a function is our export where some version of it is intercepted."""
    wanted = {}
    for name, ours in intercepted():
        plain = re.sub(r"_v\d$", "", name)
        wanted[plain] = wanted.get(plain, False) or ours
    lines = Job("procaddr", *wanted).result().splitlines()
    found = {name: where for name, where in map(str.split, lines) if where != "none"}
    check(len(found) > 100, f"only {len(found)} functions were found")
    check("other" in found.values(), "none is the real driver's own")
    for name, where in found.items():
        equal(where, "face" if wanted[name] else "other", f"the library of {name}")


def exports_are_those_of_the_real_libraries():
    pairs = (("libcuda.so.1", os.path.join(TOOLKIT, "stubs", "libcuda.so")),
             ("libcudart.so.13", os.path.join(TOOLKIT, "libcudart.so.13")))
    present = [pair for pair in pairs if os.path.exists(pair[1])]
    for face, real in present:
        done = subprocess.run([sys.executable, os.path.join(REPOSITORY, "tests", "check-abi"),
                               os.path.join(faces(), face), real], capture_output=True, text=True)
        equal(done.returncode, 0, f"the exit status of check-abi for {face}\n{done.stdout}")
    if not present:
        raise Skip("no CUDA toolkit to compare with")


def make(target, destination):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(["make", "-s", target, f"O={BUILD}", "PREFIX=/opt/cudaw",
                           f"DESTDIR={destination}"], cwd=REPOSITORY, capture_output=True,
                          text=True, timeout=300, env=environment)
    equal(done.returncode, 0, f"the exit status of make {target} ({done.stderr.strip()})")


def check_glibc(*files):
    done = subprocess.run([sys.executable, os.path.join(REPOSITORY, "tests", "check-glibc"), *files],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def a_symbol_of_a_newer_glibc_is_found():
    path = os.path.join(SCRATCH, "newer.so")
    done = subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, "-Wl,-z,defs"], text=True,
                          input="unsigned arc4random(void); unsigned f(void) { return arc4random(); }",
                          capture_output=True, check=False)
    if done.returncode:
        raise Skip("glibc is older than 2.36")
    equal(check_glibc(path), (1, f"{path}: GLIBC_2.36 is needed, for arc4random\n"), "what check-glibc says")


def files_in(top):
    return {os.path.relpath(os.path.join(directory, file), top)
            for directory, _, files in os.walk(top) for file in files}


INSTALLED = {
    "bin/cudaw", "bin/cudawd", "share/man/man1/cudaw.1", "share/man/man8/cudawd.8",
    *(f"lib/systemd/system/cudawd.{kind}" for kind in ("service", "socket")),
    *(f"share/systemd/user/cudawd.{kind}" for kind in ("service", "socket")),
    *(f"share/bash-completion/completions/{name}" for name in ("cudaw", "cudawd")),
    *(f"share/fish/vendor_completions.d/{name}.fish" for name in ("cudaw", "cudawd")),
    "share/zsh/site-functions/_cudaw",
    *(f"share/doc/cudaw/{page}" for page in (
        "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "THIRD_PARTY", "cudaw.conf",
        "checkpoint/snapshot/FORMAT.md", "examples/gpu.py", "examples/inference_server.py", "examples/slurm_usr1.py"))}
LINK = re.compile(r"\]\(([^)#\s]+)")


def check_links(top):
    """What the pages below this directory have beside them is there."""
    for page in (os.path.join(top, name) for name in files_in(top) if name.endswith(".md")):
        with open(page, encoding="utf-8") as file:
            links = [link for link in LINK.findall(file.read()) if "://" not in link]
        broken = [link for link in links if not os.path.exists(os.path.join(os.path.dirname(page), link))]
        equal(broken, [], f"links of {page} that lead to nothing")


def install_and_uninstall():
    with tempfile.TemporaryDirectory(dir=SCRATCH) as root:
        make("install", root)
        prefix = os.path.join(root, "opt", "cudaw")
        command = os.path.join(prefix, "bin", "cudaw")
        libraries = {f"lib/{os.path.basename(faces())}/{file}" for file in files_in(faces())}
        pages = {f"share/doc/cudaw/{room}/{file}" for room in ("docs", "contrib")
                 for file in files_in(os.path.join(REPOSITORY, room))}
        equal(files_in(prefix), INSTALLED | libraries | pages, "what is installed")
        check_links(os.path.join(prefix, "share", "doc", "cudaw"))
        equal(check_glibc(command, os.path.join(prefix, "bin", "cudawd"),
                          *(os.path.join(prefix, file) for file in libraries)), (0, ""),
              "what check-glibc says of it")
        done = subprocess.run([command, "run", "--", program("counter"), "--steps", "3"],
                              capture_output=True, text=True, timeout=150)
        equal(done.returncode, 0, f"the exit status of a job ({done.stderr.strip()})")
        equal(done.stderr, "", "what the job says on stderr")
        make("uninstall", root)
        left = [file for _, _, files in os.walk(root) for file in files]
        equal(left, [], "the files left behind")
        left = [name for directory, names, _ in os.walk(prefix) for name in names if name.startswith("cudaw")]
        equal([name for name in left if name != "cudaw"], [], "the directories left behind")
        check(not os.path.exists(os.path.join(prefix, "share", "doc", "cudaw")), "the pages' directory is left behind")


main(*[without_a_driver(mode) for mode in ("run", "path")],
     *[runtime_without_a_driver(name, mode) for name in ("static_rt", "dynamic_rt")
       for mode in ("run", "path")],
     a_driver_that_is_no_library, a_runtime_directory_that_others_may_write,
     a_program_that_never_uses_cuda, addresses_from_cugetprocaddress,
     unsanitized(exports_are_those_of_the_real_libraries),
     a_symbol_of_a_newer_glibc_is_found, unsanitized(install_and_uninstall))
