#!/usr/bin/env python3
"""Runs benchmarks by name, one after another, with what each needs: `make bench`, or `make bench BENCH="identity tls" FLAGS=--quick`.

  bench/run.py BUILD [--flags "..."] [NAME...]     --list prints the names

BUILD is the build folder of the preset `bench`. At the end there is a line for each; the exit code is 1 if one failed.
"""
import argparse
import importlib.util
import os
import pathlib
import shlex
import subprocess
import sys
import time

import needs

BENCH = pathlib.Path(__file__).resolve().parent
# Name: what is run. {bin}: the programs of the build; {out}: a folder of its own in the build folder.
BENCHMARKS = {
    "allreduce": ["{bin}/allreduce_bench"],
    "checkpoint": ["{bin}/checkpoint_bench", "{out}"],
    "coordinator": ["{bin}/coordinator_bench"],
    "flight_recorder": ["{bin}/flight_recorder_bench"],
    "parameter_server_data": ["{bin}/parameter_server_bench"],
    "tls": ["{bin}/tls_bench"],
    "capped_table": ["capped_table.py"],
    "dense_state": ["dense_state.py"],
    "exported": ["exported.py", "{bin}/exported_bench"],
    "gpu": ["gpu.py"],
    "identity": ["identity.py"],
    "image_classifier": ["image_classifier.py", "{out}"],
    "input_pipeline": ["input_pipeline.py"],
    "large_table": ["large_table.py"],
    "parameter_server": ["parameter_server.py"],
    "recovery": ["recovery.py"],
    "saving": ["saving.py"],
    "status": ["status.py"],
    "tracing": ["tracing.py"],
    "training": ["training.py"],
}


def run(name, build, flags):
    """Whether it succeeded."""
    out = build / "benchmarks" / name
    out.mkdir(parents=True, exist_ok=True)
    command = [word.format(bin=build / "bin", out=out) for word in BENCHMARKS[name]]
    if command[0].endswith(".py"):
        command = [sys.executable, str(BENCH / command[0]), *command[1:]]
    elif not pathlib.Path(command[0]).exists():
        print(f"{command[0]} is not there: `make bench` builds it" + (", where libgloo-dev is installed" if name == "allreduce" else ""))
        return False
    # Some write into the folder that they are started in.
    return subprocess.run([*command, *flags], cwd=out, stdin=subprocess.DEVNULL,
                          env={**os.environ, "MUSTER_BIN_DIR": str(build / "bin"), "PYTHONDONTWRITEBYTECODE": "1"}).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--flags", default="", help="more arguments, for each benchmark that is run")
    parser.add_argument("build", nargs="?", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(BENCHMARKS))
        return 0
    if arguments.build is None:
        parser.error("which build folder?")
    if unknown := [name for name in arguments.names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark '{unknown[0]}': {', '.join(BENCHMARKS)}")
    results = []
    for name in arguments.names or [name for name in BENCHMARKS if name != "gpu" or (needs.has_gpu() and importlib.util.find_spec("torchvision"))]:
        print(f"== {name}", flush=True)
        begin = time.monotonic()
        passed = run(name, arguments.build.resolve(), shlex.split(arguments.flags))
        results.append((name, passed, time.monotonic() - begin))
    print()
    for name, passed, seconds in results:
        print(f"{name:24}{'done' if passed else 'FAILED':8}{seconds:6.0f} s")
    return 0 if all(passed for _, passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
