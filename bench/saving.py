#!/usr/bin/env python3
"""Cost of a checkpoint of 400 MB for training that continues meanwhile: a ratio from one run.

  bench/saving.py [--hidden 6160] [--steps 270] [--rounds 3]

The convnet with so many hidden units that parameters and Adam's slots are 400 MB, on a chief and a worker, one core each, with
and without a checkpoint a quarter of the way through. In turns; the time of the middle steps, by the times of their TensorBoard
events (about 30 s of them), is compared. What the copy in memory takes is part of it. How fast the disk takes a checkpoint is checkpoint_bench's.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import needs

needs.modules("tensorboard")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster" / "base"))
from harness import BIN, events  # noqa: E402


def train(hidden, steps, save):
    """Seconds from step 5 to the last but one, and what the chief said of its saves."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-", dir=".") as name:
        folder = pathlib.Path(name)
        job = folder / "job.json"
        job.write_text(json.dumps({
            "program": "fashion_mnist", "program_args": {"hidden": hidden}, "per_replica_batch_size": 32, "optimizer": "adam",
            "learning_rate": 0.001, "max_steps": steps, "devices": "cpu", "summary": {"every_steps": 1}, "model_dir": str(folder / "model"),
            "checkpoint": {"every_steps": steps // 4 if save else 10 * steps, "keep": 1}}))
        done = subprocess.run([str(BIN / "muster"), "launch", "--workers", "1", "--job", str(job)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise SystemExit(done.stdout + done.stderr)
        # Only the first of the saves lies in the window that is compared: it ends before the second.
        times = {event.step: event.wall_time for event in events(folder / "model" / "train") if any(v.tag == "loss" for v in event.summary.value)}
        first, last = 5, steps // 2 - 1
        return times[last] - times[first], re.findall(r"saved step \d+: [^,]*", done.stdout + done.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=6160)
    parser.add_argument("--steps", type=int, default=270)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    without, with_save, said = [], [], []
    for _ in range(arguments.rounds):
        without.append(train(arguments.hidden, arguments.steps, False)[0])
        seconds, lines = train(arguments.hidden, arguments.steps, True)
        with_save.append(seconds)
        said += lines[:1]
    a, b = statistics.median(without), statistics.median(with_save)
    print("; ".join(said))
    print(f"{a:.1f} s without a checkpoint, {b:.1f} s with one: {100 * (b / a - 1):+.1f} % (rounds: "
          + ", ".join(f"{100 * (y / x - 1):+.1f} %" for x, y in zip(without, with_save)) + ")")


if __name__ == "__main__":
    main()
