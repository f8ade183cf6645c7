#!/usr/bin/env python3
"""Memory of the chief of a parameter-server job for a dense model with Adam, whose slots are twice as large as its parameters.

  bench/dense_state.py [--hidden 18000] [--limit MB]

fashion_mnist with HIDDEN units (5,418 parameters each, 390 MB for 18,000) is trained on two servers without model_dir, with it, and on from there on three
servers. Prints the chief's peak of resident memory in each, beyond that of a small model, as multiples of the parameters' size; what a cut costs training
beside what reading and writing takes; and whether all tensors are equal after a step at rate 0. LIMIT bounds the chief's data (RLIMIT_DATA).
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

import needs

needs.modules("numpy", "safetensors")
import numpy
from safetensors import safe_open

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster" / "base"))
from harness import BIN, free_ports  # noqa: E402


def run(folder, label, ps, limit, job):
    """The chief's log, and its peak in bytes."""
    (folder / f"{label}.json").write_text(json.dumps(job))
    names = ["chief", "worker"] + ["ps"] * ps
    cluster, processes = {}, []
    for name, port in zip(names, free_ports(len(names))):
        cluster.setdefault(name, []).append(f"127.0.0.1:{port}")
    for name, addresses in cluster.items():
        for index in range(len(addresses)):
            env = {**os.environ, "MUSTER_LOG_LEVEL": "debug", "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": name, "index": index}})}
            bound = (lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))) if limit and name == "chief" else None
            log = folder / f"{label}-{name}-{index}.log"
            with open(log, "w") as file:
                processes.append((log, subprocess.Popen([str(BIN / f"muster-{name}"), "--job", str(folder / f"{label}.json")], env=env,
                                                        stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, preexec_fn=bound)))
    _, status, usage = os.wait4(processes[0][1].pid, 0)
    processes[0][1].returncode = os.waitstatus_to_exitcode(status)
    for log, process in processes:
        if process.wait(60) != 0:
            sys.exit(f"{log.name} ended with {process.returncode}:\n{processes[0][0].read_text()[-3000:]}\n{log.read_text()[-2000:]}")
    return processes[0][0].read_text(), usage.ru_maxrss * 1024


def equal(before, after):
    """Compares all tensors, one in memory at a time. Steps must have increased by one."""
    for name in "model.safetensors", "optimizer.safetensors":
        with safe_open(before / name, "numpy") as a, safe_open(after / name, "numpy") as b:
            for key in a.keys():
                # A step at rate 0 changes the moments, not the parameters.
                if name == "model.safetensors" and not numpy.array_equal(a.get_tensor(key), b.get_tensor(key)):
                    return f"{key} is NOT EQUAL"
                if key.endswith(".step") and b.get_tensor(key) != a.get_tensor(key) + 1:
                    return f"{key} did NOT increase by one"
    return "equal"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=18000)
    parser.add_argument("--limit", type=int, default=0, help="megabytes of data of the chief")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)

        def job(hidden, **keys):
            return {"program": "fashion_mnist", "program_args": {"hidden": hidden, "validation": 0, "train_examples": 64}, "data": {"train": "program"}, "strategy": "parameter_server",
                    "optimizer": "adam", "learning_rate": 1e-4, "global_batch_size": 16, "devices": "cpu", "epochs": 100, "max_steps": 4, "summary": {"every_steps": 1000}, **keys}
        saved = {"model_dir": str(folder / "model"), "checkpoint": {"every_steps": 2, "keep": 2}}
        _, base = run(folder, "small", 2, 0, job(64))
        limit = arguments.limit << 20
        peaks = {}
        _, peaks["start, no model_dir"] = run(folder, "start", 2, limit, job(arguments.hidden))
        log, peaks["save"] = run(folder, "save", 2, limit, job(arguments.hidden, **saved))
        checkpoints = folder / "model" / "checkpoints"
        before = checkpoints / "step-00000004"
        size = (before / "model.safetensors").stat().st_size
        again, peaks["restore"] = run(folder, "restore", 3, limit, job(arguments.hidden, **saved, **{"max_steps": 5, "learning_rate": 0}))
        print(f"parameters {size / 1e6:,.0f} MB, slots {(before / 'optimizer.safetensors').stat().st_size / 1e6:,.0f} MB; the chief of a small model {base / 1e6:,.0f} MB"
              + (f"; at most {arguments.limit} MB of data" if limit else ""))
        for label, peak in peaks.items():
            print(f"{label}: {peak / 1e6:,.0f} MB, {(peak - base) / size:.2f} times the parameters beyond that")
        cuts = re.findall(r"a cut of \d+ shards after step \d+ took ([\d.]+) s", log)
        reads = re.findall(r"shards were read and written in ([\d.]+) s", log)
        print(f"cuts take {', '.join(cuts)} s, reading and writing {', '.join(reads)} s")
        print(f"on three servers, after a step at rate 0: {equal(before, checkpoints / 'step-00000005')}")


if __name__ == "__main__":
    main()
