#!/usr/bin/env python3
"""Asynchronous training with parameter servers, beside TensorFlow's: ratios from one run.

  bench/parameter_server.py [--hidden 64,1024] [--rounds 3] [--tensorflow] [--before BIN]

The convnet at 64 examples a batch, SGD 0.01, with a chief, two workers and two ps on this host. In turns, several times; the
medians are compared. --before: the same with the programs of another build (its bin folder). --tensorflow also runs TensorFlow's ParameterServerStrategy with the peer script that MUSTER_PEERS names
(run_ps.sh) and the Python that TF_PYTHON names. Two processes that know nothing of each other, pinned to cores 0 and 1, are the bound.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import needs

needs.modules("numpy", "tensorboard")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster" / "base"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import BIN, result  # noqa: E402
from training import train  # noqa: E402


def muster(hidden, steps, programs=BIN):
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        path = folder / "job.json"
        path.write_text(json.dumps({
            "program": "fashion_mnist", "program_args": {"hidden": hidden}, "strategy": "parameter_server", "global_batch_size": 128,
            "optimizer": "sgd", "learning_rate": 0.01, "epochs": 1000, "max_steps": steps, "devices": "cpu",
            "model_dir": str(folder / "model"), "summary": {"every_steps": 100000}}))
        subprocess.run([str(programs / "muster"), "launch", "--workers", "2", "--ps", "2", "--job", str(path)], check=True, timeout=900,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return result(folder / "model")


def tensorflow(hidden, steps):
    out = subprocess.run([needs.variable("MUSTER_PEERS", "the folder of run_ps.sh, which runs TensorFlow") + "/run_ps.sh", str(hidden), str(steps)], check=True, timeout=900, text=True, stdout=subprocess.PIPE).stdout
    return json.loads(out.strip().splitlines()[-1])["img_s"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", default="64,1024")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tensorflow", action="store_true")
    parser.add_argument("--before", type=pathlib.Path, metavar="BIN")
    arguments = parser.parse_args()
    if arguments.tensorflow:
        needs.variable("TF_PYTHON", "the Python of an environment with TensorFlow, which nothing here installs; without --tensorflow it is not needed")
    for hidden in map(int, arguments.hidden.split(",")):
        steps = 2400 if hidden <= 64 else 500
        apart, own, before, peer, mean = [], [], [], [], []
        for _ in range(arguments.rounds):
            apart.append(sum(r["examples_per_second"] for r in train(2, f"convnet-{hidden}", ["0", "1"], cluster=False)))
            got = muster(hidden, steps)
            own.append(got["examples_per_second"])
            mean.append(got["parameter_server"]["staleness"]["mean"])
            if arguments.before:
                before.append(muster(hidden, steps, arguments.before)["examples_per_second"])
            if arguments.tensorflow:
                peer.append(tensorflow(hidden, steps // 4))
        bound, rate = statistics.median(apart), statistics.median(own)
        line = (f"{hidden} hidden: two workers and two ps {rate:,.0f} examples/s, {rate / bound:.3f} of two processes that only compute ({bound:,.0f}); "
                f"staleness {statistics.median(mean):.2f} updates on average")
        if before:
            line += f"; the build before {statistics.median(before):,.0f}: {rate / statistics.median(before):.2f} times that"
        if peer:
            line += f"; TensorFlow {statistics.median(peer):,.0f}: {rate / statistics.median(peer):.2f} times that"
        print(line, flush=True)


if __name__ == "__main__":
    main()
