#!/usr/bin/python3
"""Makes a Debian package of a build folder with CPack: programs, LibTorch for CPUs, the systemd unit. It depends on the shared libraries of
the Debian release that it is built on, and is for that release.

  build_deb.py BUILD OUTPUT_FOLDER         prints the package's path
"""
import email.utils
import gzip
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import staging
from staging import PROGRAMS, SOURCE, PackageError, run

HERE = SOURCE / "deploy" / "package"
PRIVATE = "lib/muster"  # the folder of libraries that are no package of Debian: ours, LibTorch, and what LibTorch loads

PURPOSES = {"muster": "launch, check and inspect distributed training", "muster-chief": "chief of a training cluster",
            "muster-worker": "worker of a training cluster", "muster-ps": "parameter server of a training cluster",
            "muster-evaluator": "evaluator of a training cluster", "muster-tool": "the commands of muster that need LibTorch"}


def add_programs(build, usr, needed):
    with tempfile.TemporaryDirectory(prefix="muster-deb-") as folder:
        installed = pathlib.Path(folder)
        staging.install(build, installed)
        shutil.copytree(installed / "bin", usr / "bin")
        shutil.copytree(installed / "share", usr / "share")
        private = usr / PRIVATE
        private.mkdir(parents=True)
        for path in (installed / "lib").glob("lib*.so*"):  # not NCCL's module: there is no CUDA in the package
            shutil.copy(path, private)
    loaded = set().union(*(needed.of_file[name] for name in PROGRAMS))
    torch = {name: where for name, where in needed.torch.items() if name in loaded}
    staging.copy_libraries(torch, private)
    for name in PROGRAMS:
        staging.finish(usr / "bin" / name, ["$ORIGIN/../" + PRIVATE])
    for path in private.iterdir():
        path.chmod(0o644)
        staging.finish(path, ["$ORIGIN"])
    return torch


def add_service(usr):
    """The unit and its user, where systemd finds them; the drop-in is for the administrator to copy."""
    shared = usr / "share" / "muster" / "systemd"
    for name, target in {"muster@.service": "lib/systemd/system/muster@.service", "muster.sysusers": "lib/sysusers.d/muster.conf"}.items():
        (usr / target).parent.mkdir(parents=True, exist_ok=True)
        (shared / name).rename(usr / target)


def add_documents(build, usr, torch):
    folder = usr / "share" / "doc" / "muster"
    shutil.copytree(SOURCE / "examples", folder / "examples", ignore=lambda _, names: [n for n in names if not n.endswith(".json")])
    shutil.copy(HERE / "debian" / "copyright", folder)
    (folder / "licenses").mkdir()
    for name, path in staging.wheel_licences(torch).items():
        pack(folder / "licenses" / f"{name}.gz", path.read_bytes())
    when = email.utils.formatdate(int(os.environ["SOURCE_DATE_EPOCH"]))
    log = f"muster ({staging.version()}) unstable; urgency=medium\n\n  * CHANGELOG.md of the sources lists the changes.\n\n -- {maintainer()}  {when}\n"
    pack(folder / "changelog.gz", log.encode())


def add_manual(usr):
    """One page for each program, of what its --help says."""
    folder = usr / "share" / "man" / "man1"
    folder.mkdir(parents=True)
    for name, what in PURPOSES.items():
        page = run("help2man", "--no-info", "--no-discard-stderr", f"--version-string={staging.version()}", f"--name={what}", usr / "bin" / name)
        pack(folder / f"{name}.1.gz", page.encode())


def pack(path, content):
    """gzip with the same bytes each time."""
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(content)


def maintainer():
    return os.environ.get("DEBFULLNAME", "Muster developers") + f" <{os.environ.get('DEBEMAIL', 'muster@example.org')}>"


def set_modes(root):
    """As Debian has them, whatever the umask was."""
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" or path.suffix == ".sbatch" else 0o644)


def build_deb(build, output):
    needed = staging.Needed(build)
    with tempfile.TemporaryDirectory(prefix="muster-deb-") as folder:
        stage = pathlib.Path(folder) / "stage"
        usr = stage / "usr"
        usr.mkdir(parents=True)
        torch = add_programs(build, usr, needed)
        add_service(usr)
        add_documents(build, usr, torch)
        add_manual(usr)
        set_modes(stage)
        staging.check_complete([usr / "bin" / name for name in PROGRAMS], [usr, *{where.resolve().parent for where in needed.other.values()}])
        output.mkdir(parents=True, exist_ok=True)
        before = set(output.glob("*.deb"))
        config = pathlib.Path(folder) / "CPackConfig.cmake"
        config.write_text("".join(f"set({name} [==[{value}]==])\n" for name, value in {
            "CPACK_PACKAGE_VERSION": staging.version(), "CPACK_PACKAGE_CONTACT": maintainer(), "MUSTER_STAGE": stage,
            "MUSTER_SCRIPTS": HERE / "debian"}.items()) + f"include({HERE / 'CPackConfig.cmake'})\n")
        run("cpack", "-G", "DEB", "--config", config, "-B", output)
        shutil.rmtree(output / "_CPack_Packages", ignore_errors=True)
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    package = output / f"muster_{staging.version()}_{architecture}.deb"
    if not package.is_file():
        raise PackageError(f"cpack made no {package}, but {sorted(set(output.glob('*.deb')) - before)}")
    return package


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        staging.require(patchelf="patchelf", strip="binutils", cpack="cmake", file="file", dpkg_shlibdeps="dpkg-dev", help2man="help2man")
        os.environ.setdefault("SOURCE_DATE_EPOCH", run("git", "-C", SOURCE, "log", "-1", "--format=%ct").strip())
        print(pathlib.Path(sys.argv[2]) / build_deb(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()).name)
    except (PackageError, OSError) as error:
        print(f"build_deb: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
