"""Nothing of a build reaches into /usr/local, a CUDA toolkit, or a system's NCCL: what is found there by chance is missing on
the next machine.

  toolkit.py BUILD_DIR READELF [ALLOWED...]    (folders that the user named: MUSTER_CUDA_ROOT and the like)
  toolkit.py --self-test
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

FORBIDDEN = re.compile(r"^(/usr/local/|/opt/(cuda|nvidia)|/usr/(lib|share)/(cuda|nvidia-cuda)|/usr/lib/[^/]+/(libcudart|libnccl|libcuda)"
                       r"|/usr/include/(nccl|cuda|crt/|nv/|thrust/|cub/)|.*/cuda-\d)")
# Options before a folder or a file.
OPTIONS = ("-I", "-L", "-isystem", "-iquote", "-idirafter", "-include", "-Wl,-rpath,", "-Wl,-rpath=", "-Wl,-rpath-link,", "-Wl,")


def is_forbidden(path, allowed):
    path = os.path.normpath(path)
    return bool(FORBIDDEN.match(path + "/")) and not any(path == a or path.startswith(a + "/") for a in allowed)


def paths(words):
    """The absolute paths that a compile or link command names, but for the programs that it runs."""
    for word in words:
        for option in OPTIONS:
            if word.startswith(option):
                word = word[len(option):]
                break
        for part in re.split(r"[:,]", word):
            if part.startswith("/") and not os.access(part, os.X_OK | os.R_OK) or part.startswith("/") and (
                    os.path.isdir(part) or ".so" in part or part.endswith((".a", ".h", ".o"))):
                yield part


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def commands(build):
    """Every compile and link command, with what it makes."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        yield entry["file"], shlex.split(entry["command"])
    for line in run("ninja", "-C", str(build), "-t", "commands").splitlines():
        if re.search(r" -o (bin|lib|tests)/", line):
            # ": && c++ ... && :" around links
            words = [w for w in shlex.split(line) if w not in ("&&", ":")]
            yield words[words.index("-o") + 1], words


def dependencies(build):
    """Headers of every object that was compiled."""
    target = ""
    for line in run("ninja", "-C", str(build), "-t", "deps").splitlines():
        if line.startswith("    "):
            yield target, os.path.normpath(build / line.strip())
        elif line:
            target = line.split(":")[0]


def binaries(build):
    for folder in ("bin", "lib", "tests"):
        for path in sorted((build / folder).glob("*")):
            if path.is_file() and not path.is_symlink() and path.open("rb").read(4) == b"\x7fELF":
                yield path


def runpaths(readelf, path):
    for line in run(readelf, "-d", str(path)).splitlines():
        match = re.search(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", line)
        if match:
            yield from match.group(1).split(":")


def loaded(path):
    # Without the caller's own LD_LIBRARY_PATH, which is no part of the build.
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    done = subprocess.run(["ldd", str(path)], capture_output=True, text=True, env=environment)
    return re.findall(r"=> (/\S+)", done.stdout)


def check(build, readelf, allowed):
    found, seen = set(), {"commands": 0, "headers": 0, "binaries": 0}
    for what, words in commands(build):
        seen["commands"] += 1
        found.update(f"{what}: its command names {p}" for p in paths(words[1:]) if is_forbidden(p, allowed))
    for what, header in dependencies(build):
        seen["headers"] += 1
        if is_forbidden(header, allowed):
            found.add(f"{what}: includes {header}")
    for binary in binaries(build):
        seen["binaries"] += 1
        found.update(f"{binary.name}: its RUNPATH names {p}" for p in runpaths(readelf, binary) if is_forbidden(p, allowed))
        found.update(f"{binary.name}: loads {p}" for p in loaded(binary) if is_forbidden(p, allowed))
    return sorted(found), seen


def self_test():
    forbidden = ["/usr/local/cuda/include/cuda.h", "/usr/local/include", "/usr/include/nccl.h", "/opt/cuda/lib64",
                 "/somewhere/cuda-13.0/include", "/usr/include/crt/host_defines.h", "/usr/lib/x/../../local/lib/libx.so"]
    fine = ["/usr/include/nlohmann/json.hpp", "/usr/lib/x86_64-linux-gnu/libfmt.so", "/usr/localized/x",
            "/a/site-packages/nvidia/cu13/include", "/usr/include/numbers"]
    wrong = [p for p in forbidden if not is_forbidden(p, [])] + [p for p in fine if is_forbidden(p, [])]
    wrong += [p for p in forbidden[:2] if is_forbidden(p, ["/usr/local"])]
    words = ["-I/usr/local/include", "-idirafter", "/usr/local/cuda/include", "-Wl,-rpath,/usr/local/lib:/usr/lib", "x.cc"]
    wrong += [] if sum(is_forbidden(p, []) for p in paths(words)) == 3 else ["paths()"]
    sys.exit(f"judged wrongly: {wrong}" if wrong else 0)


def main():
    if sys.argv[1] == "--self-test":
        self_test()
    allowed = [os.path.normpath(a) for a in sys.argv[3:] if a]
    found, seen = check(pathlib.Path(sys.argv[1]), sys.argv[2], allowed)
    for line in found[:40]:
        print(line)
    print(", ".join(f"{count} {what}" for what, count in seen.items()) + f": {len(found)} reach out of the wheels and packages")
    if not seen["commands"] or not seen["headers"]:
        sys.exit("nothing was built: is this the right build folder?")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
