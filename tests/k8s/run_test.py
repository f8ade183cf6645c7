"""`run` tells ctest of a skipped test, and never hides a failed one."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(__file__).with_name("run")
CASE = """import unittest
class Case(unittest.TestCase):
    def test_a(self): {}
    def test_b(self): {}
unittest.main(verbosity=2)
"""
PASS, SKIP, FAIL = "pass", "self.skipTest('no kernel')", "self.fail('wrong')"


class Run(unittest.TestCase):
    def test_exit_codes(self):
        with tempfile.TemporaryDirectory(prefix="muster-test-") as folder:
            script = pathlib.Path(folder) / "case.py"
            for a, b, code in (PASS, PASS, 0), (PASS, SKIP, 77), (SKIP, SKIP, 77), (FAIL, SKIP, 1), (SKIP, FAIL, 1), ("print('it skipped a line')", PASS, 0):
                script.write_text(CASE.format(a, b))
                done = subprocess.run([RUN, sys.executable, script], capture_output=True, text=True)
                with self.subTest(a=a, b=b):
                    self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                    self.assertIn("test_a", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
