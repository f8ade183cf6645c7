#!/usr/bin/python3
"""Makes a wheel of a build folder: pip installs it beside torch, whose LibTorch its programs use, and `muster launch` trains.

  build_wheel.py BUILD OUTPUT_FOLDER       prints the wheel's path
"""
import os
import pathlib
import platform
import re
import shutil
import sys
import tempfile

import staging
from staging import PROGRAMS, SOURCE, PackageError, run

DISTRIBUTION = "muster_train"
# Relative to the folder muster/ of site-packages. NCCL's module finds CUDA and NCCL where pip puts them.
TORCH, CUDA = ["$ORIGIN/../../torch/lib"], ["$ORIGIN/../../nvidia/nccl/lib", "$ORIGIN/../../nvidia/cu13/lib"]


def platform_tag():
    """Nothing that was built here needs a newer glibc than this host's."""
    name, glibc = platform.libc_ver()
    if name != "glibc" or platform.machine() != "x86_64":
        raise PackageError(f"a wheel is made on x86-64 with glibc, and this is {platform.machine()} with {name or 'another C library'}")
    return f"manylinux_{glibc.replace('.', '_')}_x86_64"


def torch_version():
    return re.search(r"^torch==(\S+)$", (SOURCE / "deploy" / "requirements.txt").read_text(), re.MULTILINE)[1]


def add_programs(build, package, needed):
    staging.install(build, package)
    shutil.rmtree(package / "share" / "doc")  # the pages; the bill of materials is in the folder of the licences
    staging.copy_libraries(needed.other, package / "lib")
    for name in PROGRAMS:
        staging.finish(package / "bin" / name, ["$ORIGIN/../lib", *TORCH])
    for path in (package / "lib").glob("*.so*"):
        ours = path.name.startswith(("libmuster", "muster"))
        staging.finish(path, ["$ORIGIN", *(TORCH if ours else []), *(CUDA if path.name == "muster_nccl.so" else [])])


def add_headers(package):
    """What `muster new` needs to build: MusterBundled.cmake finds it, and MusterConfig.cmake names no folder of this host."""
    for folder in "absl", "nlohmann":
        shutil.copytree(f"/usr/include/{folder}", package / "include" / "bundled" / folder)
    scripts = package / "lib" / "cmake" / "Muster"
    shutil.copy(SOURCE / "cmake" / "MusterBundled.cmake", scripts)
    config = scripts / "MusterConfig.cmake"
    text, count = re.subn(r'^set\(_muster_torch_root ".*"\)$', 'set(_muster_torch_root "")', config.read_text(), flags=re.MULTILINE)
    if count != 1:
        raise PackageError(f"{config} does not set _muster_torch_root once")
    config.write_text(text)


def development_packages():
    names = [line.split("|")[0].strip() for line in (SOURCE / "deploy" / "packages.txt").read_text().splitlines()]
    return [name for name in names if name.endswith("-dev")]


def add_licences(folder, needed):
    """Of Muster, of each Debian package whose libraries are in the wheel, and of those whose headers are compiled in or in the wheel. Their
    names, relative to `folder`."""
    folder.mkdir(parents=True)
    shutil.copy(SOURCE / "LICENSE", folder / "LICENSE")
    for package in {*map(staging.debian_package, needed.other.values()), *development_packages()}:
        shutil.copy(staging.debian_copyright(package), folder / f"{package}.txt")
    return sorted(path.name for path in folder.iterdir())


def add_metadata(build, info, tag, licences):
    filled = (SOURCE / "deploy" / "package" / "python" / "METADATA.in").read_text()
    for name, value in {"VERSION": staging.version(), "TORCH": torch_version(),
                        "LICENCES": "\n".join(f"License-File: {name}" for name in licences)}.items():
        filled = filled.replace(f"@{name}@", value)
    readme = (SOURCE / "deploy" / "package" / "python" / "README.md").read_text()
    (info / "METADATA").write_text(f"{filled.rstrip()}\n\n{readme}")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: muster ({staging.version()})\nRoot-Is-Purelib: false\nTag: {tag}\n")
    shutil.copy(SOURCE / "deploy" / "package" / "python" / "entry_points.txt", info)
    (info / "sboms").mkdir()
    bill = pathlib.Path(build) / "muster.spdx.json"
    shutil.copy(bill, info / "sboms" / bill.name)


def add_package(package):
    text = (SOURCE / "deploy" / "package" / "python" / "__init__.py").read_text()
    (package / "__init__.py").write_text(text.replace("@TORCH@", torch_version()))
    examples = package / "share" / "muster" / "examples"
    examples.mkdir(parents=True)
    for path in (SOURCE / "examples").glob("*.json"):
        shutil.copy(path, examples)


def build_wheel(build, output):
    from wheel.wheelfile import WheelFile  # python3-wheel

    tag = f"py3-none-{platform_tag()}"
    needed = staging.Needed(build)
    with tempfile.TemporaryDirectory(prefix="muster-wheel-") as folder:
        root = pathlib.Path(folder)
        root.chmod(0o755)
        package, info = root / "muster", root / f"{DISTRIBUTION}-{staging.version()}.dist-info"
        add_programs(build, package, needed)
        add_headers(package)
        add_package(package)
        add_metadata(build, info, tag, add_licences(info / "licenses", needed))
        files = [*(package / "bin" / name for name in PROGRAMS), *(package / "lib").glob("muster_*.so")]  # all that starts or is loaded by name
        torch = pathlib.Path(staging.cached(build, "MUSTER_TORCH_ROOT"))
        beside = [torch / "lib", *(torch.parent / "nvidia").glob("*/lib")]
        staging.check_complete(files, [package, torch.parent], LD_LIBRARY_PATH=":".join(map(str, beside)))
        output.mkdir(parents=True, exist_ok=True)
        wheel = output / f"{DISTRIBUTION}-{staging.version()}-{tag}.whl"
        wheel.unlink(missing_ok=True)
        with WheelFile(wheel, "w") as archive:
            archive.write_files(root)
    return wheel


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        staging.require(patchelf="patchelf", strip="binutils")
        try:
            import wheel  # noqa: F401
        except ImportError:
            raise PackageError("this package is missing: apt-get install python3-wheel") from None
        os.environ.setdefault("SOURCE_DATE_EPOCH", run("git", "-C", SOURCE, "log", "-1", "--format=%ct").strip())
        print(build_wheel(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
    except (PackageError, OSError) as error:
        print(f"build_wheel: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
