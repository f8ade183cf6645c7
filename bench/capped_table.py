#!/usr/bin/env python3
"""Tables with a cap under zipf keys: the cost of the cap in quality, and the memory of the servers under it.

  bench/capped_table.py [--keys 20000] [--zipf 1.2] [--examples 1000000] [--share 0.1] [--variants least_recent,least_frequent:10]

The recommender on two workers and two servers, once without a cap and once for each variant with `max_rows` of so large a share of
the keys; "least_frequent:10" has `admit_after` 10. Validation's area under the ROC curve is compared with the uncapped run's, and the
resident memory of both servers after a fifth of the time, when all tables have reached their caps, with that at the end.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster" / "base"))
from harness import BIN, free_ports, result  # noqa: E402

WORKERS, SERVERS, BATCH = 2, 2, 1024
SETTLED = 0.2  # of the time, in which tables come to their caps


def resident(processes):
    """Bytes of all of them together; of those that have ended none."""
    total = 0
    for process in processes:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS:"))
    return total


def run(folder, arguments, embeddings):
    """(result.json, [resident bytes of the servers, in equal times]) of a run."""
    folder.mkdir()
    job = folder / "job.json"
    job.write_text(json.dumps({
        "program": "recommender", "strategy": "parameter_server", "global_batch_size": BATCH * WORKERS, "epochs": 1, "devices": "cpu",
        "program_args": {"keys": arguments.keys, "zipf": arguments.zipf, "examples": arguments.examples, "validation": 50000},
        "embeddings": embeddings, "model_dir": str(folder / "model"), "summary": {"every_steps": 1000}}))
    ports = free_ports(WORKERS + SERVERS)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports[:WORKERS]], "ps": [f"127.0.0.1:{port}" for port in ports[WORKERS:]]}
    processes = {}
    for name, addresses in cluster.items():
        for index in range(len(addresses)):
            env = {**os.environ, "OMP_WAIT_POLICY": "passive", "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": name, "index": index}})}
            with open(folder / f"{name}-{index}", "w") as log:
                processes[name, index] = subprocess.Popen([str(BIN / f"muster-{name}"), "--job", str(job)], env=env, stdin=subprocess.DEVNULL,
                                                          stdout=log, stderr=subprocess.STDOUT)
    servers = [process for (name, _), process in processes.items() if name == "ps"]
    memory = []
    while processes["worker", 0].poll() is None:
        memory.append(resident(servers))
        time.sleep(0.1)
    for (name, index), process in processes.items():
        if process.wait(60) != 0:
            sys.exit(f"{name} {index} ended with {process.returncode}:\n{(folder / f'{name}-{index}').read_text()[-3000:]}")
    return result(folder / "model"), memory


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=20_000, help="of each of the eight features")
    parser.add_argument("--zipf", type=float, default=1.2)
    parser.add_argument("--examples", type=int, default=1_000_000)
    parser.add_argument("--share", type=float, default=0.1, help="of the keys that have a row")
    parser.add_argument("--variants", default="least_recent,least_frequent,least_frequent:10")
    arguments = parser.parse_args()
    cap = int(arguments.keys * arguments.share)
    variants = {"no cap": {}}
    for name in arguments.variants.split(","):
        eviction, _, admit = name.partition(":")
        variants[name] = {"*": {"max_rows": cap, "eviction": eviction, "admit_after": int(admit or 1)}}
    print(f"{arguments.examples:,} clicks, {arguments.keys:,} keys of each feature (zipf {arguments.zipf:g}), caps of {cap:,} rows", flush=True)
    base = None
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        for name, embeddings in variants.items():
            ended, memory = run(pathlib.Path(folder) / name.replace(" ", "-"), arguments, embeddings)
            auc = ended["metrics"]["validation"]["auc"]
            base = auc if base is None else base
            tables = ended["embeddings"].values()
            settled, last = memory[int(len(memory) * SETTLED)], max(memory[-len(memory) // 10:])
            print(f"{name}: auc {auc:.4f}, {100 * (auc / base - 1):+.2f} % of the uncapped run's; {sum(t['rows'] for t in tables):,} rows; both servers "
                  f"{settled / 1e6:.1f} MB after a fifth of the time, {last / 1e6:.1f} MB at the end ({(last - settled) / 1e6:+.1f})", flush=True)


if __name__ == "__main__":
    main()
