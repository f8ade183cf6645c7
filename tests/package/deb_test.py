"""`make deb`: what is in the package, and that its programs train `linear` from where it is unpacked, without a package manager.
tests/package/empty_root installs, removes and purges it."""
import gzip
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from outside import BIN, BUILD, SOURCE, OutsideTest
from harness import result

PROGRAMS = ["muster", "muster-chief", "muster-evaluator", "muster-ps", "muster-tool", "muster-worker"]


class Deb(OutsideTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="muster-deb-test-")))
        started = time.monotonic()
        done = subprocess.run(["/usr/bin/python3", "-B", SOURCE / "deploy" / "package" / "build_deb.py", BUILD, folder], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=500)
        assert done.returncode == 0, done.stdout
        cls.deb = pathlib.Path(done.stdout.strip())
        cls.root = folder / "root"
        subprocess.run(["dpkg-deb", "-x", cls.deb, cls.root], check=True, timeout=120)
        print(f"made in {time.monotonic() - started:.1f} s: {cls.deb.name}, {cls.deb.stat().st_size / 1e6:.1f} MB")

    def test_trains_to_the_numbers_of_the_build_folder(self):
        losses = []
        for program in self.root / "usr" / "bin" / "muster", BIN / "muster":
            run = self.dir / f"run-{len(losses)}"
            self.run_command(program, "launch", "--workers", 1, "--job", self.root / "usr" / "share" / "doc" / "muster" / "examples" / "linear.json",
                             "--set", f"model_dir={run}")
            losses.append(result(run)["metrics"]["train"]["loss"])
        self.assertEqual(losses[0], losses[1])
        for name in PROGRAMS:
            printed = self.run_command("ldd", self.root / "usr" / "bin" / name)
            for library in re.findall(r"(lib(?:muster|torch|c10|gomp|cu)\S*) => (\S+)", printed):
                self.assertTrue(pathlib.Path(library[1]).resolve().is_relative_to(self.root), library)

    def test_control(self):
        fields = dict(re.findall(r"^(\S+): (.*)$", self.run_command("dpkg-deb", "-f", self.deb), re.MULTILINE))
        self.assertEqual((fields["Package"], fields["Architecture"]), ("muster", "amd64"))
        for package in "libc6 (>= 2.", "libgrpc++1", "libabsl", "libprotobuf", "libssl3", "libstdc++6":
            self.assertIn(package, fields["Depends"])
        self.assertNotRegex(fields["Depends"], r"torch|cuda|-dev|python")
        scripts = self.dir / "control"
        self.run_command("dpkg-deb", "-e", self.deb, scripts)
        self.assertEqual(sorted(path.name for path in scripts.iterdir()), ["control", "md5sums", "postinst", "postrm", "prerm"])

    def test_files(self):
        usr = self.root / "usr"
        self.assertEqual([path.name for path in self.root.iterdir()], ["usr"])
        self.assertEqual(sorted(path.name for path in (usr / "bin").iterdir()), PROGRAMS)
        for path in ["lib/systemd/system/muster@.service", "lib/sysusers.d/muster.conf", "share/muster/systemd/run-key.conf", "share/man/man1/muster.1.gz",
                     "share/doc/muster/systemd.md", "share/doc/muster/changelog.gz", "share/doc/muster/muster.spdx.json", "share/muster/slurm/muster.sbatch"]:
            self.assertTrue((usr / path).is_file(), path)
        documents = usr / "share" / "doc" / "muster"
        self.assertIn("Apache License, Version 2.0", (documents / "copyright").read_text())
        licences = {path.name.split("-")[0]: gzip.decompress(path.read_bytes()) for path in (documents / "licenses").iterdir()}
        self.assertEqual(sorted(licences), ["nvidia_cuda_cupti", "nvidia_cuda_runtime", "torch"])
        for text in licences.values():
            self.assertGreater(len(text), 1000)
        for path in sorted(usr.rglob("*")):
            if path.is_file():
                self.assertEqual(path.stat().st_mode & 0o022, 0, path)
                if path.name != "muster.spdx.json":
                    content = path.read_bytes()
                    for tree in SOURCE, BUILD:
                        self.assertFalse(f"{tree}/".encode() in content, f"{path} names {tree}")

    def test_lintian(self):
        """No error and no warning. lintian of Debian 12 does not know the compression, which dpkg of Debian 12 reads."""
        if not shutil.which("lintian"):
            self.skipTest("there is no lintian: apt-get install lintian")
        printed = self.run_command("lintian", "--fail-on", "error,warning", "--allow-root", "--suppress-tags", "malformed-deb-archive", self.deb, timeout=500)
        self.assertNotRegex(printed, r"(?m)^[EW]:")

    def test_scripts_without_systemd(self):
        """Nothing fails where systemd's commands are missing; where they are there, the user is made."""
        scripts = SOURCE / "deploy" / "package" / "debian"
        tools = self.dir / "tools"
        tools.mkdir()
        for name in "postinst configure", "prerm remove", "postrm remove", "postrm purge", "prerm upgrade 0.1.0":
            script, *arguments = name.split()
            self.assertEqual(self.run_command("/bin/sh", scripts / script, *arguments, environment={"PATH": str(tools)}), "")
        (tools / "systemd-sysusers").write_text('#!/bin/sh\necho "sysusers $*"\n')
        (tools / "systemd-sysusers").chmod(0o755)
        self.assertEqual(self.run_command("/bin/sh", scripts / "postinst", "configure", environment={"PATH": str(tools)}), "sysusers muster.conf\n")


if __name__ == "__main__":
    unittest.main()
