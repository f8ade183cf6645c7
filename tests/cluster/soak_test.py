"""A short soak: ten faults in one run. tests/soak/soak.py is the long one."""
import pathlib
import subprocess
import sys
import unittest

SOAK = pathlib.Path(__file__).resolve().parents[1] / "soak" / "soak.py"


class Soak(unittest.TestCase):
    def test_ten_faults(self):
        done = subprocess.run([sys.executable, SOAK, "--program", "linear", "--faults", "10", "--seed", "5"], capture_output=True, text=True, timeout=400)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
