#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Under "cudaw run" each way of dlopen() to the driver leads to cudaw, and no other dlopen() changes.
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from harness import BUILD, CUDAW, PATIENCE, check, equal, faces, main  # noqa: E402
from simlib import SIM_DIR  # noqa: E402
from gpulib import SCRATCH, Job, base_environment, cudaw, cudaw_ok  # noqa: E402

OPENING = os.path.join(BUILD, "tests", "guests", "programs", "opening")
OPENER = os.path.join(BUILD, "tests", "guests", "libs", "opener.so")
DEEP = os.path.join(BUILD, "tests", "guests", "libs", "deep.so")
OURS = "a driver, 1 control threads\n"
WAYS = ("now", "deepbind", "global", "noload", "library", "deep-library", "exec")


def machine():
    """A machine's directories of libraries, with a driver, and links to it from another one; the first."""
    directory = os.path.join(SCRATCH, "machine")
    if not os.path.exists(directory):
        os.makedirs(f"{directory}/lib/beside")
        os.makedirs(f"{directory}/other")
        shutil.copy(os.path.join(SIM_DIR, "libcuda.so.1"), f"{directory}/lib/libcuda.so.580.159.04")
        for link, to in (("lib/libcuda.so.1", "libcuda.so.580.159.04"), ("lib/libcuda.so", "libcuda.so.1"),
                         ("lib/libmine.so", "libcuda.so.580.159.04"), ("other/libcuda.so", "../lib/libcuda.so.1"),
                         ("other/gpu", "../lib/libcuda.so.580.159.04")):
            os.symlink(to, f"{directory}/{link}")
        shutil.copy(OPENER, f"{directory}/lib/opener.so")
        shutil.copy(DEEP, f"{directory}/lib/beside/libnear.so")
        shutil.copy(DEEP, f"{directory}/lib/libfar.so")
        with open(f"{directory}/lib/libtext.so", "w", encoding="ascii") as file:
            file.write("this is no library")
    return directory


def run(*command, cudaw=True, **env):
    """What a command prints, on this machine and under cudaw."""
    environment = {**base_environment(), "LD_LIBRARY_PATH": f"{machine()}/lib",
                   "TEST_LIBRARY": f"{machine()}/lib/opener.so", **env}
    environment = {name: value for name, value in environment.items() if value is not None}
    done = subprocess.run([CUDAW, "run", *command] if cudaw else command, env=environment, text=True,
                          capture_output=True, timeout=15 * PATIENCE, check=False)
    return done.stdout + done.stderr


def opening(*words, **options):
    return run(OPENING, *words, **options)


def names_of_the_driver():
    lib, other = f"{machine()}/lib", f"{machine()}/other"
    return ("libcuda.so.1", "libcuda.so", "libcuda.so.580.159.04", "libmine.so", f"{lib}/libcuda.so.1",
            f"{lib}/libcuda.so", f"{lib}/libcuda.so.580.159.04", f"{other}/libcuda.so", f"{other}/gpu",
            f"{other}/../lib/libmine.so")


def each_name_of_the_driver_leads_to_cudaw():
    for name in names_of_the_driver():
        equal((name, opening("now", name)), (name, OURS))


def each_way_to_the_driver_leads_to_cudaw():
    for way in WAYS:
        equal((way, opening(way, f"{machine()}/lib/libcuda.so.580.159.04")), (way, OURS))
    for way in ("deepbind", "deep-library", "namespace"):
        equal((way, opening(way, "libcuda.so.580.159.04")), (way, OURS))


def link_library(path, soname, *words):
    empty = ["cc", "-shared", "-x", "c", "/dev/null", "-x", "none", f"-Wl,-soname,{soname}", "-o", path]
    subprocess.run([*empty, *words], check=True)


def link_library_that_needs(path, soname, needed):
    """Another one, by its path, as the linker writes it where that one has no DT_SONAME."""
    link_library(f"{SCRATCH}/needed.so", needed)
    link_library(path, soname, "-Wl,--no-as-needed", f"{SCRATCH}/needed.so")


def a_library_that_needs_a_path_of_the_driver_gets_cudaw():
    link_library_that_needs(f"{machine()}/lib/libneeds.so", "libneeds.so", f"{machine()}/lib/libmine.so")
    equal(opening("now", f"{machine()}/lib/libneeds.so"), OURS)


def driver_in_two_files():
    """As in WSL: the first one loads the second, by its path."""
    directory = f"{machine()}/wsl"
    if not os.path.exists(directory):
        os.mkdir(directory)
        shutil.copy(os.path.join(SIM_DIR, "libcuda.so.1"), f"{directory}/libcuda.so.1.1")
        link_library_that_needs(f"{directory}/libcuda.so.1", "libcuda.so.1", f"{directory}/libcuda.so.1.1")
    return f"{directory}/libcuda.so.1"


def a_driver_loads_its_other_file():
    path = driver_in_two_files()
    equal(opening("now", path, CUDAW_REAL_LIBCUDA=None), OURS)
    equal(opening("now", "libcuda.so.1", CUDAW_REAL_LIBCUDA=path), OURS)


def the_driver_of_the_path_is_used():
    """With no other one on the machine that cudaw could find, and none named."""
    path = f"{machine()}/lib/libcuda.so.580.159.04"
    equal(opening("now", path, LD_LIBRARY_PATH=None, CUDAW_REAL_LIBCUDA=None), OURS)
    log = opening("now", path, LD_LIBRARY_PATH=None, CUDAW_REAL_LIBCUDA=None, CUDAW_LOG="info")
    check(f"the real driver is {path}\n" in log, log)
    relative = os.path.relpath(path)
    log = opening("now", relative, LD_LIBRARY_PATH=None, CUDAW_REAL_LIBCUDA=None, CUDAW_LOG="info")
    check(f"the real driver is {os.getcwd()}/{relative}\n" in log and log.startswith(OURS), log)
    # The user's choice comes first.
    chosen = os.path.join(SIM_DIR, "libcuda.so.1")
    log = opening("now", path, CUDAW_REAL_LIBCUDA=chosen, CUDAW_LOG="info")
    check(f"the real driver is {chosen}\n" in log, log)
    # The toolkit's, for linkers, is none.
    os.mkdir(f"{machine()}/stubs")
    link_library(f"{machine()}/stubs/libcuda.so", "libcuda.so.1")
    equal(opening("now", f"{machine()}/stubs/libcuda.so", CUDAW_REAL_LIBCUDA=None), OURS)


def a_namespace_has_no_core_of_its_own():
    """Two of them, and the program itself: one control thread."""
    for name in ("libcuda.so.1", "libcuda.so"):
        equal(opening("namespace", name, name), 2 * OURS)


def a_second_face_has_no_core_of_its_own():
    """One of another installation, with "cudaw run" and with LD_LIBRARY_PATH alone."""
    copy = shutil.copy(f"{faces()}/libcuda.so.1", f"{SCRATCH}/copy")
    for way in ("now", "namespace"):
        equal((way, opening(way, "libcuda.so.1", copy)), (way, 2 * OURS))
    equal(opening("now", "libcuda.so.1", copy, cudaw=False, LD_LIBRARY_PATH=faces()), 2 * OURS)


def no_other_dlopen_changes():
    """Plain names and paths, its libraries' RUNPATH and $ORIGIN, flags, errors, namespaces: as natively."""
    lib = f"{machine()}/lib"
    other = f"{machine()}/other"
    os.symlink("../lib/libfar.so", f"{other}/libcuda.so.9")    # a name like the driver's
    for words in [
            ("now", "libfar.so", "libfar.so", f"{lib}/libfar.so", f"{other}/../lib/libfar.so"),
            ("now", "libnear.so", "$ORIGIN/libfar.so", "libabsent.so", f"{lib}/libabsent.so", "libcuda.so.2",
             f"{lib}/libcuda.so.2", f"{lib}/libtext.so", "libtext.so", lib, "/dev/zero"),
            ("now", f"{other}/libcuda.so.9", "libcuda.so.580"),
            ("library", "libnear.so", "libfar.so", "$ORIGIN/libfar.so", "$ORIGIN/beside/libnear.so",
             "libabsent.so", "$ORIGIN/libabsent.so"),
            ("deep-library", "libnear.so", "$ORIGIN/libfar.so", "libabsent.so"),
            ("noload", "libfar.so", "libc.so.6", f"{lib}/libfar.so", "libabsent.so"),
            ("global", "libfar.so"), ("deepbind", "libfar.so", "libnear.so"),
            ("namespace", "libfar.so", "libnear.so", f"{lib}/libfar.so", f"{lib}/opener.so", "libabsent.so"),
            ("base", "libfar.so", f"{lib}/libfar.so")]:
        native = opening(*words, cudaw=False)
        equal((words, opening(*words)), (words, native))
    check("beside/libnear.so" in opening("library", "libnear.so"), "the library's DT_RUNPATH leads nowhere")


def another_preloaded_hook_sees_the_calls():
    """It lies before ours: the program's calls come to it first. The job is paused all the same."""
    source, hook = f"{SCRATCH}/hook.c", f"{SCRATCH}/hook.so"
    with open(source, "w", encoding="ascii") as file:
        file.write("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
                   "int cuMemAlloc_v2(unsigned long *address, unsigned long size)\n{\n"
                   "    int (*next)(unsigned long *, unsigned long) = dlsym(RTLD_NEXT, \"cuMemAlloc_v2\");\n"
                   "    FILE *file = fopen(getenv(\"TEST_HOOK\"), \"a\");\n"
                   "    fprintf(file, \"%lu\\n\", size);\n    fclose(file);\n"
                   "    return next(address, size);\n}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", hook, source], check=True)
    seen = []
    for mode in "native", "run":
        path = f"{SCRATCH}/seen-{mode}"
        job = Job("counter", "--steps", 1 if mode == "native" else 10**6, mode=mode,
                  env={"TEST_HOOK": path, "LD_PRELOAD": hook})
        if mode == "run":
            job.wait_steps(1)
            job.pause()
            job.resume()
            job.discard()
        else:
            job.wait_end(15)
        with open(path, encoding="ascii") as file:
            seen.append(file.read())
    # The last one, for a sum, is made after the steps.
    equal(seen[1] + "8\n", seen[0])


def a_preloaded_library_may_replace_dlsym():
    """As HAMi-core does: for a name of the driver, whoever asks, it looks in all libraries. So it finds ours."""
    source, library = f"{SCRATCH}/dlsym.c", f"{SCRATCH}/dlsym.so"
    with open(source, "w", encoding="ascii") as file:
        file.write("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <string.h>\n"
                   "void *dlsym(void *library, const char *name)\n{\n"
                   "    void *(*next)(void *, const char *) = dlvsym(RTLD_NEXT, \"dlsym\", \"GLIBC_2.34\");\n"
                   "    return next(strncmp(name, \"cu\", 2) ? library : RTLD_DEFAULT, name);\n}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    job = Job("counter", "--steps", 10**6, env={"LD_PRELOAD": library})
    job.wait_steps(1)
    job.pause()
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


def a_program_that_is_its_own_auditor_stays_it():
    source, auditor = f"{SCRATCH}/auditor.c", f"{SCRATCH}/auditor.so"
    with open(source, "w", encoding="ascii") as file:
        file.write("#include <string.h>\n"
                   "unsigned int la_version(unsigned int v) { return v; }\n"
                   "char *la_objsearch(const char *name, void *cookie, unsigned int flag)\n"
                   '{ return strcmp(name, "libwish.so") ? (char *)name : "libfar.so"; }\n')
    subprocess.run(["cc", "-shared", "-fPIC", "-o", auditor, source], check=True)
    native = opening("now", "libwish.so", cudaw=False, LD_AUDIT=auditor)
    check("lib/libfar.so" in native, native)
    equal(opening("now", "libwish.so", LD_AUDIT=auditor), native)
    equal(opening("now", f"{machine()}/lib/libmine.so", LD_AUDIT=auditor), OURS)


@contextlib.contextmanager
def at_point(*words, points=1, **env):
    """A program that stands at its last point; its PID."""
    env = {**base_environment(), "TEST_POINT": "1", "LD_LIBRARY_PATH": f"{machine()}/lib", **env}
    program = subprocess.Popen([CUDAW, "run", "--name", "past", OPENING, *words], text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env=env)
    try:
        for left in range(points - 1, -1, -1):
            while program.stdout.readline() != "point\n":
                check(program.poll() is None, "the program has ended")
            if left:
                program.stdin.write("\n")
                program.stdin.flush()
        yield program.pid
    finally:
        program.kill()
        program.wait()


def said_of(pid):
    """What ps, its JSON and doctor say of drivers past cudaw."""
    lines = [line for line in cudaw_ok("ps").splitlines() if line.startswith(f"{pid}: ")]
    rows = [row["past_cudaw"] for row in json.loads(cudaw_ok("ps", "--json")) if row["pid"] == pid]
    doctor = [line for line in cudaw("doctor").stdout.splitlines() if line.startswith(f"process {pid}: ")]
    return lines, rows, doctor


def a_driver_past_cudaw_is_named():
    driver, real = f"{machine()}/lib/libcuda.so.580.159.04", os.environ["CUDAW_REAL_LIBCUDA"]
    with at_point("base", f"{machine()}/lib/libcuda.so") as pid:
        text = ("has called CUDA, but no cuInit() has succeeded: there may be no GPU for it, it may use the driver "
                f"past cudaw ({driver}), or it could not make its socket (with CUDAW_LOG=warn its stderr has the error)")
        lines, rows, doctor = said_of(pid)
        equal((lines, rows, len(doctor)), ([f"{pid}: {text}"], [driver], 1))
        check(text in doctor[0], doctor[0])
        done = cudaw("pause", pid)
        equal(done.returncode, 3)
        check(done.stderr.endswith(f", process {pid}, is starting: it {text}\n"), done.stderr)
        equal(cudaw("pause", "--all").stderr.splitlines()[0], f"cudaw: warning: process {pid} {text}: it is not paused")
    with at_point("namespace", "libcuda.so.1", driver, points=2) as pid:
        lines, rows, doctor = said_of(pid)
        equal(len(lines + rows + doctor), 3)
        check(driver in rows[0] and real in rows[0], rows[0])
        equal(lines, [f"{pid}: uses the driver past cudaw ({rows[0]})"])
        check(lines[0].split(": ")[1] in doctor[0], doctor[0])
        done = cudaw("pause", "past")
        equal((done.returncode, done.stderr),
              (0, f"cudaw: warning: process {lines[0].replace(':', '')}: a pause does not stop that\n"))
    with at_point("now", driver) as pid:
        equal(said_of(pid), ([], [None], []))
    with at_point("now", "libcuda.so.1", CUDAW_REAL_LIBCUDA=driver_in_two_files()) as pid:
        equal(said_of(pid), ([], [None], []))


def a_forked_child_is_not_named():
    """It has its parent's mappings, and has opened no driver."""
    job = Job("forker", "--children", 0, "--ask", 1, "--steps", 10**6, "--step-ms", 2)
    job.wait_steps(1)
    job.tell()
    job.until(lambda: any(line.startswith("child ") for line in job.lines), 20, "the child")
    child = int(next(line for line in job.lines if line.startswith("child ")).split()[1])
    equal(said_of(child), ([], [], []))
    equal(cudaw("pause", job.pid).stderr, "")
    job.discard()


def commands_that_a_job_starts_see_the_driver():
    """cudaw doctor opens the driver itself, also where it runs under cudaw."""
    lines = [[line for line in run(CUDAW, "doctor", cudaw=under).splitlines() if SIM_DIR in line]
             for under in (False, True)]
    check(lines[0], "doctor does not name the driver")
    equal(lines[1], lines[0])


main(each_name_of_the_driver_leads_to_cudaw, each_way_to_the_driver_leads_to_cudaw,
     a_library_that_needs_a_path_of_the_driver_gets_cudaw, a_driver_loads_its_other_file, the_driver_of_the_path_is_used,
     a_namespace_has_no_core_of_its_own, a_second_face_has_no_core_of_its_own, no_other_dlopen_changes,
     another_preloaded_hook_sees_the_calls, a_preloaded_library_may_replace_dlsym,
     a_program_that_is_its_own_auditor_stays_it, a_driver_past_cudaw_is_named,
     a_forked_child_is_not_named, commands_that_a_job_starts_see_the_driver)
