#!/usr/bin/env python3
"""Cost of a trace for training that continues meanwhile: ratios from one run.

  bench/tracing.py [--rounds 15] [--seconds 2]

A chief and a worker train `fashion_mnist`, and a trace is recorded in every other window of so many seconds. The steps per second of a window are
those between the first and the last TensorBoard event in it. flight_recorder_bench measures the cost of a single span.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import needs

needs.modules("tensorboard")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster" / "base"))
from harness import BIN, events, free_ports  # noqa: E402

JOB = {"program": "fashion_mnist", "global_batch_size": 64, "summary": {"every_steps": 2}, "checkpoint": {"every_steps": 1_000_000_000},
       "max_steps": 1_000_000_000, "epochs": 1_000_000_000}


def rate(points, begin, end):
    inside = [(wall, step) for wall, step in points if begin <= wall <= end]
    if len(inside) < 3:
        sys.exit("a window has fewer than three events: give more --seconds")
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-bench-", dir=".") as name:
        folder = pathlib.Path(name)
        cluster = {kind: [f"127.0.0.1:{port}"] for kind, port in zip(("chief", "worker"), free_ports(2))}
        job = folder / "job.json"
        job.write_text(json.dumps({**JOB, "model_dir": str(folder / "model")}))
        tasks = [subprocess.Popen([BIN / f"muster-{kind}", "--job", job], stdout=open(folder / f"{kind}.log", "w"), stderr=subprocess.STDOUT,
                                  env={**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}})}) for kind in cluster]
        windows = {True: [], False: []}
        try:
            time.sleep(5)
            for i in range(2 * arguments.rounds):
                traced, begin = i % 2 == 1, time.time()
                if traced:
                    # More steps than the window has, so that its end ends the trace.
                    subprocess.run([BIN / "muster", "trace", cluster["chief"][0], "--steps", "1000", "--timeout", str(arguments.seconds), "-o",
                                    folder / "trace.json"], check=True, capture_output=True)
                else:
                    time.sleep(arguments.seconds)
                # Without the delivery of the spans, which is after the window.
                windows[traced].append((begin + 0.2, begin + arguments.seconds))
                time.sleep(0.5)
        finally:
            for task in tasks:
                task.terminate()
            for task in tasks:
                task.wait()
        points = [(event.wall_time, event.step) for event in events(folder / "model" / "train") if any(v.tag == "loss" for v in event.summary.value)]
    rates = {traced: [rate(points, *window) for window in windows[traced]] for traced in windows}
    ratios = [on / off for on, off in zip(rates[True], rates[False])]
    print(f"{statistics.median(rates[False]):.0f} steps/s, {statistics.median(rates[True]):.0f} while a trace is recorded, "
          f"{statistics.median(ratios):.3f} of it (from {min(ratios):.3f} to {max(ratios):.3f} in {len(ratios)} pairs of windows)")


if __name__ == "__main__":
    main()
