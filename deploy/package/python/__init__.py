"""The commands `muster`, `muster-chief`, `muster-worker`, `muster-ps` and `muster-evaluator`: each replaces its process by the program
in the folder bin/ beside this file. No Python is left in it."""
import importlib.util
import os
import sys

TORCH = "@TORCH@"  # the version of LibTorch that the programs were built with
HERE = os.path.dirname(os.path.abspath(__file__))


def torch_folder():
    """Where torch lies, without importing it; None: it is not installed."""
    beside = os.path.join(os.path.dirname(HERE), "torch")
    if os.path.exists(os.path.join(beside, "lib", "libtorch_cpu.so")):
        return beside
    spec = importlib.util.find_spec("torch")
    return os.path.dirname(spec.origin) if spec and spec.origin else None


def fault(folder):
    """What is wrong with that torch, in one sentence; "": nothing that can be seen."""
    wanted = f"Muster needs torch {TORCH}: pip install torch=={TORCH}"
    if folder is None:
        return f"there is no torch. {wanted}"
    found = [name[len("torch-"):-len(".dist-info")] for name in os.listdir(os.path.dirname(folder))
             if name.startswith("torch-") and name.endswith(".dist-info")]
    if found and TORCH not in [name.split("+")[0] for name in found]:
        return f"torch is {found[0]}. {wanted}"
    return ""


def replace_by(name, needs_torch):
    if not os.environ.get("MUSTER_TORCH_ROOT"):  # it names another LibTorch (docs/install.md)
        folder = torch_folder()
        if needs_torch and (message := fault(folder)):
            print(f"{name}: {message}", file=sys.stderr)
            sys.exit(2)
        if folder and os.path.dirname(folder) != os.path.dirname(HERE):
            # The programs look beside themselves alone.
            os.environ["MUSTER_TORCH_ROOT"] = folder
    root = os.environ.get("MUSTER_TORCH_ROOT")
    if root:
        os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, [os.path.join(root, "lib"), os.environ.get("LD_LIBRARY_PATH")]))
    program = os.path.join(HERE, "bin", name)
    os.execv(program, [program, *sys.argv[1:]])


def muster():
    replace_by("muster", len(sys.argv) > 1 and sys.argv[1] in ("launch", "check", "evaluate", "predict", "export"))


def muster_chief():
    replace_by("muster-chief", True)


def muster_worker():
    replace_by("muster-worker", True)


def muster_ps():
    replace_by("muster-ps", False)


def muster_evaluator():
    replace_by("muster-evaluator", True)
