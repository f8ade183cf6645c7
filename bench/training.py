#!/usr/bin/env python3
"""How well two processes on one host scale, and how soon a cluster trains: ratios from one run.

  bench/training.py [--hidden 64,1024] [--rounds 3] [--ddp] [--before BIN]

The convnet at 64 examples a replica, SGD 0.01: one process pinned to core 0; two that know nothing of each other, pinned to
cores 0 and 1 (the bound: what the cores leave each other); and a cluster of two, pinned likewise. In turns, several times; the
medians are compared. --ddp also runs PyTorch's DistributedDataParallel over gloo, tuned, with the peer script that
MUSTER_PEERS names (torch_ddp.py); --before, the same with the programs of another build (its bin folder). Then the time from
`muster launch` to the first finished step of a chief and two workers, of that build too.
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster"))
from harness import BIN, SOURCE, events, free_ports, result  # noqa: E402


def job(folder, hidden, steps):
    path = folder / "job.json"
    path.write_text(json.dumps({
        "program": "fashion_mnist", "program_args": {"hidden": hidden}, "per_replica_batch_size": 64, "optimizer": "sgd",
        "learning_rate": 0.01, "epochs": 1000, "max_steps": steps, "devices": "cpu", "summary": {"every_steps": 100000}}))
    return path


def train(processes, hidden, steps, cores, cluster=True, programs=BIN):
    """The results of the processes: those of a cluster are rank 0's alone."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        path = job(folder, hidden, steps)
        addresses = [f"127.0.0.1:{port}" for port in free_ports(processes)]
        running = []
        for i in range(processes):
            env = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
            if processes > 1 and cluster:
                env["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}})
            command = ["taskset", "-c", cores[i], str(programs / "muster-worker"), "--job", str(path), "--set", f"model_dir={folder / f'model-{0 if cluster else i}'}"]
            running.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
        for process in running:
            _, text = process.communicate(timeout=600)
            if process.returncode != 0:
                raise SystemExit(text.decode())
        return [result(model) for model in sorted(folder.glob("model-*"))]


def ddp(script, hidden, steps):
    python = subprocess.check_output([str(SOURCE / "deploy" / "bootstrap"), "--prefix"], text=True).strip() + "/bin/python"
    (port,) = free_ports(1)
    running = []
    for i in range(2):
        env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2",
               "RANK": str(i), "OMP_NUM_THREADS": "1", "LD_PRELOAD": "libtcmalloc_minimal.so.4"}
        running.append(subprocess.Popen(["taskset", "-c", str(i), python, script, str(hidden), str(steps), "tuned"], env=env, stdout=subprocess.PIPE, text=True))
    out = [p.communicate(timeout=600)[0] for p in running]
    return json.loads(out[0].strip().splitlines()[-1])["img_s"]


def start_up(programs=BIN):
    """Seconds from the start of `muster launch` to the first finished step of three processes."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        path = job(folder, 64, 5)
        begin = time.time()
        subprocess.run([str(programs / "muster"), "launch", "--workers", "2", "--job", str(path), "--set", f"model_dir={folder / 'model'}",
                        "--set", "summary.every_steps=1"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        return min(event.wall_time for event in events(folder / "model" / "train") if event.step == 1) - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", default="64,1024")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--before", type=pathlib.Path, metavar="BIN")
    arguments = parser.parse_args()
    for hidden in map(int, arguments.hidden.split(",")):
        steps = 1200 if hidden <= 64 else 250
        one, apart, two, peer, waits, before = [], [], [], [], [], {1: [], 2: []}
        for _ in range(arguments.rounds):
            one.append(train(1, hidden, steps, ["0"])[0]["examples_per_second"])
            apart.append(sum(r["examples_per_second"] for r in train(2, hidden, steps, ["0", "1"], cluster=False)))
            got = train(2, hidden, steps, ["0", "1"])[0]
            two.append(got["examples_per_second"])
            waits.append(got["step_seconds"]["wait"] * 1e3)
            for processes, rates in before.items() if arguments.before else ():
                rates.append(train(processes, hidden, steps, ["0", "1"], programs=arguments.before)[0]["examples_per_second"])
            if arguments.ddp:
                peer.append(ddp(os.environ["MUSTER_PEERS"] + "/torch_ddp.py", hidden, steps))
        a, bound, b = statistics.median(one), statistics.median(apart), statistics.median(two)
        line = (f"{hidden} hidden: one process {a:,.0f} examples/s, two apart {bound:,.0f} ({bound / (2 * a):.3f} of twice one), a cluster of two {b:,.0f}: "
                f"{b / (2 * a):.3f} of twice one, {b / bound:.3f} of two apart; {statistics.median(waits):.2f} ms a step in reductions")
        if arguments.before:
            line += f"; {a / statistics.median(before[1]):.3f} and {b / statistics.median(before[2]):.3f} times what one and two did before"
        if peer:
            line += f"; DDP tuned {statistics.median(peer):,.0f}: {b / statistics.median(peer):.2f} times that"
        print(line, flush=True)
    builds = [BIN] + ([arguments.before] if arguments.before else [])
    times = [[start_up(programs) for programs in builds] for _ in range(5)]
    for programs, of_build in zip(["", ", before"], zip(*times)):
        print(f"launch to the first finished step of 3 processes{programs}: median {statistics.median(of_build):.2f} s "
              f"(of {', '.join(f'{t:.2f}' for t in of_build)})")


if __name__ == "__main__":
    main()
