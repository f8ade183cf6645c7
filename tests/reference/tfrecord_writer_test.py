"""TensorBoard's record reader and protobuf read the files of `muster data tfrecord`: `tfrecord_writer_test.py PRINT_DATA`.
`muster` is found through MUSTER_BIN_DIR."""
import gzip
import os
import pathlib
import subprocess
import zlib

import numpy
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

import data_reader
from data_reader import CONFIGURATION, DAMAGED
from records_test import Example, encoded

MUSTER = pathlib.Path(os.environ["MUSTER_BIN_DIR"]) / "muster"


def records(path):
    """The records that TensorBoard reads; it compares checksums."""
    reader, found = PyRecordReader_New(str(path)), []
    while True:
        try:
            reader.GetNext()
        except Exception as end:  # tensorflow_stub's OutOfRangeError
            assert "OutOfRange" in type(end).__name__, end
            return found
        found.append(bytes(reader.record()))


class Writer(data_reader.DataTest):
    def write(self, *arguments, code=0):
        done = subprocess.run([MUSTER, "data", "tfrecord", *map(str, arguments)], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr if code else done.stdout

    def test_arrays_are_written(self):
        generator = numpy.random.default_rng(0)
        arrays = {"x": generator.normal(size=(7, 2, 3)).astype("f4"), "label": generator.integers(-9, 9, 7), "pixels": generator.integers(0, 256, (7, 4), "u1"),
                  "small": generator.integers(0, 9, (7, 2)).astype("i4")}
        columns = []
        for name, values in arrays.items():
            numpy.save(self.dir / f"{name}.npy", values)
            columns += ["--column", f"{name}={self.dir / name}.npy"]
        for compression in None, "gzip", "zlib":
            with self.subTest(compression=compression):
                output = self.dir / "out.tfrecord"
                self.assertIn("7 examples", self.write(*columns, "--output", output, *(["--compression", compression] if compression else [])))
                if compression:
                    output.write_bytes((gzip if compression == "gzip" else zlib).decompress(output.read_bytes()))
                found = [Example.FromString(data).features.feature for data in records(output)]
                self.assertEqual(len(found), 7)
                for i, features in enumerate(found):
                    self.assertEqual(set(features), set(arrays))
                    numpy.testing.assert_array_equal(numpy.array(features["x"].float_list.value, "f4"), arrays["x"][i].ravel())
                    self.assertEqual(list(features["label"].int64_list.value), [arrays["label"][i]])
                    self.assertEqual(list(features["pixels"].bytes_list.value), [arrays["pixels"][i].tobytes()])
                    self.assertEqual(list(features["small"].int64_list.value), arrays["small"][i].tolist())
        back = self.read(format="tfrecord", path="out.tfrecord", columns={"x": {"shape": [2, 3]}, "pixels": {"decode": "uint8"}}, order=["x", "pixels"])
        numpy.testing.assert_array_equal(back["x"], arrays["x"])
        numpy.testing.assert_array_equal(back["pixels"], arrays["pixels"])

    def test_an_image_folder_is_written_in_shards(self):
        for i in range(10):
            folder = self.dir / "photos" / ("cats" if i % 2 else "dogs")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{i}.{'png' if i % 3 else 'jpg'}").write_bytes(encoded(i, "png" if i % 3 else "jpeg"))
        self.write("--images", self.dir / "photos", "--output", self.dir / "out", "--shards", 3)
        shards = sorted(path.name for path in self.dir.glob("out-*"))
        self.assertEqual(shards, [f"out-0000{i}-of-00003" for i in range(3)])
        found = [Example.FromString(data).features.feature for shard in shards for data in records(self.dir / shard)]
        self.assertEqual(len(found), 10)
        for features in found:
            name = features["image/filename"].bytes_list.value[0].decode()
            self.assertEqual(features["image/encoded"].bytes_list.value[0], (self.dir / "photos" / name).read_bytes())
            self.assertEqual(features["image/class/text"].bytes_list.value[0].decode(), name.split("/")[0])
            self.assertEqual(features["image/class/label"].int64_list.value[0], ["cats", "dogs"].index(name.split("/")[0]))
            self.assertEqual(features["image/format"].bytes_list.value[0], b"png" if name.endswith("png") else b"jpeg")
        keys = {"size": 16, "shuffle": False}
        direct = self.read(format="image_folder", path="photos", **keys)
        through = self.read(format="tfrecord", path="out-*", x={"from": "image/encoded", "decode": "image"}, y="image/class/label", **keys)
        names = sorted(str(path.relative_to(self.dir / "photos")) for path in (self.dir / "photos").glob("*/*"))
        order = [names.index(features["image/filename"].bytes_list.value[0].decode()) for features in found]
        self.assertEqual(sorted(order), list(range(10)))
        for column in "x", "y":
            numpy.testing.assert_array_equal(through[column], direct[column][order])

    def test_what_the_writer_refuses_leaves_nothing_behind(self):
        numpy.save(self.dir / "a.npy", numpy.zeros((3, 2), "f4"))
        numpy.save(self.dir / "b.npy", numpy.zeros(4))
        out = ["--output", self.dir / "out"]
        a = ["--column", f"a={self.dir}/a.npy"]
        (self.dir / "photos" / "a").mkdir(parents=True)
        for arguments, code, words in [
                ([*a, "--column", f"b={self.dir}/b.npy", *out], DAMAGED, ["3 examples", "4"]), (out, CONFIGURATION, ["--images", "--column"]),
                (["--images", self.dir / "photos", *a, *out], CONFIGURATION, ["--images", "--column"]), (["--column", "a", *out], CONFIGURATION, ["NAME=FILE.npy"]),
                (["--images", self.dir / "photos", *out], DAMAGED, ["the class folder", "photos/a"]), (["--images", self.dir / "none", *out], DAMAGED, ["none"]),
                ([*a, *a, *out], CONFIGURATION, ["twice"]), ([*a, *out, "--shards", 4], CONFIGURATION, ["--shards is 4", "3 examples"]),
                ([*a, *out, "--compression", "zstd"], CONFIGURATION, ["zstd", "gzip"]), ([*a, "--output", self.dir / "no" / "out"], CONFIGURATION, ["No such file"])]:
            with self.subTest(arguments=arguments):
                text = self.write(*arguments, code=code)
                for word in words:
                    self.assertIn(word, text)
        self.assertEqual(list(self.dir.glob("out*")), [])


if __name__ == "__main__":
    data_reader.main()
