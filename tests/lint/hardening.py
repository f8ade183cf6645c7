"""Binaries are hardened (cmake/Hardening.cmake), and what is installed looks for libraries in nobody's home, and names no folder of the
machine that built it.

  hardening.py BUILD CMAKE     reads bin/ and lib/ of the build folder, and what it installs
  hardening.py --self-test     shows that what lacks something is found
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def readelf(path):
    return subprocess.run(["readelf", "-hldW", "--dyn-syms", str(path)], check=True, capture_output=True, text=True).stdout


def faults(printed, copies):
    """The faults of one binary, by readelf's output; `copies`: it is large enough to have checked copies."""
    if not re.search(r"Type:\s+DYN", printed):
        yield "is no position-independent executable"
    if "GNU_RELRO" not in printed:
        yield "has relocations that stay writable"
    if not re.search(r"\(FLAGS(_1)?\).*\bNOW\b|BIND_NOW", printed):
        yield "binds lazily"
    if re.search(r"GNU_STACK\s.*\bRWE\b", printed):
        yield "has an executable stack"
    if "TEXTREL" in printed:
        yield "has relocations in its code"
    if "__stack_chk_fail" not in printed:
        yield "has no stack protector"
    if copies and not re.search(r" __\w+_chk(@|$)", printed, re.MULTILINE):
        yield "has no checked copies (_FORTIFY_SOURCE)"


def search_paths(printed):
    return [folder for paths in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", printed) for folder in paths.split(":")]


def binaries(folder):
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def paths_in(content, folders):
    """The strings of a binary that have one of these folders."""
    for folder in folders:
        for match in re.finditer(rb"[ -~]*" + re.escape(str(folder).encode()) + rb"[ -~]*", content):
            yield match[0].decode()


def check(build, cmake):
    cache = (build / "CMakeCache.txt").read_text()
    optimised = "CMAKE_BUILD_TYPE:STRING=Debug" not in cache
    allowed = re.search(r"^MUSTER_INSTALL_RPATH:\w+=(.*)$", cache, re.MULTILINE)
    allowed = set(allowed[1].split(";")) if allowed else set()
    folders = [build.resolve(), *re.findall(r"^(?:CMAKE_HOME_DIRECTORY|MUSTER_TORCH_ROOT):\w+=(.+)$", cache, re.MULTILINE)]
    with tempfile.TemporaryDirectory() as prefix:
        subprocess.run([cmake, "--install", build, "--prefix", prefix], check=True, capture_output=True, timeout=120)
        found = list(binaries(pathlib.Path(prefix)))
        for path in found:
            printed = readelf(path)
            for fault in faults(printed, optimised and path.name.startswith("libmuster")):
                yield f"{path.name} {fault}"
            yield from (f"{path.name}, installed, has '{text[:200]}'" for text in paths_in(path.read_bytes(), folders))
            for folder in search_paths(printed):
                if not folder.startswith("$ORIGIN") and folder not in allowed:
                    yield f"{path.name}, installed, looks for libraries in {folder}"
        if len(found) < 3:
            yield f"only {len(found)} binaries are installed"


def self_test():
    source = "#include <string.h>\nint main(int n, char** v) { char text[16]; strncpy(text, v[0], n); return text[n % 16]; }\n"
    good = ["-O2", "-fPIE", "-pie", "-Wl,-z,relro,-z,now", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]
    cases = [([], 0), (["-no-pie", "-fno-pie"], 1), (["-Wl,-z,norelro"], 1), (["-Wl,-z,lazy"], 1), (["-fno-stack-protector"], 1),
             (["-Wl,-z,execstack"], 1), (["-U_FORTIFY_SOURCE"], 1)]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (more, count) in enumerate(cases):
            path = pathlib.Path(folder) / f"case-{number}"
            subprocess.run(["c++", "-x", "c++", "-", *good, *more, "-o", str(path)], input=source, text=True, check=True, capture_output=True)
            said = list(faults(readelf(path), True))
            if len(said) != count:
                wrong.append((more, said))
    paths = search_paths(" 0x1d (RUNPATH) Library runpath: [$ORIGIN:/opt/a/lib]\n")
    if paths != ["$ORIGIN", "/opt/a/lib"]:
        wrong.append(paths)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "named.cc").write_text("const char* name() { return __FILE__; }\nint main() { return *name(); }\n")
        for options, count in ([], 1), ([f"-fmacro-prefix-map={folder}=."], 0):
            subprocess.run(["c++", str(folder / "named.cc"), *options, "-o", str(folder / "named")], check=True, capture_output=True)
            said = list(paths_in((folder / "named").read_bytes(), [folder]))
            if (str(folder / "named.cc") in said) != bool(count):
                wrong.append((options, said))
    print(f"{len(cases) + 3} cases, judged wrongly: {wrong}")
    return bool(wrong)


def main():
    if "--self-test" in sys.argv:
        sys.exit(self_test())
    found = list(check(pathlib.Path(sys.argv[1]), sys.argv[2]))
    for line in found:
        print(line)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
