"""Checks for what a benchmark needs outside this tree, and names in one sentence what is missing."""
import importlib.util
import os
import shutil
import sys


def modules(*names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
        sys.exit(f"{sys.argv[0]}: {sys.executable} has no {', '.join(missing)}: run `make bench BENCH={name}`, "
                 f"or the script with $(deploy/bootstrap --prefix)/bin/python")


def variable(name, what):
    """The environment variable's value."""
    if name not in os.environ:
        sys.exit(f"{sys.argv[0]}: set {name} to {what}")
    return os.environ[name]


def network_namespaces():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        sys.exit(f"{sys.argv[0]}: network namespaces need root and `ip` of iproute2")


def has_gpu():
    return os.path.exists("/dev/nvidiactl")


def gpu():
    if not has_gpu():
        sys.exit(f"{sys.argv[0]}: this host has no NVIDIA GPU")
