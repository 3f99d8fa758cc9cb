#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""frag.py: many small allocations, of which few are left, hold what they hold natively."""
import re

from gpulib import Job, check, equal, main

MOST = 1.3  # times as much


def held(case, mode, pauses=0):
    """The MiB that each pattern holds, by its description. The rest of the memory can be allocated."""
    found = {}
    job = Job("fidelity", case, mode=mode)
    if case.endswith("line"):
        job.wait_line("allocated: yes")
        for _ in range(pauses):
            job.pause()
            job.resume()
        job.tell()
    for line in job.result().splitlines():
        what, answer = line.rsplit(": ", 1)
        if re.match("MiB held", what):
            found[what] = int(answer)
        elif what != "allocated":
            equal(answer, "CUDA_SUCCESS", what)
    return found


def compare(case, pauses=0):
    def run():
        native, wrapped = held(case, "native"), held(case, "run", pauses)
        equal(sorted(wrapped), sorted(native), "the patterns")
        check(native, "the program names no pattern")
        for what, most in native.items():
            print(f"# {what}: natively {most}, under cudaw {wrapped[what]}")
        for what, most in native.items():
            check(wrapped[what] <= MOST * most, f"{what}: {wrapped[what]}, natively {most}")
    return f"few of many allocations are left, {case}, {pauses} pauses", run


if __name__ == "__main__":
    main(compare("frag"), compare("frag_line", 2))
