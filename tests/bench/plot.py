#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plot.py RESULTS.json OUT.svg: draw what a bench measured as bars: of bench_pause.py, the seconds for the
whole GPU, beside the driver's own checkpoint of the same run; of bench_turns.py's part "turns", how much of
what they make one after the other two jobs make in turns.
"""
import json
import re
import sys

LABEL, SCALE, BAR, GAP = 290, 470, 24, 12   # pixels
COLOURS = {"cudaw": "#2a6f97", "alone": "#b0b7bf"}


def pause_bars(figures):
    """(label, who, value, its text), for the size that both measured."""
    seconds = {f["name"]: f["value"] for f in figures if f["unit"] == "s"}
    for verb in ("pause", "resume"):
        alone = next(name for name in seconds
                     if re.fullmatch(rf"driver_alone_{verb}_\d+_GiB", name))
        size = alone.split("_")[3]
        yield f"{verb} {size} GiB, driver alone", "alone", seconds[alone], f"{seconds[alone]:.2f} s"
        for kind in ("_first_of_the_process", "_later") if verb == "pause" else ("",):
            name = f"{verb}_{size}_GiB_whole_GPU{kind}"
            words = kind.replace("_", " ").strip()
            label = f"{verb} {size} GiB, cudaw" + (f", {words}" if words else "")
            yield label, "cudaw", seconds[name], f"{seconds[name]:.2f} s"


def turns_bars(figures):
    """The same of turns, the longest first."""
    yield "one after the other", "alone", 1, "100 %"
    found = [(float(match[1]), f["value"]) for f in figures
             if (match := re.fullmatch(r"turns_quantum_([0-9.]+)_of_serial", f["name"]))]
    for quantum, value in sorted(found, reverse=True):
        yield f"in turns of {quantum:g} s", "cudaw", value, f"{100 * value:.1f} %"


def svg(bars):
    longest = max(value for _, _, value, _ in bars)
    height = len(bars) * (BAR + GAP) + GAP
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + SCALE + 90}" '
           f'height="{height}" font-family="sans-serif" font-size="14">')
    yield '<rect width="100%" height="100%" fill="white"/>'
    for i, (label, who, value, text) in enumerate(bars):
        y = GAP + i * (BAR + GAP)
        width = max(1, SCALE * value / longest)
        yield (f'<text x="{LABEL - 10}" y="{y + 17}" text-anchor="end">{label}</text>'
               f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" '
               f'fill="{COLOURS[who]}"/>'
               f'<text x="{LABEL + width + 8:.1f}" y="{y + 17}">{text}</text>')
    yield "</svg>"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        figures = json.load(file)
    turns = any(f["name"].startswith("turns_quantum_") for f in figures)
    bars = list((turns_bars if turns else pause_bars)(figures))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(svg(bars)) + "\n")


main()
