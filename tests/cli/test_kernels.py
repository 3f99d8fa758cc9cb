#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
cudaw kernels: what it lists of committed fixtures, of test kernels that nvcc compiles now (for
every architecture and compression), and of libraries; and how it takes files that are no such.

The golden texts in tests/kparams are what the command must print, without the architecture:
kernels.txt where an image of the fatbin knows pointers (compute_100 and later), kernels-old.txt
where none does, aligned.txt (with the architecture) for the kernels whose offsets depend on it.
"""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess

from clilib import Skip, cudaw, equal, contains, main, scratch

KPARAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kparams")
CUDA_HOME = os.environ.get("CUDA_HOME", "/usr/local/cuda")
NVCC = os.environ.get("NVCC") or f"{CUDA_HOME}/bin/nvcc"

CUBINS = ["75", "80", "90", "90a", "100", "120"]
ARCHS = [f"sm_{n}" for n in CUBINS] + ["compute_90"]
MODES = ["none", "speed", "balance", "size"]
ALIGNED = ("_Z7aligned", "_Z13aligned_first")


def fixture(name):
    return os.path.join(KPARAMS, "fixtures", name)


def golden(name):
    """{kernel: its lines} of a golden text."""
    with open(os.path.join(KPARAMS, name), encoding="utf-8") as text:
        return blocks(text.read())


def normal(text):
    """Names without what depends on the file that was compiled, and on -rdc."""
    text = re.sub(r"__nv_static_\d+__[0-9a-f]{8}_\w*?__Z", "_Z", text)
    return re.sub(r"_GLOBAL__N__[0-9a-f]{8}_", "_GLOBAL__N__HASH_", text)


def blocks(text):
    """{kernel: its lines} of what the command prints, by the first line of each."""
    found = {}
    for line in normal(text).splitlines(keepends=True):
        if not line.startswith(" "):
            head = line.rstrip("\n")
            assert head not in found, f"{head} is there twice"
            found[head] = ""
        else:
            found[head] += line
    return found


def listed(path, arch):
    """What the command lists for @arch, without the architecture."""
    result = cudaw("kernels", "--arch", arch, path)
    equal((path, result.code, result.err), (path, 0, ""))
    found = {}
    for head, lines in blocks(result.out).items():
        assert head.startswith(arch + " "), head
        found[head[len(arch) + 1:]] = lines
    return found


def compare(found, want, what):
    for kernel in sorted(set(found) | set(want)):
        equal((what, kernel, found.get(kernel)), (what, kernel, want.get(kernel)))


def compare_all(path, arch, want):
    """Compare with @want, and those of ALIGNED with aligned.txt."""
    found = listed(path, arch)
    fixed = {k: v for k, v in found.items() if not k.startswith(ALIGNED)}
    compare(fixed, want, (path, arch))
    aligned = {f"{arch} {k}": v for k, v in found.items() if k.startswith(ALIGNED)}
    compare(aligned, {k: v for k, v in golden("aligned.txt").items() if k.startswith(arch + " ")},
            (path, arch))


def nvcc(out, *options, source="kernels.cu"):
    subprocess.run([NVCC, "-std=c++17", "--extended-lambda", *options,
                    os.path.join(KPARAMS, source), "-o", out], check=True, timeout=300)
    return out


def need_nvcc():
    if not os.access(NVCC, os.X_OK):
        raise Skip(f"no {NVCC}")
    version = subprocess.run([NVCC, "--version"], capture_output=True, text=True, check=True)
    release = re.search(r"release (\d+)\.", version.stdout)
    if not release or int(release[1]) != 13:
        raise Skip("golden texts are those of CUDA 13")


def gencode():
    options = ["-gencode", "arch=compute_90,code=compute_90"]
    for n in CUBINS:
        options += ["-gencode", f"arch=compute_{n},code=sm_{n}"]
    return options


def in_parallel(work, items):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for future in [pool.submit(work, *item) for item in items]:
            future.result()


def test_fixture_with_every_kind_of_parameter():
    for arch in ["sm_75", "sm_90", "sm_100", "compute_75"]:
        compare_all(fixture("kernels.fatbin"), arch, golden("kernels.txt"))


def test_fixtures_of_every_kind_of_file():
    for name, arch in [("small-stored.fatbin", "sm_75"), ("small-stored.fatbin", "compute_75"),
                       ("small-lz4.fatbin", "sm_75"), ("small-lz4.fatbin", "compute_75"),
                       ("small-zstd.fatbin", "sm_75"), ("small-zstd.fatbin", "compute_75"),
                       ("small.cubin", "sm_90")]:
        compare(listed(fixture(name), arch), golden("small-old.txt"), name)
    compare(listed(fixture("small.ptx"), "compute_100"), golden("small.txt"), "small.ptx")


def test_ptx_that_nvcc_does_not_write():
    compare(listed(os.path.join(KPARAMS, "hand.ptx"), "compute_75"), golden("hand.txt"), "hand.ptx")


def test_ptxas_agrees_on_that_ptx():
    need_nvcc()
    for n in ["75", "90", "120"]:
        path = f"{scratch()}/hand.cubin"
        subprocess.run([os.path.join(os.path.dirname(NVCC), "ptxas"), f"-arch=sm_{n}",
                        os.path.join(KPARAMS, "hand.ptx"), "-o", path], check=True, timeout=300)
        compare(listed(path, f"sm_{n}"), golden("hand.txt"), n)


def test_every_architecture_and_compression():
    need_nvcc()
    directory = scratch()

    def one(mode, rdc):
        path = nvcc(f"{directory}/{mode}-{rdc}.fatbin", "-fatbin", f"--compress-mode={mode}",
                    f"-rdc={rdc}", *gencode())
        for arch in ARCHS:
            compare_all(path, arch, golden("kernels.txt"))
    in_parallel(one, [(mode, rdc) for mode in MODES for rdc in ("false", "true")])


def test_ptx_alone():
    need_nvcc()
    directory = scratch()

    def one(mode, rdc):
        for n, text in [("75", "kernels-old.txt"), ("100", "kernels.txt")]:
            path = nvcc(f"{directory}/{mode}-{rdc}-{n}.fatbin", "-fatbin", f"--compress-mode={mode}",
                        f"-rdc={rdc}", "-gencode", f"arch=compute_{n},code=compute_{n}")
            compare_all(path, f"compute_{n}", golden(text))
    in_parallel(one, [(mode, rdc) for mode in MODES for rdc in ("false", "true")])


def test_programs_and_libraries():
    need_nvcc()
    directory = scratch()
    want = golden("kernels.txt")
    options = ["-gencode", "arch=compute_90,code=sm_90", "-gencode", "arch=compute_100,code=sm_100"]
    for name, kind in [("program", []), ("library.so", ["-shared", "-Xcompiler", "-fPIC"])]:
        compare_all(nvcc(f"{directory}/{name}", *kind, *options), "sm_90", want)
    # Linked by nvlink: what is left of it comes again beside the relocatable images.
    path = nvcc(f"{directory}/rdc", "-rdc=true", *options)
    out = cudaw("kernels", "--arch", "sm_90", path).out
    for kernel in re.findall(r"^sm_90 (\S+)$", normal(out), re.M):
        assert kernel in want or kernel.startswith(ALIGNED), kernel
    linked = [head for head in re.findall(r"^sm_90 \S+$", normal(out), re.M) if "functor" in head]
    equal(len(linked), 2)


def split_types(text):
    """The types in the parameter list at the end of a demangled name; None where it has none."""
    text = re.sub(r"( \[clone [^]]*\])+$", "", text)
    if not text.endswith(")"):
        return None
    depth, types, end = 0, [], len(text) - 1
    for i in range(len(text) - 1, -1, -1):
        if text[i] in ")]}>" and text[i - 1:i + 1] != "->":
            depth += 1
        elif text[i] in "([{<":
            depth -= 1
            if depth == 0:
                types.insert(0, text[i + 1:end].strip())
                return [t for t in types if t]
        elif text[i] == "," and depth == 1:
            types.insert(0, text[i + 1:end].strip())
            end = i
    return None


NUMBERS = re.compile(r"(unsigned |signed )?(char|short|int|long|long long|__int128|float|double|"
                     r"bool|half)( const| volatile)*$")


def holds(text):
    """What a type holds, as its C++ text has it."""
    if re.search(r"\((\w+::)*[*&]+\)\s*\(", text):
        return "code"
    if re.search(r"[*&]( const| volatile| restrict| __restrict__)*$|\([*&]+\)\s*\[", text):
        return "pointer"
    return "no pointer" if NUMBERS.match(text) else "may point"


def test_names_agree_with_the_demangler():
    """The classifier of mangled names beside the demangler's text, over kernels of libraries."""
    checked = pointers = 0
    for name in ["libcublas.so", "libcurand.so", "libcusparse.so", "libcusolver.so"]:
        path = f"{CUDA_HOME}/lib64/{name}"
        if not os.path.exists(path):
            continue
        result = cudaw("kernels", "--json", "--arch", "sm_90", path)
        equal(result.code, 0)
        for kernel in json.loads(result.out):
            types = split_types(kernel["demangled"]) if kernel["demangled"] else None
            if not types or types == ["void"]:
                continue
            equal((kernel["name"], len(types)), (kernel["name"], len(kernel["params"])))
            for text, param in zip(types, kernel["params"]):
                if param["size"] < 8 or param["source"] not in ("name", "nobody"):
                    continue
                equal((kernel["name"], text, param["holds"]), (kernel["name"], text, holds(text)))
                checked += 1
                pointers += param["holds"] == "pointer"
    if not checked:
        raise Skip(f"no libraries in {CUDA_HOME}/lib64")
    print(f"# {checked} parameters, {pointers} of them pointers")


def test_containers_one_behind_the_other():
    """As in an archive, whose members begin at even places."""
    path = f"{scratch()}/containers"
    content, places = b"", []
    for name in ["small-stored.fatbin", "small-lz4.fatbin", "small-zstd.fatbin"]:
        places.append(len(content))
        with open(fixture(name), "rb") as file:
            content += file.read()
    for junk in range(0, 10, 2):
        with open(path, "wb") as file:
            file.write(b"x" * junk + content)
        result = cudaw("kernels", "--json", "--arch", "sm_75", path)
        equal((junk, result.code, result.err), (junk, 0, ""))
        images = {kernel["image"] for kernel in json.loads(result.out)}
        equal((junk, sorted(images)), (junk, [junk + place + 16 + 64 for place in places]))


def test_json():
    result = cudaw("kernels", "--json", "--arch", "sm_100", fixture("kernels.fatbin"))
    equal(result.code, 0)
    kernels = {kernel["name"]: kernel for kernel in json.loads(result.out)}
    kernel = kernels["_Z7structs7WithPtri6Simple"]
    equal((kernel["arch"], kernel["kind"], kernel["size"], kernel["exact_offsets"]),
       ("sm_100", "cubin", 48, True))
    equal(kernel["demangled"], "structs(WithPtr, int, Simple)")
    equal([(p["ordinal"], p["offset"], p["size"], p["holds"], p["source"]) for p in kernel["params"]],
       [(0, 0, 24, "may point", "nobody"), (1, 24, 4, "no pointer", "size"),
        (2, 32, 16, "may point", "nobody")])
    equal(kernels["k_pointers"]["params"][0]["source"], "image")
    equal(kernels["k_empty"]["params"], [])
    equal(kernels["k_empty"]["demangled"], None)
    old = json.loads(cudaw("kernels", "-j", "-a", "sm_75", fixture("kernels.fatbin")).out)
    source = {kernel["name"]: [p["source"] for p in kernel["params"]] for kernel in old}
    equal(source["k_pointers"], ["sibling"] * 4 + ["nobody"])
    equal(source["_Z8pointersPfPKfPPvPKcm"], ["name"] * 5)


def test_several_files():
    result = cudaw("kernels", fixture("small.cubin"), "/does/not/exist", fixture("small.ptx"))
    equal(result.code, 1)
    equal(result.err, "cudaw: /does/not/exist: No such file or directory\n")
    equal(len(re.findall(r"^sm_90 ", result.out, re.M)), 2)
    equal(len(re.findall(r"^compute_100 ", result.out, re.M)), 2)
    result = cudaw("kernels", "--json", "/does/not/exist")
    equal((result.code, result.out), (1, "[]\n"))


def test_files_without_kernels():
    directory = scratch()
    for name, content, message in [
            ("empty", b"", "is empty"),
            ("text", b"hello\n" * 100, "has no GPU code in a known format"),
            ("odd", b"\x00" * 17, "has no GPU code in a known format"),
            ("none.ptx", b".version 8.0\n.target sm_90\n", "has no kernels")]:
        with open(f"{directory}/{name}", "wb") as file:
            file.write(content)
        result = cudaw("kernels", f"{directory}/{name}")
        equal((name, result.code, result.out), (name, 1, ""))
        contains(result.err, message)
    os.mkfifo(f"{directory}/pipe")
    for path, message in [("/bin/sh", "has no GPU code"), (directory, "is not a regular file"),
                          (f"{directory}/pipe", "pipe is not a regular file")]:
        result = cudaw("kernels", path)
        equal((path, result.code), (path, 1))
        contains(result.err, message)
    result = cudaw("kernels", "--arch", "sm_89", fixture("small.cubin"))
    equal((result.code, result.out), (1, ""))
    contains(result.err, "has no code for sm_89")


def damaged(directory, name, offset, content):
    path = f"{directory}/{name}"
    shutil.copy(fixture(name), path)
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(content)
    return path


def test_damaged_files_say_where():
    directory = scratch()
    for name, offset, content, message in [
            ("small-stored.fatbin", 8, b"\xff\xff", "at 0x0: a container of"),
            ("small-stored.fatbin", 16 + 8, b"\xff\xff\xff", "at 0x10: an entry of"),
            ("small-zstd.fatbin", 16 + 64 + 8 + 4, b"\xff" * 16, "ZSTD: "),
            ("small.cubin", 40, b"\xff\xff\xff", "at 0x28: "),
            ("small.cubin", 18, b"\x3e", "has no GPU code in a known format")]:
        result = cudaw("kernels", damaged(directory, name, offset, content))
        equal((name, offset, result.code), (name, offset, 1))
        contains(result.err, message)


def test_a_program_that_is_cut():
    directory = scratch()
    whole = os.path.join(os.environ["BUILD"], "tests", "programs", "first_calls")
    with open(whole, "rb") as file:
        content = file.read()
    path = os.path.join(directory, "cut")
    with open(path, "wb") as file:
        file.write(content[:-100])
    result = cudaw("kernels", path)
    equal(result.code, 1)
    contains(result.err, f"it is cut off at {len(content) - 100} bytes: its section headers")


def test_names_of_odd_bytes():
    """No bytes of an image reach the terminal as they are, nor break JSON."""
    with open(fixture("small.cubin"), "rb") as file:
        content = file.read().replace(b"\0scale\0", b"\0s\x1b\xffl\xe9\0")
    path = f"{scratch()}/odd.cubin"
    with open(path, "wb") as file:
        file.write(content)
    contains(cudaw("kernels", path).out, "sm_90 s??l?\n")
    names = [kernel["name"] for kernel in json.loads(cudaw("kernels", "--json", path).out)]
    equal(sorted(names), ["_Z4fill4Pairl", "s??l?"])


def test_an_image_that_can_not_be_read_leaves_the_others():
    path = damaged(scratch(), "small-zstd.fatbin", 16 + 64 + 8 + 8, b"\xff" * 16)
    result = cudaw("kernels", path)
    equal(result.code, 1)
    contains(result.err, "image for sm_75 at 0x")
    equal(len(re.findall(r"^compute_75 ", result.out, re.M)), 2)


if __name__ == "__main__":
    main()
