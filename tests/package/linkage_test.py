"""Nothing is linked twice into one process, and `muster` and `muster-ps` stay free of LibTorch."""
import pathlib
import re
import subprocess
import unittest

from outside import BIN, BUILD, OutsideTest

LIBRARIES = [BUILD / "lib" / "libmuster_core.so", BUILD / "lib" / "libmuster.so"]
FREE, TORCH = ["muster", "muster-ps"], ["muster-chief", "muster-worker", "muster-evaluator", "muster-tool"]


def defined(path):
    """Functions and data of Muster's own that a file defines for all of its process to see; inline ones are everywhere."""
    symbols = set()
    for line in subprocess.run(["nm", "-D", "--defined-only", str(path)], check=True, capture_output=True, text=True).stdout.splitlines():
        _, kind, name = line.rsplit(" ", 2)
        if kind in "TBDR" and re.match(r"_ZN?K?\d*6muster|descriptor_table_proto|_ZN6muster", name):
            symbols.add(name)
    return symbols


def needed(path):
    printed = subprocess.run(["readelf", "-d", str(path)], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", printed)


def loaded(path):
    return subprocess.run(["ldd", str(path)], check=True, capture_output=True, text=True).stdout


class Linkage(OutsideTest):
    def test_nothing_is_there_twice(self):
        modules = [p for p in [BUILD / "lib" / "muster_nccl.so"] if p.exists()]
        core, torch_side = (defined(p) for p in LIBRARIES)
        self.assertGreater(len(core), 500)
        self.assertGreater(len(torch_side), 300)
        self.assertEqual(core & torch_side, set())
        for path in [BIN / name for name in FREE + TORCH] + modules:
            with self.subTest(path=path.name):
                self.assertEqual(sorted((core | torch_side) & defined(path))[:5], [])

    def test_what_loads_libtorch(self):
        for name in FREE:
            self.assertIn("libmuster_core.so", loaded(BIN / name))
            self.assertNotRegex(loaded(BIN / name), r"libtorch|libc10|libmuster\.so|python")
        for name in TORCH:
            self.assertRegex(loaded(BIN / name), r"libtorch_cpu")
            self.assertNotRegex(loaded(BIN / name), r"libtorch_cuda|not found")
        self.assertFalse([n for n in needed(LIBRARIES[0]) if "torch" in n or "c10" in n])


if __name__ == "__main__":
    unittest.main()
