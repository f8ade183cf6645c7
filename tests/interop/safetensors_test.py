"""Checkpoints and Python's safetensors and torch: each reads what the other wrote, by name.

Run as: safetensors_test.py PROGRAM, where PROGRAM is safetensors_io.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

PROGRAM = ""

TYPES = {"BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16,
         "I32": torch.int32, "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16,
         "F32": torch.float32, "F64": torch.float64}


def expected(name):
    count = torch.arange(15)
    values = count % 2 if name == "BOOL" else count - 3
    return values.to(TYPES[name]).reshape(3, 5)


def read(path):
    done = subprocess.run([PROGRAM, "read", path], capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else done.stderr


def raw(tensor):
    flat = tensor.contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()).hex() if flat.numel() else ""


class MusterWrites(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        subprocess.run([PROGRAM, "write", cls.folder.name], check=True, timeout=60)
        cls.path = os.path.join(cls.folder.name, "checkpoints", "step-00000500")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check(self, tensors):
        self.assertEqual(len(tensors), len(TYPES) + 2)
        for name, dtype in TYPES.items():
            tensor = tensors["layer." + name]
            self.assertEqual(tensor.dtype, dtype)
            self.assertTrue(torch.equal(tensor, expected(name)), name)
        self.assertEqual(tensors["scalar"].shape, torch.Size([]))
        self.assertEqual(tensors["scalar"].item(), -3)
        self.assertEqual(tensors["empty"].shape, torch.Size([2, 0, 3]))
        self.assertEqual(tensors["empty"].dtype, torch.int64)

    def test_torch(self):
        self.check(safetensors.torch.load_file(os.path.join(self.path, "model.safetensors")))

    def test_torch_from_bytes(self):
        with open(os.path.join(self.path, "model.safetensors"), "rb") as file:
            self.check(safetensors.torch.load(file.read()))

    def test_one_by_one_and_metadata(self):
        with safetensors.safe_open(os.path.join(self.path, "model.safetensors"), "pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt"})
            self.check({name: file.get_tensor(name) for name in file.keys()})

    def test_numpy(self):
        with safetensors.safe_open(os.path.join(self.path, "model.safetensors"), "np") as file:
            for name in set(TYPES) - {"BF16"}:  # which numpy has not
                array = file.get_tensor("layer." + name)
                numpy.testing.assert_array_equal(array, expected(name).numpy())
            self.assertEqual(file.get_tensor("scalar").shape, ())

    def test_state_dict(self):
        """A program's only model loads it by the names of its parameters."""
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.ParameterDict({"F32": torch.zeros(3, 5)})
        model = Model()
        tensors = safetensors.torch.load_file(os.path.join(self.path, "model.safetensors"))
        model.load_state_dict({"layer.F32": tensors["layer.F32"]})
        self.assertTrue(torch.equal(model.layer["F32"], expected("F32")))

    def test_no_tensors(self):
        self.assertEqual(
            safetensors.torch.load_file(os.path.join(self.path, "optimizer.safetensors")), {})

    def test_json(self):
        with open(os.path.join(self.path, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual(manifest["step"], 500)
        for name, entry in manifest["files"].items():
            self.assertEqual(os.path.getsize(os.path.join(self.path, name)), entry["bytes"])
        with open(os.path.join(self.path, "state.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["job"], {"program": "linear"})


class PythonWrites(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "file.safetensors")

    def check(self, tensors):
        code, found = read(self.path)
        self.assertEqual(code, 0, found)
        self.assertEqual(set(found), set(tensors))
        names = {dtype: name for name, dtype in TYPES.items()}
        for name, tensor in tensors.items():
            self.assertEqual(found[name]["dtype"], names[tensor.dtype])
            self.assertEqual(found[name]["shape"], list(tensor.shape))
            self.assertEqual(found[name]["bytes"], raw(tensor), name)

    def test_torch(self):
        tensors = {"of." + name: expected(name) for name in TYPES}
        tensors["scalar"] = torch.tensor(2.5)
        tensors["empty"] = torch.zeros(0, 4, dtype=torch.bfloat16)
        tensors["größe \"x\""] = torch.arange(7, dtype=torch.int8)
        for metadata in (None, {"format": "pt", "note": "ü\n\"q\""}):
            safetensors.torch.save_file(tensors, self.path, metadata=metadata)
            self.check(tensors)

    def test_numpy(self):
        arrays = {"a": numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
                  "b": numpy.array([True, False])}
        safetensors.numpy.save_file(arrays, self.path)
        self.check({name: torch.from_numpy(array) for name, array in arrays.items()})

    def test_padding(self):
        header = json.dumps({"__metadata__": {"made": "by hand"},
                             "t": {"dtype": "I16", "shape": [2], "data_offsets": [0, 4]}})
        for blanks in (0, 1, 7, 1000):
            text = header.encode() + b" " * blanks
            with open(self.path, "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text + struct.pack("<hh", -2, 300))
            self.check({"t": torch.tensor([-2, 300], dtype=torch.int16)})

    def test_type_that_is_not_known(self):
        safetensors.torch.save_file({"f8": torch.zeros(4, dtype=torch.float8_e4m3fn)}, self.path)
        code, why = read(self.path)
        self.assertEqual(code, 3)
        self.assertIn('tensor "f8" has the type "F8_E4M3", which this version does not know', why)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
