#!/usr/bin/env python3
"""Cost of identity: the same work with a run key (TLS 1.3 with certificates of both sides) and in plaintext, in turns.

  bench/identity.py [--rounds 5] [--quick] [--links]

Printed, as ratios from one run: forming groups of 2, 16 and 64 members; all-reduce and push/pull over loopback and between two network
namespaces (build-bench/bin/tls_bench), whose link is first as fast as the host and then limited to rates of network cards; training of two
processes on one host, which share memory, and in two namespaces; seconds from the SIGKILL of a worker of fashion_mnist to the next
finished step. Needs the `bench` preset, and root and iproute2 for the namespaces.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import needs

needs.modules("numpy", "tensorboard")
import recovery
import training

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster" / "base"))
from harness import BIN, SOURCE, free_ports, result  # noqa: E402

TLS_BENCH = SOURCE / "build-bench" / "bin" / "tls_bench"
ADDRESSES = "10.79.0.1", "10.79.0.2"
RATES = "25gbit", "10gbit", "1gbit"


@contextlib.contextmanager
def namespaces():
    """The names of two that a pair of virtual Ethernet devices joins."""
    names = [f"muster-bench-{os.getpid()}-{i}" for i in range(2)]
    devices = [f"mb{os.getpid()}.{i}" for i in range(2)]

    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, timeout=20)

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", devices[0], "netns", names[0], "type", "veth", "peer", "name", devices[1], "netns", names[1])
        for name, device, address in zip(names, devices, ADDRESSES):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
            for up in "lo", device:
                ip("-n", name, "link", "set", up, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=20)


def limit(names, rate):
    """Limits both directions of the link between the namespaces to a rate such as "10gbit"."""
    for i, name in enumerate(names):
        subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", f"mb{os.getpid()}.{i}", "root", "tbf", "rate", rate,
                        "burst", "1mb", "latency", "50ms"], check=True, timeout=20)


def lift_limit(names):
    for i, name in enumerate(names):
        subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "del", "dev", f"mb{os.getpid()}.{i}", "root"], check=True, timeout=20)


def train_apart(names, model, steps, key):
    """Examples a second of a worker in each namespace."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        job = training.write_job(folder, model, steps)
        cluster = {"worker": [f"{address}:{port}" for address, port in zip(ADDRESSES, free_ports(2))]}
        running = []
        for i, namespace in enumerate(names):
            env = {**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}), "MUSTER_RUN_KEY_FILE": key or ""}
            command = ["ip", "netns", "exec", namespace, "taskset", "-c", str(i), str(BIN / "muster-worker"), "--job", str(job),
                       "--set", f"model_dir={folder / 'model'}", "--set", f"security.insecure={json.dumps(not key)}"]
            running.append(subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
        for process in running:
            _, text = process.communicate(timeout=600)
            if process.returncode != 0:
                raise SystemExit(text.decode())
        return result(folder / "model")["examples_per_second"]


def compare(what, unit, rounds, measure):
    """`measure(key)` with and without the key, in turns."""
    plain, keyed = [], []
    for _ in range(rounds):
        plain.append(measure(False))
        keyed.append(measure(True))
    a, b = statistics.median(plain), statistics.median(keyed)
    print(f"{what}: {a:,.2f} {unit} in plaintext, {b:,.2f} with a key: {b / a:.3f} times", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few steps: that it runs, not what it costs")
    parser.add_argument("--links", action="store_true", help="all-reduce, push and pull alone, without training")
    arguments = parser.parse_args()
    needs.network_namespaces()
    if not TLS_BENCH.exists():
        raise SystemExit("build the `bench` preset first: cmake --preset bench && cmake --build build-bench --target tls_bench")
    megabytes = ["1.4"] if arguments.quick else ["1.4", "22"]
    rounds = 1 if arguments.quick else arguments.rounds
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, namespaces() as names:
        key = f"{folder}/run.key"
        subprocess.run([str(BIN / "muster"), "key", "new", key], check=True, stdout=subprocess.DEVNULL)
        print("on loopback", flush=True)
        subprocess.run([str(TLS_BENCH), *megabytes], check=True, timeout=600)
        between = ["ip", "netns", "exec", names[0], str(TLS_BENCH), "--between", f"{ADDRESSES[0]},{ADDRESSES[1]},{names[1]}", *megabytes]
        print("between two namespaces", flush=True)
        subprocess.run(between, check=True, timeout=600)
        for rate in RATES:
            print(f"between two namespaces, a link of {rate}", flush=True)
            limit(names, rate)
            subprocess.run(between, check=True, timeout=600)
        lift_limit(names)
        if arguments.links:
            return
        for model, steps in ("convnet-64", 1200), ("convnet-1024", 250):
            if arguments.quick:
                steps = 20
            compare(f"{model}, two workers in two namespaces", "examples/s", rounds, lambda keyed: train_apart(names, model, steps, key if keyed else None))
            compare(f"{model}, two workers on one host", "examples/s", rounds,
                    lambda keyed: training.train(2, model, ["0", "1"], environment={"MUSTER_RUN_KEY_FILE": key if keyed else ""}, steps=steps)[0]["examples_per_second"])
    # `muster launch` makes a key of its own.
    compare("fashion_mnist, a worker killed: to the next finished step", "s", rounds,
            lambda keyed: recovery.kill_once("fashion_mnist", "worker:1", {} if keyed else {"security": {"insecure": True}}))


if __name__ == "__main__":
    main()
