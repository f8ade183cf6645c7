"""clang-tidy, with the checks of .clang-tidy, over sources that a build compiles.

  tidy.py BUILD_DIR [FILE...]     (all of its files, or those; headers are checked with the sources that include them)
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import thread_safety


def check(entry):
    done = subprocess.run(["clang-tidy", "--quiet", entry["file"], "--", "-Wno-everything", *thread_safety.arguments_for_clang(entry)],
                          cwd=entry["directory"], capture_output=True, text=True)
    return entry["file"], done.returncode, done.stdout + ("" if done.stdout else done.stderr)


def main():
    entries = list(thread_safety.separate(json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())))
    wanted = {str(pathlib.Path(name).resolve()) for name in sys.argv[2:]}
    # A source in two targets once.
    chosen = list({e["file"]: e for e in entries if e["file"] in wanted or not wanted and "/generated/" not in e["file"]}.values())
    for name in sorted(wanted - {e["file"] for e in chosen}):
        print(f"{name}: the build does not compile it")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, code, text in pool.map(check, chosen):
            if code != 0:
                failed += 1
                print(f"{file}:\n{text}", flush=True)
    print(f"{len(chosen)} files, {failed} with complaints")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
