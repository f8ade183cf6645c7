"""deploy/systemd: `systemd-analyze verify` accepts the unit with its drop-in. Exits with 77 where there is no systemd-analyze.

The units that it refers to are empty ones in a folder, so that the host's own do not matter.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness import BIN
from systemd_test import INSTALLED, RUN_KEY, UNIT, parse

# The units that this unit names, and those that systemd adds.
OTHERS = {"sysinit.target", "basic.target", "shutdown.target", "multi-user.target", *parse(UNIT.read_text())["Unit"]["After"][0].split()}


class Verify(unittest.TestCase):
    def verify(self, unit, drop_in):
        with tempfile.TemporaryDirectory(prefix="muster-test-") as name:
            folder = pathlib.Path(name)
            for other in OTHERS:
                (folder / other).write_text("[Unit]\nDescription=A target of this test\n")
            (folder / UNIT.name).write_text(unit.replace(INSTALLED, str(BIN / "muster")))
            (folder / f"{UNIT.name}.d").mkdir()
            (folder / f"{UNIT.name}.d" / RUN_KEY.name).write_text(drop_in)
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", folder / UNIT.name], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, "SYSTEMD_UNIT_PATH": name})
            return done.returncode, done.stderr

    def test_systemd_accepts_it(self):
        unit, drop_in = UNIT.read_text(), RUN_KEY.read_text()
        self.assertEqual(self.verify(unit, drop_in), (0, ""))
        # It sees mistakes in both.
        self.assertIn("RestartSecs", self.verify(unit.replace("RestartSec=", "RestartSecs="), drop_in)[1])
        self.assertIn("LoadCredentials", self.verify(unit, drop_in.replace("LoadCredential=", "LoadCredentials="))[1])


if __name__ == "__main__":
    if not shutil.which("systemd-analyze"):
        print("systemd-analyze is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
