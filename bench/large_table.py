#!/usr/bin/env python3
"""A table larger than what chief and workers may use: trained, saved, and restored on another number of servers.

  bench/large_table.py [--limit MB] [--times 4]

The chief and two workers may have LIMIT megabytes of data each (RLIMIT_DATA); matrix_factorization trains rows that are TIMES as
large as that on three servers, saves them, and continues with them on two. Prints the cost of a cut for training beside the time of
writing, and compares all rows.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import needs

needs.modules("numpy", "safetensors")
import numpy
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster" / "base"))
from harness import BIN, free_ports  # noqa: E402

WIDTH, BATCH = 128, 8192


def run(folder, job, ps, limit, sets):
    """The chief's log."""
    names = ["chief"] + ["worker"] * 2 + ["ps"] * ps
    cluster, processes = {}, []
    for name, port in zip(names, free_ports(len(names))):
        cluster.setdefault(name, []).append(f"127.0.0.1:{port}")
    for name, addresses in cluster.items():
        for index in range(len(addresses)):
            env = {**os.environ, "MUSTER_LOG_LEVEL": "debug",
                   "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": name, "index": index}})}
            bound = None if name == "ps" else lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            log = folder / f"{ps}-{name}-{index}.log"
            with open(log, "w") as file:
                processes.append((log, subprocess.Popen([str(BIN / f"muster-{name}"), "--job", str(job)] + [x for s in sets for x in ("--set", s)], env=env,
                                                        stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, preexec_fn=bound)))
    for log, process in processes:
        if process.wait(900) != 0:
            sys.exit(f"{log.name} ended with {process.returncode}:\n{log.read_text()[-3000:]}")
    return processes[0][0].read_text()


def tables(folder):
    pieces = [load_file(path) for path in sorted(folder.glob("tables-*"))]
    keys = numpy.concatenate([piece["users.keys"] for piece in pieces])
    order = numpy.argsort(keys)
    return keys[order], {name: numpy.concatenate([piece["users." + name] for piece in pieces])[order] for name in ("rows", "sum")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, default=700, help="megabytes of data of the chief, and of each worker")
    parser.add_argument("--times", type=float, default=4)
    arguments = parser.parse_args()
    limit = arguments.limit << 20
    rows = int(arguments.times * limit / (2 * 4 * WIDTH))
    # Drawn evenly: after three draws for each row 95 % have come.
    steps = int(3 * rows / 0.95 / (BATCH // 2))
    users = int(rows / 0.95)
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        job = folder / "job.json"
        job.write_text(json.dumps({
            "program": "matrix_factorization", "strategy": "parameter_server", "global_batch_size": BATCH, "devices": "cpu", "max_steps": steps, "epochs": 1000,
            "program_args": {"users": users, "items": 1000, "rank": 2, "examples": 40_000_000, "validation": 0, "width": WIDTH},
            "model_dir": str(folder / "model"), "summary": {"every_steps": 1000}, "checkpoint": {"every_steps": steps // 2, "keep": 1}}))
        start = time.monotonic()
        log = run(folder, job, 3, limit, [])
        first = time.monotonic() - start
        checkpoints = folder / "model" / "checkpoints"
        keys, before = tables(checkpoints / f"step-{steps:08}")
        size = before["rows"].nbytes + before["sum"].nbytes
        cuts = [float(x) for x in re.findall(r"a cut of 3 shards after step \d+ took ([\d.]+) s", log)]
        reads = [float(x) for x in re.findall(r"3 shards were read and written in ([\d.]+) s", log)]
        print(f"a table of {len(keys):,} rows, {size / 1e6:,.0f} MB with their slots, {size / limit:.1f} times the {arguments.limit} MB that the chief "
              f"and each worker may have: {steps} batches in {first:.0f} s; a cut takes {max(cuts):.3f} s, writing {max(reads):.1f} s ({max(cuts) / max(reads):.3f})", flush=True)
        run(folder, job, 2, limit, [f"max_steps={steps + 1}", "learning_rate=0"])
        keys_after, after = tables(checkpoints / f"step-{steps + 1:08}")
        old = numpy.isin(keys_after, keys, assume_unique=True)
        same = numpy.array_equal(keys_after[old], keys) and numpy.array_equal(after["rows"][old], before["rows"])
        # The step has added to the accumulators of its own rows.
        moved = numpy.any(after["sum"][old] != before["sum"], axis=1).sum() if same else 0
        same = same and moved <= BATCH
        print(f"on two servers, after a step at rate 0: {old.sum():,} rows are {'equal' if same else 'NOT EQUAL'}, and so are the slots of all but "
              f"{moved:,} that the step touched")
        sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
