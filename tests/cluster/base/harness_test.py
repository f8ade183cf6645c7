"""The harness itself: a test that failed leaves its folder, and prints what its processes said last."""
import contextlib
import io
import pathlib
import shutil
import subprocess
import sys
import unittest

from harness import ClusterTest
from recording import RecordingTest


class Sample(ClusterTest):
    def say(self):
        self.start_process("task", [sys.executable, "-c", "print('almost'); print('there'); raise SystemExit(7)"]).wait(30)

    def good(self):
        self.say()

    def wrong(self):
        self.say()
        self.fail("on purpose")

    def broken(self):
        self.say()
        raise OSError("on purpose")

    def partly_wrong(self):
        self.say()
        with self.subTest("one"):
            self.fail("on purpose")

    def left_out(self):
        self.skipTest("on purpose")


class Harness(unittest.TestCase):
    def run_sample(self, name):
        test, printed = Sample(name), io.StringIO()
        with contextlib.redirect_stderr(printed):
            test.run(unittest.TestResult())
        if test.dir.exists():
            self.addCleanup(shutil.rmtree, test.dir)
        return test, printed.getvalue()

    def test_a_failed_test_leaves_its_folder_and_prints_its_logs(self):
        for name in "wrong", "broken", "partly_wrong":
            test, printed = self.run_sample(name)
            self.assertTrue((test.dir / "log-0").exists(), name)
            self.assertIn(f"Sample.{name} failed; its folder stays: {test.dir}\n", printed)
            self.assertIn(f"---- task, exit code 7, the last 2 of 2 lines of {test.dir}/log-0\nalmost\nthere\n", printed)

    def test_any_other_one_leaves_nothing(self):
        for name in "good", "left_out":
            test, printed = self.run_sample(name)
            self.assertFalse(test.dir.exists(), name)
            self.assertEqual(printed, "")


class Codes(unittest.TestCase):
    def test_a_skipped_test_hides_no_failed_one(self):
        bodies = {"good": "pass", "skipped": "self.skipTest('on purpose')", "wrong": "self.fail('on purpose')"}
        for names, code in (("good", 0), ("good skipped", 77), ("good skipped wrong", 1), ("wrong", 1)):
            tests = "".join(f"    def test_{name}(self):\n        {bodies[name]}\n" for name in names.split())
            script = f"import unittest\nfrom harness import main\n\nclass T(unittest.TestCase):\n{tests}\nmain()\n"
            done = subprocess.run([sys.executable, "-c", script], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, code, names + done.stderr)


class Torn(RecordingTest):
    def test_a_step_that_a_survivor_received_has_no_line_of_it(self):
        """The one that left finished step 10; a survivor did not, and received its result from a third."""
        (self.dir / "used-1-0").write_text("8 1\n9 2\n11 3\n")
        (self.dir / "used-2-1").write_text("8 4\n9 5\n10 6\n")
        (self.dir / "used-3-2").write_text("8 7\n9 8\n10 9\n11 10\n12 11\n")
        self.assertEqual(self.torn(self.dir), {10, 11, 12})


if __name__ == "__main__":
    unittest.main(verbosity=2)
