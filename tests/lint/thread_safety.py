"""clang's -Wthread-safety over every source that guards members by a mutex and needs no LibTorch.

  thread_safety.py BUILD_DIR [LAUNCHER...]    (reads its compile_commands.json; clang++ must be there)

With ccache as the launcher, a source that has not changed since it passed costs nothing. ccache keeps only what is compiled, so the
sources are compiled, not only parsed.
"""
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def separate(entries):
    """Sources that are compiled together, each by itself."""
    for entry in entries:
        together = re.findall(r'^#include "(.+)"$', pathlib.Path(entry["file"]).read_text(), re.MULTILINE) if "/Unity/" in entry["file"] else []
        yield from ({**entry, "file": file, "command": entry["command"].replace(entry["file"], file)} for file in together or [entry["file"]])


def guarded(path):
    """Whether the file, or the header beside it, guards anything; tests and LibTorch's users are left out."""
    if "tests" in path.parts or "generated" in path.parts or not path.is_relative_to(SOURCE):
        return False
    text = path.read_text()
    header = path.with_suffix(".h")
    if header.exists():
        text += header.read_text()
    return "ABSL_GUARDED_BY" in text and "<ATen/" not in text and "<torch/" not in text


def arguments_for_clang(entry):
    """The arguments of an entry of compile_commands.json, which is for gcc, in clang's form."""
    arguments = shlex.split(entry["command"])
    # Behind the launcher: the compiler's own arguments, without those that only gcc knows or that name outputs.
    start = next(i for i, a in enumerate(arguments) if a.endswith(("c++", "g++", "clang++")) and "/" in a)
    kept, skip = [], False
    for argument in arguments[start + 1:]:
        if skip:
            skip = False
        elif argument in ("-o", "-MF", "-MT", "-include"):  # a header precompiled by gcc is of no use to clang
            skip = True
        elif argument not in ("-c", "-MD", "-Werror", "-Wall", "-Wextra", "-Winvalid-pch", "-fpch-preprocess") and not argument.startswith("-fuse-ld"):
            kept.append(argument)
    return kept


def check(entry, launcher):
    with tempfile.TemporaryDirectory() as folder:
        command = [*launcher, "clang++", *arguments_for_clang(entry), "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety",
                   "-O0", "-c", "-o", f"{folder}/object.o"]
        done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
    return entry["file"], done.returncode, done.stderr


def main():
    entries = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
    chosen = [e for e in separate(entries) if guarded(pathlib.Path(e["file"]))]
    if not chosen:
        sys.exit("no file guards anything: is this the right build folder?")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, code, errors in pool.map(check, chosen, itertools.repeat(sys.argv[2:])):
            if code != 0:
                failed += 1
                print(f"{file}:\n{errors}")
    print(f"{len(chosen)} files, {failed} with complaints")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
