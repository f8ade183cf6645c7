"""`muster bundle`: what it writes is the same each time, needs nothing of the build or of this host's packages, and trains as the build does."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from outside import BIN, BUILD, OutsideTest
from harness import SOURCE, losses, result

sys.path.insert(0, str(SOURCE / "tests" / "golden"))
from golden import STAYS, rows, type_of  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PLUGINS = BUILD / "tests" / "plugins"
PROGRAMS = ["muster", "muster-chief", "muster-evaluator", "muster-ps", "muster-tool", "muster-worker"]
GLIBC = re.compile(r"^(ld-linux.*|lib(c|m|mvec|dl|pthread|rt|util|resolv|anl)\.so\.\d+|linux-vdso.*)$")
QUICK = ("--compression", "1")


def mounting_is_refused():
    """Why this process may not mount anything, "" if it may."""
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    return subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True).stderr.strip()


REFUSED = mounting_is_refused()


def torch_folder():
    """The virtual environment or unpacked zip that LibTorch is in."""
    root = re.search(r"^MUSTER_TORCH_ROOT:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
    return pathlib.Path(root)


def hidden(*command):
    """The command in a place without the tree, the build, LibTorch and CUDA, and without variables that name them."""
    torch = torch_folder()
    folders = [folder for folder in dict.fromkeys((BUILD, SOURCE, torch / "lib", torch.parent / "nvidia")) if folder.exists()]
    covers = " && ".join(f"mount -t tmpfs none '{folder}'" for folder in folders)
    return ["unshare", "-m", "sh", "-c", f"{covers} && exec env -i PATH=/usr/bin:/bin \"$@\"", "sh", *map(str, command)]


@unittest.skipUnless((BIN / "muster-bundle").exists(), "muster-bundle is not built")
class Bundle(OutsideTest):
    @classmethod
    def setUpClass(cls):
        # One for all tests, with the program of a job: it is large. The program's build is that of plugin_test.py.
        case = cls()
        case.dir = BUILD
        case.build_project(HERE / "plugins", PLUGINS, BUILD)
        cls.temporary = pathlib.Path(tempfile.mkdtemp(prefix="muster-bundle-"))
        cls.addClassCleanup(shutil.rmtree, cls.temporary)
        cls.plugin = shutil.copy(PLUGINS / "small.so", cls.temporary / "own.so")
        cls.archive = cls.temporary / "muster.tar.zst"
        done = subprocess.run([BIN / "muster", "bundle", cls.archive, "--program", cls.plugin, *QUICK], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        cls.said = done.stdout
        (cls.temporary / "elsewhere").mkdir()
        subprocess.run(["tar", "-xf", cls.archive, "-C", cls.temporary / "elsewhere"], check=True, timeout=300)
        cls.muster = cls.temporary / "elsewhere" / "muster"

    def names(self, folder):
        return sorted(path.name for path in (self.muster / folder).iterdir())

    def test_contents(self):
        self.assertEqual(self.names("bin"), PROGRAMS)
        self.assertEqual(self.names("programs"), ["own.so"])
        libraries = self.names("lib")
        for name in "libtorch_cpu.so", "libc10.so", "libstdc++.so.6", "libmuster.so.0.1", "libmuster_core.so.0.1":
            self.assertIn(name, libraries)
        self.assertEqual([name for name in libraries if GLIBC.match(name) or re.match(r"lib(torch_cuda|torch_python|archive|python)", name)], [])
        about = json.loads((self.muster / "bundle.json").read_text())
        self.assertEqual((about["devices"], about["programs"]), ("cpu", ["programs/own.so"]))
        self.assertIn(f"for hosts with glibc {about['glibc']} or newer", self.said)
        self.assertIn("CPU only", self.said)
        licenses = self.names("doc/licenses")
        self.assertTrue(any(name.startswith("torch-") for name in licenses), licenses)
        self.assertTrue(any(name.startswith("libgrpc") for name in licenses), licenses)

    def test_published_names(self):
        about = json.loads((self.muster / "bundle.json").read_text())
        for name, kind, _ in rows("bundle.txt", 3):
            path = self.muster.parent / name if name == "muster" else self.muster / name
            found = ("folder" if path.is_dir() else "file") if kind in ("folder", "file") and path.exists() else type_of(about.get(name))
            self.assertEqual(found, kind, f"{name}. {STAYS}")
        self.assertEqual(sorted(about), sorted(name for name, kind, _ in rows("bundle.txt", 3) if kind in ("string", "array")), "new keys: add them to bundle.txt")

    def test_from_an_installation(self):
        muster = self.install() / "bin" / "muster"
        archive = self.dir / "installed.tar.gz"
        self.assertIn("CPU only", self.run_command(muster, "bundle", archive, *QUICK))
        listed = set(subprocess.run(["tar", "-tf", archive], check=True, capture_output=True, text=True).stdout.split())
        here = {str(path.relative_to(self.muster.parent)) + "/" * path.is_dir() for path in self.muster.rglob("*")} | {"muster/"}
        self.assertEqual(listed ^ here, {"muster/programs/", "muster/programs/own.so"})
        self.torch = {}
        self.assertIn("needs libtorch_cpu.so", self.run_command(muster, "bundle", archive, *QUICK, code=2))

    def test_no_search_path_of_the_build_is_left(self):
        for path in [*(self.muster / "bin").iterdir(), *(self.muster / "lib").iterdir(), *(self.muster / "programs").iterdir()]:
            printed = subprocess.run(["readelf", "-dW", path], check=True, capture_output=True, text=True).stdout
            found = re.findall(r"\((RPATH|RUNPATH)\).*\[(.*)\]", printed)
            allowed = {"bin": [("RPATH", "$ORIGIN/../lib")], "programs": [("RPATH", "$ORIGIN/../lib")], "lib": [("RPATH", "$ORIGIN")]}
            self.assertIn(found, ([], allowed[path.parent.name]), path)
            if path.parent.name == "bin":
                self.assertTrue(found, path)

    def test_every_library_is_its_own(self):
        """The loader finds these libraries, also if LD_LIBRARY_PATH names others."""
        loader = re.search(r"interpreter: (\S+)\]", subprocess.run(["readelf", "-lW", BIN / "muster"], check=True, capture_output=True, text=True).stdout)[1]
        for path in [self.muster / "bin" / name for name in PROGRAMS]:
            printed = subprocess.run([loader, "--list", path], check=True, capture_output=True, text=True,
                                     env={"LD_LIBRARY_PATH": f"{BUILD}/lib:{torch_folder()}/lib"}).stdout
            found = re.findall(r"^\s*(\S+)(?: => (\S+))? \(", printed, re.MULTILINE)
            self.assertGreater(len(found), 5)
            for name, where in found:
                if not GLIBC.match(pathlib.Path(name).name):
                    self.assertEqual(pathlib.Path(where).resolve().parent, (self.muster / "lib").resolve(), f"{path.name}: {name}")

    def test_it_is_the_same_each_time(self):
        again = self.dir / "again.tar.zst"
        pathlib.Path(self.plugin).touch()  # Times differ, and permissions.
        pathlib.Path(self.plugin).chmod(0o600)
        self.run_command("sh", "-c", 'umask 077; exec "$@"', "sh", BIN / "muster", "bundle", again, "--program", self.plugin, *QUICK)
        self.assertEqual(subprocess.run(["cmp", self.archive, again], capture_output=True, text=True).stdout, "")

    @unittest.skipIf(REFUSED, f"mounting is not permitted here: {REFUSED}")
    def test_a_job_finds_its_program(self):
        job = self.job(program=str(self.muster / "programs" / "own.so"), max_steps=4)
        model_dir = self.dir / "model"
        self.run_command(*hidden(self.muster / "bin" / "muster", "launch", "--workers", 1, "--job", job, "--set", f"model_dir={model_dir}"))
        self.assertEqual((result(model_dir)["status"], result(model_dir)["steps"]), ("completed", 4))

    @unittest.skipIf(REFUSED, f"mounting is not permitted here: {REFUSED}")
    def test_trains_where_nothing_else_is(self):
        job = self.job(max_steps=20)
        expected = self.dir / "expected"
        self.run_command(BIN / "muster-worker", "--job", job, "--set", f"model_dir={expected}")
        got = self.dir / "got"
        self.run_command(*hidden(self.muster / "bin" / "muster", "launch", "--workers", 1, "--job", job, "--set", f"model_dir={got}"))
        self.assertEqual(result(got)["status"], "completed")
        self.assertEqual(losses(got).keys(), losses(expected).keys())
        for step, loss in losses(expected).items():
            self.assertAlmostEqual(losses(got)[step], loss, delta=1e-5)
        self.assertIn("linear", self.run_command(*hidden(self.muster / "bin" / "muster", "check", "--job", job)))

    def test_refusals_are_one_sentence(self):
        text = self.dir / "text.so"
        text.write_text("no library")
        for arguments, said in ((["out.zip"], ".tar.zst or .tar.gz"), (["none/out.tar.zst"], "No such file or directory"),
                                (["out.tar.zst", "--program", "none.so"], "none.so"), (["out.tar.zst", "--program", str(text)], "not a 64-bit program"),
                                (["out.tar.zst", "--cpu", "--cuda"], "exclude each other"), ([], "OUT"), (["out.tar.zst", "--compression", "20"], "from 1 to 19, is 20")):
            with self.subTest(arguments=arguments):
                printed = self.run_command(BIN / "muster", "bundle", *arguments, code=2)
                self.assertIn(said, printed)
                self.assertNotIn("what():", printed)
        self.assertEqual([path.name for path in self.dir.glob("out*")], [])
        # A bundle holds what trains, not what makes bundles.
        self.assertIn("cannot start", self.run_command(self.muster / "bin" / "muster", "bundle", "out.tar.zst", code=2))


if __name__ == "__main__":
    unittest.main()
