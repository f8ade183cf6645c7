"""A bundle in empty roots of Debian 12, Debian 13 and Ubuntu 24.04, and the image that the Containerfile describes, built and run without an engine.

  roots_test.py   (MUSTER_BIN_DIR: the programs; MUSTER_ROOTS: where roots are kept; MUSTER_UBUNTU_ARCHIVE: the address of Ubuntu's archive;
                  MUSTER_IMAGE_BUNDLE: a bundle in the place of the image's first stage)

Needs root, debootstrap, zstd and package archives.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cluster" / "base")]
import containerfile  # noqa: E402
import roots  # noqa: E402
from harness import BIN, SOURCE, losses, result  # noqa: E402

DATA = "/usr/share/datasets/fashion-mnist"
LINEAR = {"program": "linear", "global_batch_size": 5, "max_steps": 40, "summary": {"every_steps": 1}, "model_dir": "/out/linear"}
FASHION = {"program": "fashion_mnist", "program_args": {"hidden": 16, "validation": 1000, "train_examples": 12800}, "global_batch_size": 128, "epochs": 1,
           "model_dir": "/out/fashion"}
EVERYBODY = 0o777


class RootsTest(unittest.TestCase):
    """One folder for all, with jobs and what they leave."""

    @classmethod
    def setUpClass(cls):
        if reason := roots.why_not():
            raise unittest.SkipTest(f"no roots here: {reason}")
        cls.folder = tempfile.TemporaryDirectory(prefix="muster-roots-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.dir = pathlib.Path(cls.folder.name)
        cls.dir.chmod(0o755)
        (cls.dir / "jobs").mkdir()
        for name, job in ("linear", LINEAR), ("fashion", FASHION):
            (cls.dir / "jobs" / f"{name}.json").write_text(json.dumps(job))
        (cls.dir / "jobs" / "message").touch()

    def out(self, name):
        folder = self.dir / name
        folder.mkdir()
        folder.chmod(EVERYBODY)
        return folder


class Bundle(RootsTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.archives = {}
        for ending in "tar.zst", "tar.gz":
            cls.archives[ending] = cls.dir / f"muster.{ending}"
            subprocess.run([BIN / "muster", "bundle", cls.archives[ending], "--compression", "1"], check=True, timeout=600)
        expected = cls.dir / "expected"
        subprocess.run([BIN / "muster-worker", "--job", cls.dir / "jobs" / "linear.json", "--set", f"model_dir={expected}"], check=True, timeout=120,
                       env={k: v for k, v in os.environ.items() if k != "TF_CONFIG"})
        cls.expected = losses(expected)

    def unpacked(self, root, ending):
        """By the root's own tar where it can, as a user of that host would."""
        folder = self.dir / f"{root.name}-{ending}"
        folder.mkdir()
        with open(self.archives[ending], "rb") as archive:
            if ending == "tar.gz":
                command = roots.command_in(root, "tar", "-xzf", "-", "-C", "/opt", binds=[(folder, "/opt", "rw")], read_only=True)
                subprocess.run(command, stdin=archive, check=True, timeout=300)
            else:
                subprocess.run(["tar", "--zstd", "-xf", "-", "-C", folder], stdin=archive, check=True, timeout=300)
        return folder / "muster"

    def trains(self, name, ending):
        if reason := roots.why_not(name):
            self.skipTest(reason)
        root = roots.empty_root(name)
        self.assertFalse((root / "usr/bin/python3").exists() or (root / "usr/bin/g++").exists(), "the root is not empty")
        muster, out = self.unpacked(root, ending), self.out(f"out-{name}")
        binds = [(muster, "/mnt", "ro"), (self.dir / "jobs", "/srv", "ro"), (out, "/media", "rw")]
        for job in "linear", "fashion":
            printed = roots.run_in(root, "/mnt/bin/muster", "launch", "--workers", "1", "--job", f"/srv/{job}.json", "--set",
                                   f"model_dir=/media/{job}", *(["--set", "program_args.data_dir=/home"] if job == "fashion" else []),
                                   binds=[*binds, (DATA, "/home", "ro")], read_only=True)
            self.assertIn("completed", result(out / job)["status"], printed)
        self.assertEqual(losses(out / "linear").keys(), self.expected.keys())
        for step, loss in self.expected.items():
            self.assertAlmostEqual(losses(out / "linear")[step], loss, delta=1e-5)
        self.assertGreater(result(out / "fashion")["metrics"]["test"]["accuracy"], 0.6)
        # Every command that a bundle has starts.
        for command in ("muster", "--version"), ("muster", "check", "--job", "/srv/linear.json"), ("muster-ps", "--version"), ("muster-evaluator", "--version"):
            roots.run_in(root, f"/mnt/bin/{command[0]}", *command[1:], binds=binds, read_only=True)

    def test_debian_12(self):
        self.trains("bookworm", "tar.gz")

    def test_debian_13(self):
        self.trains("trixie", "tar.zst")

    def test_ubuntu_24_04(self):
        self.trains("noble", "tar.gz")


class Cuda(RootsTest):
    def test_every_library_finds_those_that_it_needs(self):
        """Without a GPU. The driver's own library is the only one that is not there."""
        archive = self.dir / "cuda.tar.zst"
        done = subprocess.run([BIN / "muster", "bundle", archive, "--cuda", "--compression", "1"], capture_output=True, text=True, timeout=1800)
        if "built without CUDA" in done.stderr:
            self.skipTest("this Muster was built without CUDA")
        self.assertEqual(done.returncode, 0, done.stderr)
        subprocess.run(["tar", "-xf", archive, "-C", self.dir], check=True, timeout=600)
        archive.unlink()
        root, muster = roots.empty_root("bookworm"), self.dir / "muster"
        names = sorted(path.name for path in (muster / "lib").iterdir())
        for name in "muster_nccl.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so", "libnccl.so.2", "libcudnn.so.9", "libcudnn_ops.so.9":
            self.assertIn(name, names)
        loop = 'for name in "$@"; do echo "$name:"; /lib64/ld-linux-x86-64.so.2 --list /mnt/lib/$name; done'
        printed = roots.run_in(root, "sh", "-c", loop, "sh", *names, binds=[(muster, "/mnt", "ro")], read_only=True)
        missing = {line.split()[0] for line in printed.splitlines() if "not found" in line}
        self.assertLessEqual(missing, {"libcuda.so.1"})
        self.assertRegex(printed, r"libtorch_cuda.so => /mnt/lib/")


class Image(RootsTest):
    """The Containerfile's own steps. A container is then the image read-only, with volumes, and the manifests' user."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cache = pathlib.Path(os.environ.get("MUSTER_IMAGE_CACHE", roots.ROOTS / "cache"))
        builder = containerfile.Builder(SOURCE, roots.ROOTS / "stages", {"debian:12-slim": roots.empty_root("bookworm")}, cache,
                                        os.environ.get("MUSTER_IMAGE_BUNDLE"))
        cls.image = builder.build()
        cls.user = cls.image.last("USER")

    def container(self, *command, out, **how):
        message = self.dir / "message"
        message.touch()
        message.chmod(EVERYBODY)
        return roots.command_in(self.image.root, *(command or containerfile.command_of(self.image)), user=self.user, read_only=True,
                                environment=self.image.environment(), folder=self.image.last("WORKDIR"),
                                binds=[(out, "/var/lib/muster", "rw"), (self.dir / "jobs", "/srv", "ro"), (message, "/srv/message", "rw")], **how)

    def test_tells_its_commands(self):
        done = subprocess.run(self.container(out=self.out("help")), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("launch", done.stdout)

    def test_trains_with_its_own_data(self):
        out = self.out("image-fashion")
        done = subprocess.run(self.container("muster", "launch", "--workers", "1", "--job", "/srv/fashion.json", "--set", "model_dir=/var/lib/muster/fashion", out=out),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertGreater(result(out / "fashion")["metrics"]["test"]["accuracy"], 0.6)
        self.assertEqual(f"{os.stat(out / 'fashion').st_uid}:{os.stat(out / 'fashion').st_gid}", self.user)

    def test_leaves_a_termination_message_and_stops_on_its_signal(self):
        out = self.out("image-stopped")
        with open(out / "log", "wb") as log:
            process = subprocess.Popen(self.container("env", "MUSTER_TERMINATION_LOG=/srv/message", "muster-worker", "--job", "/srv/linear.json", "--set",
                                                      "max_steps=100000000", "--set", "model_dir=/var/lib/muster/linear", out=out), stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not (out / "linear" / "owner.json").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        # The task is the only child of what entered the container, as its first process.
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), getattr(signal, self.image.last("STOPSIGNAL")))
        self.assertEqual(process.wait(60), 143, (out / "log").read_text())
        self.assertNotEqual((self.dir / "message").read_text(), "")

    def test_has_nothing_that_training_does_not_need(self):
        for path in "usr/bin/g++", "usr/bin/python3", "usr/bin/make", "cache", "src":
            self.assertFalse((self.image.root / path).exists(), path)
        self.assertEqual([*(self.image.root / "var/lib/apt/lists").glob("*Packages*")], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
