"""deploy/bootstrap alone installs nothing that only tests need, and with --test also that: of Debian's packages, as on a machine that has
none of them, and of Python's environments, where the one that training needs is there.

  bootstrap.py [--self-test]
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
# Nobody who only trains may have to install these.
TESTS_ALONE = {"clang", "clang-format", "help2man", "kubernetes-client", "libbenchmark-dev", "libgloo-dev", "libgmock-dev", "libgtest-dev", "patchelf",
               "python3-wheel"}
TRAINING = {"build-essential", "cmake", "ninja-build", "libgrpc++-dev", "python3-venv", "dataset-fashion-mnist"}
# In the place of the system's: no package is installed, no command of one is there, and apt-get fails.
DOUBLES = {"dpkg-query": "exit 1", "apt-get": "exit 1", "sudo": 'exec "$@"'}
NEEDED = ["bash", "cat", "comm", "cut", "dirname", "env", "grep", "id", "mktemp", "rm", "sed", "sha256sum", "sort", "tail", "tee", "tr"]


def asked_for(deploy, *arguments):
    """The packages that bootstrap asks apt-get for."""
    with tempfile.TemporaryDirectory(prefix="muster-bootstrap-") as folder:
        for name, line in DOUBLES.items():
            path = pathlib.Path(folder) / name
            path.write_text(f"#!/bin/sh\n{line}\n")
            path.chmod(0o755)
        for name in NEEDED:
            (pathlib.Path(folder) / name).symlink_to(shutil.which(name))
        done = subprocess.run([deploy / "bootstrap", "--yes", *arguments], capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL,
                              env={"PATH": folder, "HOME": folder})
        lines = [line for line in done.stdout.splitlines() if line.startswith("bootstrap: installing Debian packages: ")]
        assert done.returncode == 2 and len(lines) == 1, (done.returncode, done.stdout, done.stderr)
        return set(lines[0].split(": ")[2].split())


def faults(deploy):
    alone, with_tests = asked_for(deploy), asked_for(deploy, "--test")
    yield from (f"deploy/bootstrap installs {name}, which only tests need" for name in sorted(alone & TESTS_ALONE))
    yield from (f"deploy/bootstrap does not install {name}" for name in sorted(TRAINING - alone))
    yield from (f"deploy/bootstrap --test does not install {name}" for name in sorted((alone | TESTS_ALONE) - with_tests))
    with tempfile.TemporaryDirectory(prefix="muster-bootstrap-") as folder:
        environment = {**os.environ, "MUSTER_CACHE": folder}
        prefix, tools = (pathlib.Path(subprocess.check_output([deploy / "bootstrap", flag], text=True, env=environment).strip())
                         for flag in ("--prefix", "--tools"))
        prefix.mkdir()
        (prefix / "complete").touch()
        done = subprocess.run([deploy / "bootstrap", "--yes"], env=environment, capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL)
        if done.returncode != 0 or tools.exists():
            yield f"deploy/bootstrap makes the environment of the tests: exit code {done.returncode}, '{done.stdout} {done.stderr}'"


def self_test():
    with tempfile.TemporaryDirectory(prefix="muster-bootstrap-") as folder:
        deploy = pathlib.Path(folder) / "deploy"
        shutil.copytree(DEPLOY, deploy)
        packages, tests = deploy / "packages.txt", deploy / "packages-test.txt"
        kept, of_tests = packages.read_text(), tests.read_text()
        tests.write_text(of_tests.replace("clang-format\n", ""))
        assert [*faults(deploy)] == ["deploy/bootstrap --test does not install clang-format"], [*faults(deploy)]
        packages.write_text(kept.replace("cmake\n", "clang-format\n"))
        tests.write_text(of_tests)
        assert [*faults(deploy)] == ["deploy/bootstrap installs clang-format, which only tests need", "deploy/bootstrap does not install cmake"]


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = list(faults(DEPLOY))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
