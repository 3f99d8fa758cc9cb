#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plot.py RESULTS.json OUT.svg: draw what bench_pause.py measured of the whole GPU, beside the
driver's own checkpoint of the same run, as bars of seconds.
"""
import json
import re
import sys

LABEL, SCALE, BAR, GAP = 290, 470, 24, 12   # pixels
COLOURS = {"cudaw": "#2a6f97", "driver alone": "#b0b7bf"}


def rows(figures):
    """(label, who, seconds), for the size that both measured."""
    seconds = {f["name"]: f["value"] for f in figures if f["unit"] == "s"}
    for verb in ("pause", "resume"):
        alone = next(name for name in seconds
                     if re.fullmatch(rf"driver_alone_{verb}_\d+_GiB", name))
        size = alone.split("_")[3]
        yield f"{verb} {size} GiB, driver alone", "driver alone", seconds[alone]
        for kind in ("_first_of_the_process", "_later") if verb == "pause" else ("",):
            name = f"{verb}_{size}_GiB_whole_GPU{kind}"
            words = kind.replace("_", " ").strip()
            label = f"{verb} {size} GiB, cudaw" + (f", {words}" if words else "")
            yield label, "cudaw", seconds[name]


def svg(bars):
    longest = max(seconds for _, _, seconds in bars)
    height = len(bars) * (BAR + GAP) + GAP
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + SCALE + 90}" '
           f'height="{height}" font-family="sans-serif" font-size="14">')
    yield '<rect width="100%" height="100%" fill="white"/>'
    for i, (label, who, seconds) in enumerate(bars):
        y = GAP + i * (BAR + GAP)
        width = max(1, SCALE * seconds / longest)
        yield (f'<text x="{LABEL - 10}" y="{y + 17}" text-anchor="end">{label}</text>'
               f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" '
               f'fill="{COLOURS[who]}"/>'
               f'<text x="{LABEL + width + 8:.1f}" y="{y + 17}">{seconds:.2f} s</text>')
    yield "</svg>"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        bars = list(rows(json.load(file)))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(svg(bars)) + "\n")


main()
