#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a launch of a kernel with eight parameters costs: natively, under cudaw, with its pointers
checked and with translated addresses, by one thread and by sixteen. All are timed in turns, a
round each. BUILD is the build folder. Exit status: 1 where a target is missed.
"""
import argparse
import os
import statistics
import sys

from bench import Racer, take_turns
from benchlib import Table

from gpulib import BUILD

SOURCE = (os.path.join(BUILD, "tests", "bench", "bench_launch"),)
MODES = {
    "native": ("native", {}),
    "mapped": ("run", {}),
    "checked": ("run", {"CUDAW_CHECK": "1"}),
    "translated": ("run", {"CUDAW_ADDRESSING": "translated"}),
}
MOST_US_OVER_MAPPED = 0.150  # of translated addressing
LEAST_OF_NATIVE = 0.95       # of its rate, by sixteen threads
NATIVE_LAUNCH = 1.02         # the most that mapped may take of native


def race(rounds):
    """A process for each mode, timed in turns: Racers with their figures."""
    racers = {name: Racer(SOURCE, mode, env) for name, (mode, env) in MODES.items()}
    for racer in racers.values():
        racer.ready()
    take_turns(list(racers.values()), rounds)
    return racers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--sets", type=int, default=4)
    parser.add_argument("--results", metavar="DIR", help="write DIR/results.json")
    args = parser.parse_args()
    # Where a process's memory lands moves its speed by a few percent: several of each are timed.
    runs = [race(args.rounds) for _ in range(args.sets)]
    table = Table("launch, 8 parameters", "1 thread", "16 threads", "target")
    one, many = ({name: statistics.median(value for run in runs for value in run[name].values[what])
                  for name in MODES} for what in ("launch", "launch_16_threads"))
    for name in MODES:
        verdicts = []
        if name == "mapped":
            verdicts.append(table.verdict(one[name] / one["native"], NATIVE_LAUNCH))
        if name == "translated":
            verdicts.append(table.verdict(one[name] - one["mapped"], MOST_US_OVER_MAPPED))
        if name in ("mapped", "translated"):
            verdicts.append(table.at_least(many["native"] / many[name], LEAST_OF_NATIVE))
        table.add(name, f"{one[name]:.3f} us", f"{many[name]:.3f} us", ", ".join(verdicts))
        table.figure(f"launch8_{name}", one[name], "us")
        table.figure(f"launch8_16_threads_{name}", many[name], "us")
    table.show()
    table.write(args.results)
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
