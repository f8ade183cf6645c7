#!/usr/bin/env python3
"""Time until training continues after a SIGKILL, compared with torchrun, which restarts all workers.

  bench/recovery.py [--rounds 5] [--torchrun]

Three processes (a chief and two workers) under `muster launch --restart on-failure`; a worker, or the chief, is killed in the
middle of training. Printed: seconds from the kill to the next finished step, by the events in the summary, for the linear model
and for the convnet on Fashion-MNIST, and with a spare worker that takes the lost one's place (elastic.spares); that no step is missing is
checked. --torchrun: the same kill under
torchrun with DistributedDataParallel over gloo and a model as small, by the Python that deploy/bootstrap installed, which loses in
addition all that was done since its last checkpoint. It gets a store of its own for each attempt: with the one that it shares by
default, torch 2.11 over gloo does not come up again.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import needs

needs.modules("tensorboard")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster" / "base"))
from harness import BIN, SOURCE, curve, events  # noqa: E402

JOBS = {
    "linear": {"program": "linear", "global_batch_size": 40, "epochs": 100000},
    "fashion_mnist": {"program": "fashion_mnist", "global_batch_size": 96, "epochs": 1000},
}
TORCHRUN = '''
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x, y = torch.ones(16, 2), torch.ones(16, 1)
out = open(sys.argv[1] + "/rank-%d-%d" % (dist.get_rank(), os.getpid()), "w", buffering=1)
for step in range(10**9):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    out.write("%d %.6f\\n" % (step, time.time()))
    time.sleep(0.005)
'''


def children(parent):
    """{task: pid} of a launcher's tasks."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                config = re.search(r"TF_CONFIG=([^\0]*)", pathlib.Path(f"/proc/{entry}/environ").read_text())
                task = json.loads(config[1])["task"]
                found[f"{task['type']}:{task['index']}"] = int(entry)
        except (OSError, TypeError):
            continue
    return found


def step_times(model_dir):
    return {event.step: event.wall_time for event in events(model_dir / "train") if any(v.tag == "loss" for v in event.summary.value)}


def kill_once(program, victim, keys=None, spares=0):
    """Seconds from the kill to the next finished step. `keys`: more of the job file. `spares`: workers beside the two that train."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        model_dir = folder / "model"
        (folder / "job.json").write_text(json.dumps({**JOBS[program], "model_dir": str(model_dir), "summary": {"every_steps": 1}, "devices": "cpu",
                                                     "elastic": {"spares": spares}, **(keys or {})}))
        command = [str(BIN / "muster"), "launch", "--workers", str(2 + spares), "--restart", "on-failure", "--job", str(folder / "job.json")]
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait(lambda: model_dir.exists() and len(step_times(model_dir)) > 20, folder)
            if spares:  # one that trains
                log = (folder / "log").read_text(errors="replace")
                victim = next(f"worker:{i}" for i in range(2 + spares) if re.search(rf"\[worker {i}\].*Number of devices", log))
            killed = time.time()
            os.kill(children(process.pid)[victim], signal.SIGKILL)
            # The second "Number of devices" of a member that stayed: the generation after the kill.
            stayed = b"[worker 0]" if victim.startswith("chief") else b"[chief 0]"
            wait(lambda: sum(stayed in line and b"Number of devices" in line for line in (folder / "log").read_bytes().splitlines()) == 2, folder)
            formed = time.time()
            wait(lambda: max(step_times(model_dir).values()) > formed, folder)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        times = step_times(model_dir)
        steps = sorted(curve(model_dir))
        assert steps == list(range(1, steps[-1] + 1)), "the curve has a hole"
        # The step that was under way may have been finished in the moment of the kill: the longest gap is the one that counts.
        ordered = sorted(times.values())
        return max((b - a, b) for a, b in zip(ordered, ordered[1:]) if b > killed)[1] - killed


def wait(condition, folder, timeout=60):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("training does not continue:\n" + (folder / "log").read_text()[-3000:])
        time.sleep(0.02)


def torchrun_once():
    python = subprocess.check_output([str(SOURCE / "deploy" / "bootstrap"), "--prefix"], text=True).strip() + "/bin/python"
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        (folder / "train.py").write_text(TORCHRUN)
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", "--max-restarts=3", str(folder / "train.py"), name],
                                       env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, stdout=log, stderr=subprocess.STDOUT)
        ranks = lambda: [path for path in folder.glob("rank-*") if path.stat().st_size > 1000]  # noqa: E731
        try:
            wait(lambda: len(ranks()) == 3, folder)
            first = set(ranks())
            pid = int(next(path for path in first if path.name.startswith("rank-1")).name.split("-")[2])
            killed = time.time()
            os.kill(pid, signal.SIGKILL)
            wait(lambda: len(ranks()) == 6, folder)
            return min(float(path.read_text().split()[1]) for path in set(ranks()) - first) - killed
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torchrun", action="store_true")
    arguments = parser.parse_args()

    def say(what, times):
        print(f"{what}: median {statistics.median(times):.2f} s (of {', '.join(f'{t:.2f}' for t in sorted(times))})", flush=True)

    for program in JOBS:
        for victim in "worker:1", "chief:0":
            say(f"{program}, {victim} killed: to the next finished step", [kill_once(program, victim) for _ in range(arguments.rounds)])
        say(f"{program}, a worker killed, with a spare: to the next finished step", [kill_once(program, "worker:1", spares=1) for _ in range(arguments.rounds)])
    if arguments.torchrun:
        say("torchrun, a worker killed: to the next finished step, and all since the checkpoint is lost", [torchrun_once() for _ in range(arguments.rounds)])


if __name__ == "__main__":
    main()
