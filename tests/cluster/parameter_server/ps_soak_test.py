"""A short soak of a job with parameter servers. tests/soak/servers.py is the long one."""
import pathlib
import subprocess
import sys
import unittest

SOAK = pathlib.Path(__file__).resolve().parents[2] / "soak" / "servers.py"


class Soak(unittest.TestCase):
    def soak(self, copies):
        """A server that is cut off, chief and worker that are killed together, a worker and a frozen server, and the evaluator."""
        done = subprocess.run([sys.executable, SOAK, "--copies", str(copies), "--faults", "4", "--seed", "18"], capture_output=True, text=True, timeout=280)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("4 faults, 2 of them pairs", done.stdout)

    def test_with_one_copy_every_update_that_is_lost_is_counted(self):
        self.soak(1)

    def test_with_two_copies_none_is_lost(self):
        self.soak(2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
