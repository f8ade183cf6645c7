"""Empty roots of Debian and Ubuntu, made by debootstrap, and commands in them, to find dependencies that a developer's machine hides.

Each command has mounts and processes of its own, which end with it. Needs root.
"""
import glob
import os
import pathlib
import shutil
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# Where roots are kept from run to run; `make clean` removes it.
ROOTS = pathlib.Path(os.environ.get("MUSTER_ROOTS", SOURCE / "build-roots"))
# The address of an archive of Ubuntu packages. That of Debian is in this machine's configuration.
UBUNTU_ARCHIVE = os.environ.get("MUSTER_UBUNTU_ARCHIVE")
UBUNTU = ("noble",)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How this machine reaches package archives. An engine passes the proxies on too.
NETWORK_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL", "PIP_CERT", "SSL_CERT_FILE",
                     "REQUESTS_CA_BUNDLE")
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/apt/apt.conf.d/99*", *(os.environ.get(name, "") for name in
                 ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")))

# $1 is the root, $2 tells whether it is read-only; binds follow up to "--": source, target, ro or rw.
ENTER = r"""set -e
root=$1 mode=$2; shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs none "$root/dev/shm"
[ "$mode" = rw ] || mount -t tmpfs none "$root/tmp"
while [ "$1" != -- ]; do
  mount --bind "$1" "$root$2"
  [ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
  shift 3
done
shift
[ "$mode" = rw ] || mount -o remount,bind,ro "$root"
exec "$@"
"""


def why_not(name="bookworm"):
    """Why the root cannot be made here, "" if it can."""
    if os.geteuid() != 0:
        return "not root"
    missing = [name for name in ("debootstrap", "unshare", "chroot", "zstd") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    return "MUSTER_UBUNTU_ARCHIVE names no archive" if name in UBUNTU and not UBUNTU_ARCHIVE and not (ROOTS / name).exists() else ""


def mirror():
    """The mirror of Debian that this machine uses."""
    for path in [*glob.glob("/etc/apt/sources.list.d/*.sources"), "/etc/apt/sources.list"]:
        for line in pathlib.Path(path).read_text().splitlines() if os.path.exists(path) else ():
            words = line.split()
            if len(words) > 1 and words[0] in ("URIs:", "deb"):
                return words[1]
    raise AssertionError("no archive of packages in /etc/apt")


def empty_root(name):
    """The folder of a root with the essential packages alone. It is made once; what is done in it should be mounted away."""
    root = ROOTS / name
    if root.exists():
        return root
    ROOTS.mkdir(exist_ok=True)
    part = ROOTS / f"{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase"]
    if name in UBUNTU:
        # Debian has no package with the keys of Ubuntu's archive. Nothing of such a root goes anywhere.
        command += ["--no-check-gpg", name, part, UBUNTU_ARCHIVE, "/usr/share/debootstrap/scripts/gutsy"]
    else:
        command += [name, part, mirror()]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=1800)
    part.rename(root)
    return root


def connect(root):
    """Package archives are reached from the root as from here."""
    for path in [p for pattern in NETWORK_FILES if pattern for p in glob.glob(pattern)]:
        target = pathlib.Path(f"{root}{path}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    shutil.copytree("/etc/ssl/certs", f"{root}/etc/ssl/certs", dirs_exist_ok=True)


def command_in(root, *command, environment=None, folder="/", user=None, binds=(), read_only=False):
    """The command line that runs `command` in `root`; binds are (source, target, "ro" or "rw")."""
    variables = [f"{name}={value}" for name, value in {"PATH": PATH, **(environment or {})}.items()]
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", ENTER, "enter", root,
             "ro" if read_only else "rw"]
    for bind in binds:
        enter += bind
    enter += ["--", "chroot", *([f"--userspec={user}", "--groups="] if user else []), root, "env", "-i", "-C", folder, *variables, *command]
    return [str(word) for word in enter]


def run_in(root, *command, timeout=600, **how):
    """Runs `command` in `root`; what it printed. AssertionError if it fails."""
    done = subprocess.run(command_in(root, *command, **how), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
    if done.returncode != 0:
        raise AssertionError(f"{command} in {root}: exit code {done.returncode}\n{done.stdout[-6000:]}")
    return done.stdout
