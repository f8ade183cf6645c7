#!/usr/bin/env python3
"""The input pipeline beside libjpeg-turbo alone and torchvision, on photograph-like pictures that it draws: ratios from one run.

  bench/input_pipeline.py [--threads 2] [--rounds 5]

Decoding 224 x 224 pictures beside libjpeg-turbo, examples in memory, and decoding and augmenting pictures with sides of 416 to 727 pixels
beside torchvision with as many worker processes, in turns. Needs the programs of the `bench` preset.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BENCH = SOURCE / "build-bench" / "bin" / "input_pipeline_bench"
PEER = SOURCE / "bench" / "peers" / "augmentation.py"


def bootstrap(flag):
    return pathlib.Path(subprocess.check_output([str(SOURCE / "deploy" / "bootstrap"), flag], text=True).strip())


def draw(folder, count, size, python):
    """Two classes of so many pictures; of `size` = (width, height), or of others each time around one side."""
    code = """
import sys, pathlib, numpy
sys.path.insert(0, sys.argv[1])
import pictures
folder, count, width, height = pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:])
for name in "fish", "flowers":
    (folder / name).mkdir(parents=True)
    for i in range(count):
        random = numpy.random.default_rng([1, *name.encode(), i])
        picture = pictures.photo(random, int(1.3 * max(width, height)), pictures.THINGS[name])
        if height:
            picture = picture.resize((width, height))
        picture.save(folder / name / f"{i:04}.jpg", quality=int(random.integers(75, 96)))
"""
    subprocess.run([python, "-c", code, str(SOURCE / "examples"), str(folder), str(count), *map(str, size)], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if not BENCH.exists():
        raise SystemExit(f"{BENCH} is not there: cmake --preset bench && cmake --build build-bench")
    python = str(bootstrap("--prefix") / "bin" / "python")
    tools = next((bootstrap("--tools") / "lib").glob("python3*")) / "site-packages"
    env = {**os.environ, "PYTHONPATH": str(tools), "OMP_NUM_THREADS": "1", "LD_PRELOAD": "libtcmalloc_minimal.so.4"}

    def ours(*words):
        return subprocess.check_output([str(BENCH), *map(str, words)], text=True)

    def theirs(folder, decoder):
        return float(subprocess.check_output([python, str(PEER), str(folder), str(arguments.threads), decoder, "3"], env=env, text=True))

    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        draw(folder / "small", 150, (224, 224), python)
        draw(folder / "large", 100, (400, 0), python)
        print(ours("decode", folder / "small", arguments.threads), end="")
        print(ours("memory"), end="", flush=True)
        rates = {"Muster": [], "torchvision, torchvision.io": [], "torchvision, Pillow": []}
        for _ in range(arguments.rounds):
            rates["Muster"].append(float(ours("augment", folder / "large", arguments.threads).split()[0]))
            rates["torchvision, torchvision.io"].append(theirs(folder / "large", "io"))
            rates["torchvision, Pillow"].append(theirs(folder / "large", "pil"))
    print(f"decoded and augmented, {arguments.threads} threads or worker processes, medians of {arguments.rounds} rounds:")
    for who, values in rates.items():
        ratio = statistics.median(mine / other for mine, other in zip(rates["Muster"], values))
        print(f"  {who:30} {statistics.median(values):8.0f} pictures/s" + ("" if who == "Muster" else f": Muster is {ratio:.2f} times as fast"))


if __name__ == "__main__":
    sys.exit(main())
