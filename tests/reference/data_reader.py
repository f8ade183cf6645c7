"""A job's data as print_data reads it, as numpy arrays; and folders for tests to put files in."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster" / "base"))
from harness import CONFIGURATION, DAMAGED  # noqa: E402, F401

DTYPES = {"Byte": "u1", "Char": "i1", "Short": "i2", "Int": "i4", "Long": "i8", "Half": "f2", "Float": "f4", "Double": "f8", "Bool": "?"}


class Columns(dict):
    """Arrays by name; `classes` of the labels, by name too."""

    def __init__(self, columns):
        super().__init__()
        self.classes = {}
        for column in columns:
            values = numpy.frombuffer(bytes.fromhex(column["bytes"]), DTYPES[column["dtype"]])
            self[column["name"]] = values.reshape([-1, *column["shape"]])
            if column["classes"]:
                self.classes[column["name"]] = column["classes"]


class DataTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @classmethod
    def tearDownClass(cls):
        cls.program.stdin.close()
        status = cls.program.wait(timeout=60)
        cls.program.stdout.close()
        assert status == 0, status

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def ask(self, split, which="train", **keys):
        data = {"train": "program", **({which: split} if isinstance(split, dict) else {})}
        self.program.stdin.write(json.dumps({"data": keys.pop("data", data), "split": which, "folder": str(self.dir), **keys}) + "\n")
        self.program.stdin.flush()
        line = self.program.stdout.readline()
        assert line, "print_data has ended: its message is above"
        return json.loads(line)

    def read(self, which="train", epoch=0, batch=4, threads=0, replicas=1, **split):
        """In the files' order unless `shuffle` says otherwise."""
        if which == "train":
            split = {"shuffle": False, **split}
        answer = self.ask(split, which, epoch=epoch, batch=batch, threads=threads, replicas=replicas)
        self.assertNotIn("error", answer)
        return Columns(answer["columns"])

    def refused(self, code, *words, **split):
        """One sentence that has all of `words`."""
        answer = self.ask(split)
        self.assertIn("error", answer, f"nothing was wrong with {split}")
        self.assertEqual(answer["code"], code, answer["error"])
        for word in words:
            self.assertIn(word, answer["error"])
        self.assertNotIn("\n", answer["error"])
        return answer["error"]


def main():
    unittest.main(argv=sys.argv[:1])
