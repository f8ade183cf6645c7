"""What the wheel and the Debian package have in common: the installed programs, the shared libraries that they need, and where each of
them finds the others."""
import os
import pathlib
import re
import shutil
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("muster", "muster-chief", "muster-worker", "muster-ps", "muster-evaluator", "muster-tool")
# Libraries of glibc and the compiler, which every host has: those that a manylinux wheel may leave out (PEP 600) and ours needs.
ON_EVERY_HOST = re.compile(r"^(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|anl|gcc_s|stdc\+\+))\.so(\.|$)")


class PackageError(Exception):
    """One sentence for the person who builds a package."""


def run(*command, **options):
    """What the command printed. Raises PackageError with its last words if it fails."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise PackageError(f"{command[0]} failed with {done.returncode}: {done.stdout.strip()[-2000:]}")
    return done.stdout


def require(**tools):
    """Each command with the Debian package that has it."""
    missing = [package for command, package in tools.items() if not shutil.which(command.replace("_", "-"))]
    if missing:
        raise PackageError(f"these packages are missing: apt-get install {' '.join(sorted(set(missing)))}")


def cached(build, name):
    """A variable of the build folder's CMakeCache.txt."""
    path = pathlib.Path(build) / "CMakeCache.txt"
    if not path.is_file():
        raise PackageError(f"{build} is no build folder of Muster: run make programs")
    match = re.search(rf"^{name}:\w+=(.*)$", path.read_text(), re.MULTILINE)
    if not match:
        raise PackageError(f"{path} has no {name}: configure the build with LibTorch")
    return match[1]


def version():
    return re.search(r'define MUSTER_VERSION "([^"]+)"', (SOURCE / "include" / "muster" / "version.h").read_text())[1]


def install(build, prefix):
    """Both components of the build. The libraries lie in lib/ of `prefix`, each under the name by which programs ask for it."""
    for component in "programs", "library":
        run("cmake", "--install", build, "--prefix", prefix, "--component", component)
    for path in (prefix / "bin").iterdir():
        if path.name not in PROGRAMS:  # muster-bundle is for those who build
            path.unlink()
    found = prefix / cached(build, "CMAKE_INSTALL_LIBDIR")
    if found != prefix / "lib":  # a build for /usr, lib/x86_64-linux-gnu
        for path in list(found.iterdir()):
            path.rename(prefix / "lib" / path.name)
        found.rmdir()
    for link in list((prefix / "lib").glob("*.so*")):
        if link.is_symlink():
            link.unlink()
    for path in (prefix / "lib").glob("lib*.so*"):
        path.rename(path.with_name(soname(path)))


def soname(path):
    match = re.search(r"\(SONAME\).*\[(.*)\]", run("readelf", "-dW", path))
    return match[1] if match else path.name


def loaded(path, **environment):
    """{name: path} of the shared libraries that the loader finds for a file; None for what it does not find."""
    found = {}
    for line in run("ldd", path, env={**os.environ, "LC_ALL": "C", **environment}).splitlines():
        if match := re.match(r"\s*(\S+) => (not found|/\S+)", line):
            found[match[1]] = None if match[2] == "not found" else pathlib.Path(os.path.normpath(match[2]))
    return found


class Needed:
    """The shared libraries that the files of a build folder load, besides Muster's own and those of every host: `torch`, which pip
    installs (LibTorch, CUDA, NCCL), and `other`. Both are {name: path}."""

    def __init__(self, build):
        build = pathlib.Path(build).resolve()
        site = pathlib.Path(cached(build, "MUSTER_TORCH_ROOT")).resolve().parent
        self.torch, self.other, self.of_file = {}, {}, {}
        for path in [*(build / "bin" / name for name in PROGRAMS), *(build / "lib").glob("*.so")]:
            libraries = {name: where for name, where in loaded(path).items() if not ON_EVERY_HOST.match(name)}
            self.of_file[path.name] = set(libraries)
            for name, where in libraries.items():
                if where is None:
                    raise PackageError(f"{path} needs {name}, which this host does not have")
                if where.resolve().is_relative_to(site):
                    self.torch[name] = where
                elif not where.resolve().is_relative_to(build):
                    self.other[name] = where


def copy_libraries(libraries, folder):
    for name, where in libraries.items():
        shutil.copy(where.resolve(), folder / name)
        (folder / name).chmod(0o644)


def finish(path, search):
    """Strips a program or library, and has it look for others in the folders of `search` alone."""
    run("strip", "--strip-unneeded", path)
    run("patchelf", "--set-rpath", ":".join(search), path)


def check_complete(files, inside, **environment):
    """Every library that these files load lies in one of the folders of `inside`, or is on every host."""
    inside = [pathlib.Path(folder).resolve() for folder in inside]
    for path in files:
        for name, where in loaded(path, **environment).items():
            if not ON_EVERY_HOST.match(name) and not (where and any(where.resolve().is_relative_to(folder) for folder in inside)):
                raise PackageError(f"{path} would load {name} from {where}, outside of the package")


def debian_package(library):
    names = [str(library), str(library.resolve())]
    for name in [*names, *(re.sub("^/usr", "", name) for name in names), *("/usr" + name for name in names)]:
        done = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    raise PackageError(f"{library} belongs to no Debian package, so its licence is unknown")


def debian_copyright(package):
    path = pathlib.Path("/usr/share/doc") / package / "copyright"
    if not path.is_file():
        raise PackageError(f"there is no {path}: the licence of {package} must go into the package")
    return path


def wheel_licences(libraries):
    """{name of a file: path} of the licences of the wheels that these libraries came in: LibTorch's, NVIDIA's."""
    found = {}
    for where in libraries.values():
        site = next((folder for folder in where.parents if folder.name == "site-packages"), None)
        if site is None:
            raise PackageError(f"{where} is in no site-packages, so its licence is unknown: build with the LibTorch of deploy/bootstrap")
        inside = where.relative_to(site).as_posix()
        owners = [record.parent for record in site.glob("*.dist-info/RECORD")
                  if any(line.startswith(f"{inside},") for line in record.read_text().splitlines())]
        if len(owners) != 1:
            raise PackageError(f"{where} belongs to {len(owners)} wheels, so its licence is unknown")
        texts = [path for path in sorted(owners[0].glob("licenses/**/*")) if path.is_file()]
        if not texts:
            raise PackageError(f"{owners[0]} has no licence, which must go into the package")
        for path in texts:
            found[f"{owners[0].name.split('-')[0]}-{path.name}"] = path
    return found
