"""A short soak of each of the two kinds. tests/soak/soak.py is the long one."""
import pathlib
import subprocess
import sys
import unittest

SOAK = pathlib.Path(__file__).resolve().parents[2] / "soak" / "soak.py"
sys.path.insert(0, str(SOAK.parent))
import checks  # noqa: E402


class Soak(unittest.TestCase):
    def soak(self, *arguments):
        done = subprocess.run([sys.executable, SOAK, *arguments], capture_output=True, text=True, timeout=280)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_six_faults(self):
        printed = self.soak("--program", "linear", "--faults", "6", "--seed", "5", "--kinds", "kill,drop,transfer,term-twice,clock,evaluator-kill")
        self.assertIn("143: ", printed)

    def test_two_faults_of_an_elastic_job(self):
        printed = self.soak("--elastic", "--faults", "2", "--seed", "3", "--kinds", "kill,flap,term")
        self.assertIn("digests of all replicas compared", printed)


class Checks(unittest.TestCase):
    """The checks of a soak find the errors that they look for."""

    def test_curves(self):
        want = {"loss": {1: 1.0, 2: 0.5}}
        self.assertEqual(checks.compare({"loss": {1: 1.0, 2: 0.5}}, want, "x"), [])
        for got in {1: 1.0, 2: 0.5 + 1e-7}, {1: 1.0}, {1: 1.0, 2: 0.5, 3: 0.4}:
            self.assertEqual(len(checks.compare({"loss": got}, want, "x")), 1, got)
        self.assertEqual(checks.compare({"loss": {1: 1.0, 2: 0.5 + 1e-7}}, want, "x", 1e-5), [])
        self.assertEqual(len(checks.compare({"loss": {1: 1.0, 2: 0.5 + 1e-5}}, want, "x", 1e-5)), 1)
        self.assertEqual(len(checks.compare({"loss": {1: 1.0, 2: float("nan")}}, want, "x", 1e-5)), 1)

    def test_what_is_left(self):
        for known in "checkpoints/step-00000010/manifest.json", "owner.lock", "eval/events.out.tfevents.1795441176.host.1", "recovery.json", "status.json":
            self.assertTrue(checks.KNOWN.fullmatch(known), known)
        for unknown in "checkpoints/.staging/step-00000010", "result.json.tmp", "checkpoints/step-00000010/state.json.part", ".job.json":
            self.assertFalse(checks.KNOWN.fullmatch(unknown), unknown)


if __name__ == "__main__":
    unittest.main(verbosity=2)
