"""The harness itself: a test that failed leaves its folder, and prints what its processes said last."""
import contextlib
import io
import shutil
import sys
import unittest

from harness import ClusterTest, Process
from recording import RecordingTest


class Sample(ClusterTest):
    def say(self):
        process = Process("task", [sys.executable, "-c", "print('almost'); print('there'); raise SystemExit(7)"], None, self.dir / "log-0")
        self.processes.append(process)
        process.wait(30)

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
        test, told = Sample(name), io.StringIO()
        with contextlib.redirect_stderr(told):
            test.run(unittest.TestResult())
        if test.dir.exists():
            self.addCleanup(shutil.rmtree, test.dir)
        return test, told.getvalue()

    def test_a_failed_test_leaves_its_folder_and_prints_its_logs(self):
        for name in "wrong", "broken", "partly_wrong":
            test, told = self.run_sample(name)
            self.assertTrue((test.dir / "log-0").exists(), name)
            self.assertIn(f"Sample.{name} failed; its folder stays: {test.dir}\n", told)
            self.assertIn(f"---- task, exit code 7, the last 2 of 2 lines of {test.dir}/log-0\nalmost\nthere\n", told)

    def test_any_other_one_leaves_nothing(self):
        for name in "good", "left_out":
            test, told = self.run_sample(name)
            self.assertFalse(test.dir.exists(), name)
            self.assertEqual(told, "")


class Torn(RecordingTest):
    def test_a_step_that_a_survivor_received_has_no_line_of_it(self):
        """The one that left finished step 10; a survivor did not, and received its result from a third."""
        (self.dir / "used-1-0").write_text("8 1\n9 2\n11 3\n")
        (self.dir / "used-2-1").write_text("8 4\n9 5\n10 6\n")
        (self.dir / "used-3-2").write_text("8 7\n9 8\n10 9\n11 10\n12 11\n")
        self.assertEqual(self.torn(self.dir), {10, 11, 12})


if __name__ == "__main__":
    unittest.main(verbosity=2)
