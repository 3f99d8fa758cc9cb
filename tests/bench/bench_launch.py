#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a launch of a kernel with eight parameters costs under cudaw, with its pointers checked and
with translated addresses, by one thread and by sixteen, beside the real driver's launch in the same
process (tests/programs/launches.c). A process for each mode; all are timed in turns, a round each.
BUILD is the build directory. Exit status: 1 where a target is missed.
"""
import argparse
import statistics
import sys

from bench import Racer, take_turns
from benchlib import Table, need

from gpulib import check

MODES = {
    "mapped": {},
    "checked": {"CUDAW_CHECK": "1"},
    "translated": {"CUDAW_ADDRESSING": "translated"},
}
MOST_US_OVER_MAPPED = 0.150  # of translated addressing
LEAST_OF_DRIVER = 0.95       # of the driver's rate, by sixteen threads
MOST_OF_DRIVER = 1.02        # that a mapped launch may take


def race(rounds):
    """A process for each mode, timed in turns: Racers with their figures."""
    racers = {mode: Racer(("launches",), "run", env) for mode, env in MODES.items()}
    for racer in racers.values():
        racer.ready()
        check("the driver is another" in racer.job.lines, "it found no driver but cudaw's face")
    take_turns(list(racers.values()), rounds)
    return racers


def values(runs, mode, name):
    return [value for run in runs for value in run[mode].values[name]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(", by one thread")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--sets", type=int, default=4)
    parser.add_argument("--results", metavar="DIR", help="write DIR/results.json")
    args = parser.parse_args()
    need("programs/launches")
    # What cudaw adds still depends on where a process's memory lands: several of each are timed.
    runs = [race(args.rounds) for _ in range(args.sets)]
    table = Table("launch, 8 parameters", "the driver's", "ours", "more", "least, most",
                  "16 threads", "ours", "target")
    more = {}
    for mode in MODES:
        driver, ours = (values(runs, mode, f"launch_{whose}") for whose in ("driver", "linked"))
        many, our_many = (statistics.median(values(runs, mode, f"launch_16_threads_{whose}"))
                          for whose in ("driver", "linked"))
        differences = [mine - other for mine, other in zip(ours, driver)]
        more[mode] = statistics.median(differences)
        driver, ours = statistics.median(driver), statistics.median(ours)
        verdicts = []
        if mode == "mapped":
            verdicts.append(table.verdict((driver + more[mode]) / driver, MOST_OF_DRIVER))
        if mode == "translated":
            verdicts.append(table.verdict(more[mode] - more["mapped"], MOST_US_OVER_MAPPED))
        if mode != "checked":
            verdicts.append(table.at_least(many / our_many, LEAST_OF_DRIVER))
        table.add(mode, f"{driver:.3f} us", f"{ours:.3f} us", f"{more[mode] * 1000:.0f} ns",
                  f"{min(differences) * 1000:.0f}, {max(differences) * 1000:.0f} ns",
                  f"{many:.3f} us", f"{our_many:.3f} us", ", ".join(verdicts))
        for name, value in (("driver", driver), ("ours", ours), ("more", more[mode]),
                            ("16_threads_driver", many), ("16_threads_ours", our_many)):
            table.figure(f"launch8_{mode}_{name}", value, "us")
    table.show()
    table.write(args.results)
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
