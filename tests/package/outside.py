"""Code that the package tests share: projects outside the tree, built against a build folder or a prefix."""
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster" / "base"))
from harness import BIN, SOURCE, ClusterTest  # noqa: E402

CMAKE = os.environ["MUSTER_CMAKE"]
BUILD = BIN.parent


class OutsideTest(ClusterTest):
    torch = {}  # once something is installed: where it finds LibTorch

    def run_command(self, *command, code=0, timeout=300, environment=None, cwd=None):
        """A command that ends with `code`; what it printed."""
        env = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG", "LD_LIBRARY_PATH")}
        env.update(self.torch)
        env.update(environment or {})
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                              env=env, cwd=cwd or self.dir)
        self.assertEqual(done.returncode, code, f"{command}\n{done.stdout}")
        return done.stdout

    def build_project(self, source, build, root):
        """Returns the seconds of processor time that it took."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        self.run_command(CMAKE, "-S", source, "-B", build, "-G", "Ninja", f"-DMuster_ROOT={root}", "--log-level=WARNING")
        self.run_command(CMAKE, "--build", build)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    def install(self):
        """An installed Muster that was moved since."""
        prefix, moved = self.dir / "prefix", self.dir / "moved" / "muster"
        self.run_command(CMAKE, "--install", BUILD, "--prefix", prefix)
        moved.parent.mkdir()
        shutil.move(prefix, moved)
        root = re.search(r"^MUSTER_TORCH_ROOT:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
        self.torch = {"MUSTER_TORCH_ROOT": root, "LD_LIBRARY_PATH": f"{root}/lib"}
        return moved
