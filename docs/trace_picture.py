#!/usr/bin/env python3
"""trace_picture.py TRACE.json OUT.svg [--steps N]: draws the first steps of a trace of `muster trace`, one row for each lane.

Nested spans are drawn inside each other. The picture is made of text and rectangles alone, for pages that show no JSON.
"""
import argparse
import collections
import html
import json
import pathlib

COLORS = {"step": "#e8e8e8", "train_step": "#d5dde8", "forward": "#7aa6d8", "backward": "#e39a5c", "wait for reductions": "#d8d27a", "update": "#8fbf8f",
          "input": "#b9a0d0", "load batch": "#b9a0d0", "reduce bucket": "#c96567", "save": "#7fb9b5", "snapshot": "#7fb9b5", "evaluate": "#b8b8b8"}
OTHER, ROW, LEFT, WIDTH = "#bbbbbb", 34, 270, 1000
LEGEND = ["input", "forward", "backward", "wait for reductions", "reduce bucket", "update", "evaluate", "save"]


def depth_of(spans):
    """How many spans each one lies in."""
    depths, open_spans = {}, []
    for span in sorted(spans, key=lambda s: (s["ts"], -s["dur"])):
        while open_spans and open_spans[-1] <= span["ts"] + 0.001:
            open_spans.pop()
        depths[id(span)] = len(open_spans)
        open_spans.append(span["ts"] + span["dur"])
    return depths


def draw(trace, steps):
    events = trace["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    tasks = {e["pid"]: e["args"]["name"].split(" (")[0] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    spans = [e for e in events if e["ph"] == "X"]
    first = min(e["args"]["step"] for e in spans if e["cat"] == "step")
    shown = [e for e in spans if e["cat"] == "step" and first <= e["args"]["step"] < first + steps]
    begin, end = min(e["ts"] for e in shown), max(e["ts"] + e["dur"] for e in shown)
    lanes = collections.defaultdict(list)
    for e in spans:
        if e["ts"] < end and e["ts"] + e["dur"] > begin:
            lanes[e["pid"], e["tid"]].append(e)
    scale, out, y = WIDTH / (end - begin), [], 30
    for lane in sorted(lanes):
        depths = depth_of(lanes[lane])
        out.append(f'<text x="{LEFT - 8}" y="{y + ROW / 2 + 4}" text-anchor="end">{html.escape(tasks[lane[0]])}: {html.escape(names[lane])}</text>')
        for e in sorted(lanes[lane], key=lambda s: (s["ts"], -s["dur"])):
            left, right = max(e["ts"], begin), min(e["ts"] + e["dur"], end)
            inset = min(3 * depths[id(e)], 12)
            out.append(f'<rect x="{LEFT + (left - begin) * scale:.1f}" y="{y + inset}" width="{max(0.4, (right - left) * scale):.1f}" '
                       f'height="{ROW - 6 - 2 * inset}" fill="{COLORS.get(e["cat"], OTHER)}"><title>{html.escape(e["name"])}: {e["dur"] / 1000:.2f} ms</title></rect>')
            if (right - left) * scale > 8 * len(e["name"]) and e["cat"] not in ("step", "train_step"):
                out.append(f'<text x="{LEFT + ((left + right) / 2 - begin) * scale:.1f}" y="{y + ROW / 2 + 2}" text-anchor="middle" font-size="11">{html.escape(e["name"])}</text>')
        y += ROW
    for i in range(11):
        x = LEFT + WIDTH * i / 10
        out.append(f'<line x1="{x}" x2="{x}" y1="26" y2="{y}" stroke="#888" stroke-width="0.4"/>'
                   f'<text x="{x}" y="20" text-anchor="middle" font-size="11">{(end - begin) * i / 10000:.1f} ms</text>')
    x = LEFT
    for name in LEGEND:
        out.append(f'<rect x="{x}" y="{y + 10}" width="14" height="14" fill="{COLORS[name]}"/><text x="{x + 19}" y="{y + 21}">{name}</text>')
        x += 36 + 8 * len(name)
    height = y + 36
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 40} {height}" font-family="sans-serif" font-size="13">\n'
            f'<rect width="{LEFT + WIDTH + 40}" height="{height}" fill="white"/>\n' + "\n".join(out) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=2)
    arguments = parser.parse_args()
    arguments.picture.write_text(draw(json.loads(arguments.trace.read_text()), arguments.steps))


if __name__ == "__main__":
    main()
