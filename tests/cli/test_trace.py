#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw trace: what it says of traces, and how it takes damaged and foreign files."""
import json
import os
import random
import resource
import subprocess

from clilib import CUDAW, LIMIT_S, cudaw, equal, contains, main, scratch

DIRECTORY = scratch()
PATH = os.path.join(DIRECTORY, "trace.json")
MIB = 1 << 20


def event(category, name, ts=0.0, dur=1.0, **args):
    return {"ph": "X", "cat": category, "args": args, "pid": 7, "tid": 7, "ts": 1000 + ts,
            "dur": dur, "name": name}


def head(version="0.1.0", form=1):
    return [{"ph": "M", "cat": "__metadata", "pid": 7, "tid": 7, "ts": 1000.0,
             "args": {"format": form, "version": version, "unix_ns": 123}, "name": "cudaw_trace"},
            {"ph": "M", "cat": "__metadata", "pid": 7, "tid": 7, "ts": 1000.5,
             "args": {"name": "train --fast"}, "name": "process_name"}]


def text_of(events):
    return "[\n" + ",\n".join(map(json.dumps, events)) + "\n]"


def write(text):
    with open(PATH, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def summary(*events, code=0):
    write(text_of(head() + list(events)))
    result = cudaw("trace", "--json", PATH)
    equal(result.code, code)
    return json.loads(result.out)


def printed(*events):
    write(text_of(head() + list(events)))
    result = cudaw("trace", PATH)
    equal((result.code, result.err), (0, ""))
    return result.out


def test_head():
    out = printed(event("sync", "cuCtxSynchronize", 500, 1500))
    contains(out, "train --fast\nprocess 7, cudaw 0.1.0: 1 events in 2.0 ms\n")
    found = summary()
    equal((found["command"], found["pid"], found["unix_ns"], found["events"]),
       ("train --fast", 7, 123, 0))


def test_kernels():
    launches = [event("launch", "_Z4axpyfPf", 100 * i, 2 + i) for i in range(5)]
    launches.append(event("launch", "other", 1000, 50, error=700))
    rows = summary(*launches)["calls"]["launch"]
    equal([(row["name"], row["calls"], row["failed"], row["total_us"], row["max_us"]) for row in rows],
       [("other", 1, 1, 50, 50), ("_Z4axpyfPf", 5, 0, 20, 6)])
    equal(rows[1]["demangled"], "axpy(float, float*)")
    equal(summary(*launches)["launches_per_second"], 5000)
    out = printed(*launches)
    contains(out, "Launches: 6 in 70.0 us, 1 failed, 5000 a second\n")
    contains(out, "  axpy(float, float*)\n")


def test_copies():
    copies = [event("copy", "cuMemcpyHtoD_v2", dur=100, kind="HtoD", bytes=MIB),
              event("copy", "cuMemcpyHtoDAsync_v2", dur=1, kind="HtoD", bytes=3 * MIB),
              event("copy", "cuMemcpy", dur=100, kind="HtoD", bytes=MIB),
              event("copy", "cuMemcpyDtoH_v2", dur=1, kind="DtoH", bytes=7, error=1)]
    rows = {(row["name"], row["async"]): row.get("bytes") for row in
            summary(*copies)["calls"]["copy"]}
    equal(rows, {("HtoD", False): 2 * MIB, ("HtoD", True): 3 * MIB, ("DtoH", False): None})
    out = printed(*copies)
    contains(out, "2.0 MiB  10.5 GB/s  HtoD\n")
    contains(out, "3.0 MiB             HtoD async\n")


def alloc(ptr, size, ts=0.0, call="cuMemAlloc_v2", **more):
    return event("alloc", call, ts, ptr=f"{ptr:#x} (#1+0)", bytes=size, **more)


def free(ptr, ts=0.0):
    return event("free", "cuMemFree_v2", ts, ptr=f"{ptr:#x} (#1+0)")


def test_peak_of_memory():
    found = summary(alloc(0x1000, 4 * MIB, 1), alloc(0x2000, 5 * MIB, 2), free(0x1000, 3),
                    alloc(0x3000, 1 * MIB, 4), alloc(0x1000, 4 * MIB, 5, "cuMemAllocAsync"),
                    free(0x3000, 6), alloc(0x4000, 1, 7), free(0x9000, 8),
                    alloc(0, 9 * MIB, 9, error=2))["memory"]
    equal((found["peak_bytes"], found["peak_count"], found["peak_us"]), (10 * MIB, 3, 5))
    equal([(row["call"], row["each_from"], row["count"], row["bytes"]) for row in found["peak"]],
       [("cuMemAlloc_v2", MIB, 1, MIB), ("cuMemAlloc_v2", 4 * MIB, 1, 5 * MIB),
        ("cuMemAllocAsync", 4 * MIB, 1, 4 * MIB)])
    equal((found["end_bytes"], found["end_count"]), (9 * MIB + 1, 3))
    contains(printed(alloc(0x1000, 4 * MIB, 1), free(0x1000, 3)),
             "Memory: at most 4.0 MiB in 1 allocations, after 1.0 us; 0 B in 0 at the end\n")


def test_an_address_that_another_thread_has_before_its_free_is_written():
    def ended(*events):
        found = summary(*events)["memory"]
        return found["peak_bytes"], found["end_bytes"], found["end_count"]
    first, second = alloc(0x1000, 4 * MIB, 1), alloc(0x1000, 3 * MIB, 10)
    equal(ended(first, second, free(0x1000, 9.5)), (4 * MIB, 3 * MIB, 1))
    equal(ended(first, second, free(0x1000, 9.5), free(0x1000, 12)), (4 * MIB, 0, 0))
    equal(ended(first, second, alloc(0x1000, 2 * MIB, 20), free(0x1000, 9.5), free(0x1000, 19.5)),
       (4 * MIB, 2 * MIB, 1))
    # The first went with its context: nothing frees it.
    equal(ended(first, second, free(0x1000, 12)), (4 * MIB, 0, 0))


def test_more_ways_to_allocate_than_are_told_apart():
    found = summary(*(alloc(i + 1, 10, i, f"way{i}") for i in range(40)))["memory"]
    equal(sum(row["bytes"] for row in found["peak"]), 400)
    contains({row["call"] for row in found["peak"]}, "(others)")


def test_pauses():
    out = printed(event("cudaw", "pause", 0, 2e6, result="ok", bytes=MIB),
                  event("phase", "drain", 0, 1e6))
    contains(out, "Pause and resume: 1 in 2.0 s\n")
    contains(out, "Phases of pauses and resumes: 1 in 1.0 s\n")


def test_unknown_categories_are_shown():
    contains(printed(event("novel", "cuNovel")), "\nnovel: 1 in 1.0 us\n")


def test_an_array_without_its_end():
    """As a process leaves it that was killed between two writes."""
    whole = text_of(head() + [event("sync", "cuCtxSynchronize")])
    for end in ("", "    ", "   ,\n", "\n"):
        write(whole[:-2] + end)
        result = cudaw("trace", PATH)
        equal((result.code, result.err), (0, ""))
        contains(result.out, "Synchronisation: 1 in")


def test_a_file_cut_anywhere():
    whole = text_of(head() + [event("sync", "cuCtxSynchronize", i) for i in range(3)])
    first_end = whole.index("},\n") + 1
    lines = 0
    for size in range(len(whole)):
        write(whole[:size])
        result = cudaw("trace", PATH)
        if size < first_end:
            equal((result.code, result.out), (1, ""))
            contains(result.err, "is not a trace of cudaw")
            continue
        assert result.code in (0, 1), result.code
        equal(result.code == 1, "ends within line" in result.err)
        lines += result.code
    assert lines > 100, "most cuts are within a line"


def test_damaged_lines():
    good = [json.dumps(one) for one in head() + [event("sync", "cuCtxSynchronize")]]
    for bad in ("{", "{}", "nonsense", "5", '{"ph":"X","cat":"a","name":"b","ts":1,"dur":-1}',
                '{"ph":"X","cat":"a","name":"b","ts":1e300}', "[" * 5000, "x" * 100000, "\0" * 50,
                '{"ph":"X","cat":"copy","name":"b","ts":1,"args":{"bytes":-1}}',
                '{"ph":"X","cat":"a","name":"a","name":"b","ts":1}'):
        write("[\n" + ",\n".join([*good, bad, good[-1]]) + "\n]")
        result = cudaw("trace", PATH)
        equal(result.code, 1)
        contains(result.err, "1 lines cannot be read, line 5 first")
        contains(result.out, "Synchronisation: 2 in")


def test_foreign_files():
    for text in ("", "[", "[]", "{}", "\n", "[\n]", '{"traceEvents":[]}', "hello\nworld\n",
                 "[" + json.dumps(event("a", "b")) + "]",
                 text_of([event("launch", "k")]), b"\x7fELF\x02\x01\x01" + bytes(5000),
                 text_of([head()[1]])):
        write(text)
        result = cudaw("trace", PATH)
        equal((result.code, result.out), (1, ""))
        contains(result.err, f"{PATH} is not a trace of cudaw")


def test_a_newer_format():
    write(text_of(head("9.0", 2)))
    result = cudaw("trace", PATH)
    equal((result.code, result.out), (1, ""))
    contains(result.err, "is a trace of a newer cudaw")


def test_names_do_not_drive_the_terminal():
    for option in ([], ["--json"]):
        write(text_of(head() + [event("launch", "evil\x1b[2J\n"), event("\x1b]0;", "a\x7f")]))
        result = cudaw("trace", *option, PATH)
        equal(result.code, 0)
        assert "\x1b" not in result.out and "\\u001b" not in result.out, result.out


def test_noise():
    """Whatever bytes change, it ends in time with 0 or 1."""
    rng = random.Random(20)
    whole = bytearray(text_of(head() + [alloc(i, i) for i in range(20)] +
                              [free(i) for i in range(20)]).encode())
    for _ in range(60):
        noisy = bytearray(whole)
        for _ in range(rng.randrange(1, 30)):
            noisy[rng.randrange(len(noisy))] = rng.randrange(256)
        write(bytes(noisy))
        result = cudaw("trace", "--json", PATH)
        assert result.code in (0, 1), result
        if result.code == 0:
            json.loads(result.out)


def test_memory_is_bounded():
    """What is kept depends on names and live allocations, not on the length of the file."""
    line = ",\n" + json.dumps(event("launch", "kernel", params=["0x0"] * 20))
    with open(PATH, "w", encoding="ascii") as file:
        file.write(text_of(head())[:-2])
        for _ in range(400):
            file.write(line * 500)
        file.write("\n]")
    size = os.path.getsize(PATH)
    done = subprocess.run([CUDAW, "trace", "--json", PATH], capture_output=True, text=True,
                          timeout=LIMIT_S, check=True)
    equal(json.loads(done.stdout)["events"], 200000)
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    assert os.environ.get("SANITIZE") or used < size, f"{used} bytes for a file of {size}"


def test_more_names_than_are_told_apart():
    """Behind the test of memory, whose measure is the largest child's so far."""
    known = event("launch", "known")
    others = [event("launch", f"k{i}") for i in range(100000)]
    rows = {row["name"]: row["calls"] for row in
            summary(known, *others, known, others[0])["calls"]["launch"]}
    equal((len(rows), rows["known"], rows["k0"], rows["(others)"]), (100001, 2, 2, 1))


def test_wrong_usage():
    for args in ([], [PATH, PATH], ["--what", PATH]):
        equal(cudaw("trace", *args).code, 2)
    result = cudaw("trace", os.path.join(DIRECTORY, "none"))
    equal(result.code, 1)
    contains(result.err, "No such file")
    result = cudaw("trace", DIRECTORY)
    equal((result.code, result.err), (1, f"cudaw: {DIRECTORY}: Is a directory\n"))


main()
