# SPDX-License-Identifier: Apache-2.0
"""Shared by the benches: the programs that they need, the table that they print, and results.json."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from harness import BUILD, Skip  # noqa: E402


def need(*programs):
    """End with a word where one of these, as "bench/bench_copy", was not built."""
    for program in programs:
        path = os.path.join(BUILD, "tests", program)
        if not os.path.exists(path):
            sys.exit(f"{path} is not there: 'make programs' first")


class Table:
    """Rows of measurements; the last column says whether a target is met."""

    def __init__(self, *heads):
        self.rows = [heads]
        self.figures = []
        self.missed = 0

    def add(self, *cells):
        self.rows.append(tuple(str(cell) for cell in cells))

    def figure(self, name, value, unit):
        self.figures.append({"name": name, "value": value, "unit": unit})

    def verdict(self, value, most):
        """The cell that holds @value against the most that it may be."""
        met = value <= most
        self.missed += not met
        return f"{'ok' if met else 'MISSED'} (<= {most:.4g})"

    def at_least(self, value, least):
        """The same for the least that it may be."""
        met = value >= least
        self.missed += not met
        return f"{'ok' if met else 'MISSED'} (>= {least:.3g})"

    def show(self):
        widths = [max(len(row[i]) for row in self.rows) for i in range(len(self.rows[0]))]
        for number, row in enumerate(self.rows):
            first, rest = row[0].ljust(widths[0]), row[1:-1]
            cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:-1])]
            print("  ".join([first, *cells, row[-1]]).rstrip())
            if number == 0:
                print("-" * (sum(widths) + 2 * (len(widths) - 1)))
        sys.stdout.flush()

    def fill(self, measure, directory):
        """Show and write what @measure() adds, also if it fails. The exit code of a bench: 77 if it was skipped."""
        try:
            measure()
        except Skip as skip:
            print(f"skipped: {skip}")
            return 77
        finally:
            self.show()
            self.write(directory)
        return 1 if self.missed else 0

    def write(self, directory):
        if directory:
            os.makedirs(directory, exist_ok=True)
            with open(os.path.join(directory, "results.json"), "w", encoding="utf-8") as file:
                json.dump(self.figures, file, indent=1)
                file.write("\n")
