"""deploy/bootstrap alone installs nothing that only tests need, and with --test also that: of Debian's packages, as on a machine that has
none of them, and of Python's environments, where the one that training needs is there. A package of which tests use one command is not
installed, for its service: the command is unpacked, once.

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

# For a machine that has all packages, but not the commands to unpack.
COMPLETE = {"dpkg-query": 'shift 3; for name; do echo "installed $name"; done',
            "apt-get": '[ "$1 $2" = "download prometheus" ] || exit 1; echo "$*" >>"$HOME/asked"; cp "$HOME/package.deb" prometheus_1_all.deb'}


def commands(folder, doubles, names):
    """Only these commands, in `folder`: its PATH."""
    path = pathlib.Path(folder) / "commands"
    path.mkdir()
    for name, line in doubles.items():
        (path / name).write_text(f"#!/bin/sh\n{line}\n")
        (path / name).chmod(0o755)
    for name in names:
        (path / name).symlink_to(shutil.which(name))
    return str(path)


def asked_for(deploy, *arguments):
    """The packages that bootstrap asks apt-get for."""
    with tempfile.TemporaryDirectory(prefix="muster-bootstrap-") as folder:
        done = subprocess.run([deploy / "bootstrap", "--yes", *arguments], capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL,
                              env={"PATH": commands(folder, DOUBLES, NEEDED), "HOME": folder})
        lines = [line for line in done.stdout.splitlines() if line.startswith("bootstrap: installing Debian packages: ")]
        assert done.returncode == 2 and len(lines) == 1, (done.returncode, done.stdout, done.stderr)
        return set(lines[0].split(": ")[2].split())


def unpacking_faults(deploy):
    with tempfile.TemporaryDirectory(prefix="muster-bootstrap-") as folder:
        folder = pathlib.Path(folder)
        package = folder / "package"
        (package / "DEBIAN").mkdir(parents=True)
        (package / "DEBIAN/control").write_text("Package: prometheus\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: a\n")
        (package / "DEBIAN/postinst").write_text("#!/bin/sh\ntouch $HOME/started\n")
        (package / "DEBIAN/postinst").chmod(0o755)
        (package / "usr/bin").mkdir(parents=True)
        for name in "promtool", "prometheus":
            (package / "usr/bin" / name).write_text("#!/bin/sh\necho a tool\n")
            (package / "usr/bin" / name).chmod(0o755)
        subprocess.run(["dpkg-deb", "--build", package, folder / "package.deb"], check=True, capture_output=True)
        # A package of packages.txt may be left out where its command is there.
        present = [line.split("|")[1] for name in ("packages.txt", "packages-test.txt") for line in (deploy / name).read_text().splitlines()
                   if "|" in line and line[0] != "#"]
        path = commands(folder, {**COMPLETE, **dict.fromkeys(present, "")},
                        [*NEEDED, "cp", "dpkg-deb", "flock", "mkdir", "mv", "stat", "tar"])
        environment = {"PATH": path, "HOME": str(folder), "MUSTER_CACHE": str(folder / "cache")}
        (folder / "cache").mkdir()
        for flag in "--prefix", "--tools":
            place = pathlib.Path(subprocess.check_output([deploy / "bootstrap", flag], text=True, env=environment).strip())
            place.mkdir()
            (place / "complete").touch()
        (place / "bin").mkdir()
        for _ in range(2):
            done = subprocess.run([deploy / "bootstrap", "--test", "--yes"], env=environment, capture_output=True, text=True, timeout=50,
                                  stdin=subprocess.DEVNULL)
            found = sorted(str(file.relative_to(place)) for file in place.rglob("*") if file.is_file())
            if done.returncode != 0 or found != ["bin/promtool", "complete"] or (folder / "started").exists():
                yield f"deploy/bootstrap --test does not unpack promtool alone: exit code {done.returncode}, {found}, '{done.stdout} {done.stderr}'"
        if (folder / "asked").exists() and (folder / "asked").read_text() != "download prometheus\n":
            yield "deploy/bootstrap --test downloads a package again"


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
    yield from unpacking_faults(deploy)


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
        packages.write_text(kept)
        (deploy / "packages-unpacked.txt").write_text("prometheus|prometheus\n")
        found = [*faults(deploy)]
        assert found and all(line.startswith("deploy/bootstrap --test does not unpack promtool alone") for line in found), found


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = list(faults(DEPLOY))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
