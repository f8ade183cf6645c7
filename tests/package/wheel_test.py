"""`make wheel`: what is in the wheel, and a virtual environment without network that has it and the torch of this host: it trains
`linear` to the same numbers as the build folder, and builds a project of `muster new`."""
import configparser
import email
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import venv
import zipfile

from outside import BIN, BUILD, SOURCE, OutsideTest
from harness import result

COMMANDS = ["muster", "muster-chief", "muster-evaluator", "muster-ps", "muster-worker"]
SITE = pathlib.Path(importlib.util.find_spec("torch").origin).parents[1]
# Libraries that manylinux wheels may load from a host (PEP 600) and that ours loads, and those that pip installs beside this wheel.
OUTSIDE = re.compile(r"^(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\+\+)|libtorch\w*|libc10\w*|libcudart|libnccl)\.so(\.|$)")


class Wheel(OutsideTest):
    shared = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.made = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="muster-wheel-test-")))
        started = time.monotonic()
        done = subprocess.run(["/usr/bin/python3", "-B", SOURCE / "deploy" / "package" / "build_wheel.py", BUILD, cls.made], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=400)
        assert done.returncode == 0, done.stdout
        cls.wheel = pathlib.Path(done.stdout.strip())
        print(f"made in {time.monotonic() - started:.1f} s: {cls.wheel.name}, {cls.wheel.stat().st_size / 1e6:.1f} MB")

    def environment(self, *linked, parent=None):
        """An empty virtual environment, with links to these folders of the environment with LibTorch, and the wheel."""
        folder = (parent or self.dir) / "venv"
        venv.create(folder, with_pip=False, symlinks=True)
        (site,) = folder.glob("lib/python3*/site-packages")
        for each in linked:
            (site / each).symlink_to(SITE / each)
        self.run_command(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--no-index", "--quiet",
                         "--disable-pip-version-check", self.wheel)
        return folder, site

    def with_torch(self):
        """One for all tests: they leave it as it is."""
        if not Wheel.shared:
            Wheel.shared = self.environment("torch", "nvidia", next(SITE.glob("torch-*.dist-info")).name, parent=self.made)
        return Wheel.shared

    def linear(self, program, *arguments, run):
        self.run_command(program, *arguments, "--job", SOURCE / "examples" / "linear.json", "--set", f"model_dir={self.dir / run}")
        return result(self.dir / run)

    def test_trains_to_the_numbers_of_the_build_folder(self):
        folder, site = self.with_torch()
        self.assertEqual(sorted(path.name for path in (folder / "bin").glob("muster*")), COMMANDS)
        launched = self.linear(folder / "bin" / "muster", "launch", "--workers", 1, run="wheel")
        self.assertEqual((launched["status"], launched["steps"]), ("completed", 200))
        built = self.linear(BIN / "muster", "launch", "--workers", 1, run="built")
        self.assertEqual(launched["metrics"]["train"]["loss"], built["metrics"]["train"]["loss"])
        # A worker that is killed comes back, and commands of muster-tool find their program.
        log = self.run_command(folder / "bin" / "muster", "launch", "--workers", 2, "--restart", "on-failure", "--fault", "kill@worker:1:step=20", "--job",
                               SOURCE / "examples" / "linear.json", "--set", f"model_dir={self.dir / 'killed'}")
        self.assertIn("worker 1 was killed by SIGKILL", log)
        self.assertAlmostEqual(result(self.dir / "killed")["metrics"]["train"]["loss"], built["metrics"]["train"]["loss"], places=6)
        self.run_command(folder / "bin" / "muster", "export", "--checkpoint", self.dir / "wheel" / "checkpoints" / "latest", "--output", self.dir / "w.safetensors")
        alone = self.linear(folder / "bin" / "muster-worker", run="alone")
        self.assertAlmostEqual(alone["metrics"]["train"]["loss"], built["metrics"]["train"]["loss"], places=6)

    def test_no_python_is_left_in_the_process_and_nothing_of_the_host(self):
        folder, site = self.with_torch()
        job = self.job(program="linear", epochs=10**6, model_dir=str(self.dir / "run"))
        environment = {key: value for key, value in os.environ.items() if key not in ("TF_CONFIG", "LD_LIBRARY_PATH")}
        with open(self.dir / "log", "wb") as log:
            process = subprocess.Popen([folder / "bin" / "muster-worker", "--job", job], env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + 60
            while b"training" not in (self.dir / "log").read_bytes() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            self.assertEqual(os.readlink(f"/proc/{process.pid}/exe"), str(site / "muster" / "bin" / "muster-worker"), (self.dir / "log").read_text())
            maps = pathlib.Path(f"/proc/{process.pid}/maps").read_text().splitlines()
            mapped = {pathlib.Path(line.split(None, 5)[5]) for line in maps if ".so" in line}
        finally:
            process.kill()
            process.wait(30)
        self.assertGreater(len([path for path in mapped if path.is_relative_to(site)]), 20)
        strangers = [path for path in mapped if not path.is_relative_to(site) and not path.is_relative_to(SITE.resolve()) and not OUTSIDE.match(path.name)]
        self.assertEqual(strangers, [], "libraries of this host that another one may lack")

    def test_torch_in_another_folder(self):
        folder, site = self.environment()
        (site / "torch.pth").write_text(f"{SITE}\n")
        self.assertEqual(self.linear(folder / "bin" / "muster", "launch", "--workers", 1, run="run")["status"], "completed")
        self.assertEqual(self.linear(folder / "bin" / "muster-worker", run="alone")["status"], "completed")

    def test_no_torch_and_another_torch(self):
        folder, site = self.environment()
        job = ["--job", SOURCE / "examples" / "linear.json"]
        wanted = re.search(r"^torch==(.*)$", (SOURCE / "deploy" / "requirements.txt").read_text(), re.MULTILINE)[1]
        for command in ["muster-worker"], ["muster-chief"], ["muster", "launch", "--workers", 1]:
            printed = self.run_command(folder / "bin" / command[0], *command[1:], *job, code=2)
            self.assertEqual(printed, f"{command[0]}: there is no torch. Muster needs torch {wanted}: pip install torch=={wanted}\n")
        self.assertIn("muster", self.run_command(folder / "bin" / "muster", "--help"))
        self.run_command(folder / "bin" / "muster-ps", "--version")
        (site / "torch").symlink_to(SITE / "torch")
        (site / "torch-2.1.0.dist-info").mkdir()
        printed = self.run_command(folder / "bin" / "muster-worker", *job, code=2)
        self.assertEqual(printed, f"muster-worker: torch is 2.1.0. Muster needs torch {wanted}: pip install torch=={wanted}\n")

    def test_a_project_of_its_own(self):
        _, site = self.with_torch()
        project = self.dir / "own"
        root = site / "muster"
        self.assertIn(f"-DMuster_ROOT={root}", self.run_command(root / "bin" / "muster", "new", project))
        self.build_project(project, project / "build", root)
        headers = self.run_command("ninja", "-C", project / "build", "-t", "deps")
        self.assertIn(str(root / "include" / "bundled" / "absl" / "status" / "statusor.h"), headers)
        self.assertNotRegex(headers, r"/usr/include/(absl|nlohmann)")
        self.run_command(root / "bin" / "muster", "launch", "--workers", 1, "--job", project / "job.json", "--set", "max_steps=20",
                         "--set", f"model_dir={self.dir / 'run'}")
        self.assertEqual(result(self.dir / "run")["steps"], 20)

    def test_what_is_in_it(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
            self.assertEqual({name.split("/")[0] for name in names}, {"muster", info})
            metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
            torch = re.search(r"^torch==(.*)$", (SOURCE / "deploy" / "requirements.txt").read_text(), re.MULTILINE)[0]
            self.assertEqual((metadata["Name"], metadata.get_all("Requires-Dist")), ("muster-train", [torch]))
            licences = metadata.get_all("License-File")
            for name in licences:
                self.assertGreater(len(archive.read(f"{info}/licenses/{name}")), 200, name)
            for package in "libgrpc++", "libabsl", "libssl", "libprotobuf", "nlohmann-json3-dev", "libasio-dev", "libcli11-dev":
                self.assertTrue(any(name.startswith(package) for name in licences), f"{package} among {licences}")
            scripts = configparser.ConfigParser()
            scripts.read_string(archive.read(f"{info}/entry_points.txt").decode())
            self.assertEqual(sorted(scripts["console_scripts"]), COMMANDS)
            self.assertIn(f"{info}/sboms/muster.spdx.json", names)
            self.assertEqual([name for name in names if re.search(r"\.(a|pyc)$|libtorch|libc10|libcud|libnccl|libstdc\+\+|libc\.so", name)], [])
            unpacked = self.dir / "unpacked"
            archive.extractall(unpacked)
        for path in sorted(unpacked.rglob("*")):
            if path.is_file() and path.name not in ("RECORD", "muster.spdx.json"):
                content = path.read_bytes()
                for tree in SOURCE, BUILD:
                    self.assertFalse(f"{tree}/".encode() in content, f"{path} names {tree}")

    def test_the_platform_that_its_name_states(self):
        """By auditwheel, which knows the versions of symbols that each platform has, and which libraries."""
        shown = json.loads(self.run_command(pathlib.Path(os.environ["MUSTER_TOOLS_VENV"]) / "bin" / "auditwheel", "show", "--json", self.wheel))
        stated, needed = (tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_x86_64", text).groups())) for text in (self.wheel.name, shown["sym_tag"]))
        self.assertLessEqual(needed, stated)
        self.assertEqual([name for name in shown["external_libs"] if not OUTSIDE.match(name)], [])

    def test_the_same_input_gives_the_same_bytes(self):
        before = self.wheel.read_bytes()
        self.run_command("/usr/bin/python3", "-B", SOURCE / "deploy" / "package" / "build_wheel.py", BUILD, self.dir / "again")
        self.assertTrue((self.dir / "again" / self.wheel.name).read_bytes() == before)

    def test_what_is_no_build_folder(self):
        printed = self.run_command("/usr/bin/python3", "-B", SOURCE / "deploy" / "package" / "build_wheel.py", self.dir, self.dir / "out", code=2)
        self.assertEqual(printed, f"build_wheel: {self.dir} is no build folder of Muster: run make programs\n")


if __name__ == "__main__":
    unittest.main()
