#!/usr/bin/env python3
"""Scaling of two processes on one host, and the time until a cluster trains: ratios from one run.

  bench/training.py [--models convnet-64,convnet-1024] [--rounds 3] [--ddp] [--before BIN]

The tutorial's convnet with 64 or 1,024 hidden units (64 examples a replica, SGD), mobilenet_v2 (16 images of 128 x 128), gpt (10.7
million parameters, 8 sequences of 128), cyclegan (one pair of 64 x 64): one process pinned to core 0; two that know nothing of each other, pinned to cores 0 and 1 (the
bound: what the cores leave each other); and a cluster of two, pinned likewise. In turns, several times; the medians are compared. --ddp
also runs the same in PyTorch, tuned, in one process and two: for the convnets the peer script torch_ddp.py that MUSTER_PEERS names, for
the others those in bench/peers. --before, the same with the programs of another build (its bin folder). Then the time from `muster
launch` to the first finished step of a chief and two workers, of that build too.
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

needs.modules("numpy", "tensorboard")
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster" / "base"))
from harness import BIN, SOURCE, events, free_ports, result  # noqa: E402


def convnet(hidden, steps):
    return steps, lambda folder: {
        "program": "fashion_mnist", "program_args": {"hidden": hidden}, "per_replica_batch_size": 64, "optimizer": "sgd", "learning_rate": 0.01}


def mobilenet_v2(folder):
    random = numpy.random.default_rng(1)
    numpy.save(folder / "x.npy", random.integers(0, 256, (64, 3, 128, 128), numpy.uint8))
    numpy.save(folder / "y.npy", random.integers(0, 2, 64))
    return {"program": "image_classifier", "program_args": {"classes": 2, "dropout": 0.2}, "per_replica_batch_size": 16, "optimizer": "adam",
            "learning_rate": 0.001, "data": {"train": {"format": "npy", "x": "x.npy", "y": "y.npy"}}}


def gpt(folder):
    (folder / "text").write_bytes(numpy.random.default_rng(1).integers(0, 256, 64 * 128 + 1, numpy.uint8).tobytes())
    return {"program": "language_model", "program_args": {"layers": 6, "heads": 6, "width": 384}, "per_replica_batch_size": 8,
            "learning_rate": 0.001, "data": {"train": {"format": "text", "path": "text", "length": 128}}}


def cyclegan(folder):
    for name in "xy":
        numpy.save(folder / f"{name}.npy", numpy.random.default_rng(ord(name)).integers(0, 256, (16, 3, 64, 64), numpy.uint8))
    return {"program": "cyclegan", "per_replica_batch_size": 1, "data": {"train": {"format": "npy", "x": "x.npy", "y": "y.npy"}}}


# The number of steps, and what the job says.
MODELS = {"convnet-64": convnet(64, 1200), "convnet-1024": convnet(1024, 250), "mobilenet_v2": (120, mobilenet_v2), "gpt": (20, gpt),
          "cyclegan": (16, cyclegan)}


def write_job(folder, model, steps=None):
    enough, keys = MODELS[model]
    path = folder / "job.json"
    path.write_text(json.dumps({"epochs": 100000, "max_steps": steps or enough, "devices": "cpu", "summary": {"every_steps": 100000},
                                "checkpoint": {"every_epochs": 100000}, **keys(folder)}))
    return path


def train(processes, model, cores, cluster=True, programs=BIN, environment=None, steps=None):
    """The results of the processes: those of a cluster are rank 0's alone."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        path = write_job(folder, model, steps)
        addresses = [f"127.0.0.1:{port}" for port in free_ports(processes)]
        running = []
        for i in range(processes):
            env = {**{k: v for k, v in os.environ.items() if k != "TF_CONFIG"}, **(environment or {})}
            if processes > 1 and cluster:
                env["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}})
            command = ["taskset", "-c", cores[i], str(programs / "muster-worker"), "--job", str(path), "--set", f"model_dir={folder / f'model-{0 if cluster else i}'}"]
            running.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
        for process in running:
            _, text = process.communicate(timeout=600)
            if process.returncode != 0:
                raise SystemExit(text.decode())
        return [result(model) for model in sorted(folder.glob("model-*"))]


def peer(model, processes):
    """Examples a second of PyTorch, of all processes."""
    python, tools = (subprocess.check_output([str(SOURCE / "deploy" / "bootstrap"), name], text=True).strip() for name in ("--prefix", "--tools"))
    steps = MODELS[model][0]
    if model.startswith("convnet-"):
        command = [needs.variable("MUSTER_PEERS", "the folder of torch_ddp.py, which --ddp runs for the convnets") + "/torch_ddp.py", model.removeprefix("convnet-"), str(steps), "tuned"]
    else:
        command = [str(SOURCE / "bench" / "peers" / "models.py"), model, str(steps)]
    (port,) = free_ports(1)
    running = []
    for i in range(processes):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": "libtcmalloc_minimal.so.4", "PYTHONPATH": str(*pathlib.Path(tools).glob("lib/python3*/site-packages"))}
        if processes > 1:
            env.update(GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(processes), RANK=str(i))
        running.append(subprocess.Popen(["taskset", "-c", str(i), python + "/bin/python", *command], env=env, stdout=subprocess.PIPE, text=True))
    out = [p.communicate(timeout=600)[0] for p in running]
    if any(p.returncode for p in running):
        raise SystemExit("the peer failed")
    got = json.loads(out[0].strip().splitlines()[-1])
    return got.get("examples_per_second") or got["img_s"]


def start_up(programs=BIN):
    """Seconds from the start of `muster launch` to the first finished step of three processes."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        path = write_job(folder, "convnet-64", 5)
        begin = time.time()
        subprocess.run([str(programs / "muster"), "launch", "--workers", "2", "--job", str(path), "--set", f"model_dir={folder / 'model'}",
                        "--set", "summary.every_steps=1"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        return min(event.wall_time for event in events(folder / "model" / "train") if event.step == 1) - begin


def measure(model, arguments):
    one, apart, two, waits = [], [], [], []
    before, peers = {1: [], 2: []}, {1: [], 2: []}
    for _ in range(arguments.rounds):
        one.append(train(1, model, ["0"])[0]["examples_per_second"])
        apart.append(sum(r["examples_per_second"] for r in train(2, model, ["0", "1"], cluster=False)))
        got = train(2, model, ["0", "1"])[0]
        two.append(got["examples_per_second"])
        waits.append(got["step_seconds"]["wait"] * 1e3)
        for processes, rates in before.items() if arguments.before else ():
            rates.append(train(processes, model, ["0", "1"], programs=arguments.before)[0]["examples_per_second"])
        for processes, rates in peers.items() if arguments.ddp else ():
            rates.append(peer(model, processes))
    a, bound, b = statistics.median(one), statistics.median(apart), statistics.median(two)
    line = (f"{model}: one process {a:,.1f} examples/s, two apart {bound:,.1f} ({bound / (2 * a):.3f} of twice one), a cluster of two {b:,.1f}: "
            f"{b / (2 * a):.3f} of twice one, {b / bound:.3f} of two apart; {statistics.median(waits):.2f} ms a step in reductions")
    if arguments.before:
        line += f"; {a / statistics.median(before[1]):.3f} and {b / statistics.median(before[2]):.3f} times what one and two did before"
    if arguments.ddp:
        alone, ddp = statistics.median(peers[1]), statistics.median(peers[2])
        line += (f"; PyTorch tuned {alone:,.1f}, with DDP {ddp:,.1f} ({ddp / (2 * alone):.3f} of twice one): Muster {a / alone:.2f} and {b / ddp:.2f} times that")
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="convnet-64,convnet-1024", help=f"some of {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--before", type=pathlib.Path, metavar="BIN")
    arguments = parser.parse_args()
    for model in arguments.models.split(","):
        measure(model, arguments)
    builds = [BIN] + ([arguments.before] if arguments.before else [])
    times = [[start_up(programs) for programs in builds] for _ in range(5)]
    for programs, of_build in zip(["", ", before"], zip(*times)):
        print(f"launch to the first finished step of 3 processes{programs}: median {statistics.median(of_build):.2f} s "
              f"(of {', '.join(f'{t:.2f}' for t in of_build)})")


if __name__ == "__main__":
    main()
