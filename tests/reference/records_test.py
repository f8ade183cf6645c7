"""TFRecord files and tar shards, against TensorBoard's checksums, protobuf and Python's tarfile; and pictures that are no pairs:
`records_test.py PRINT_DATA`."""
import gzip
import io
import struct
import tarfile
import zlib

import numpy
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from PIL import Image
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

import data_reader
from data_reader import CONFIGURATION, DAMAGED


def example_class():
    """tensorflow.Example by its published field numbers (tensorflow/core/example/*.proto)."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="reference_example.proto", package="reference", syntax="proto3")
    for name, kind in ("BytesList", field.TYPE_BYTES), ("FloatList", field.TYPE_FLOAT), ("Int64List", field.TYPE_INT64):
        file.message_type.add(name=name).field.add(name="value", number=1, label=field.LABEL_REPEATED, type=kind)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), 1):
        kind = ".reference." + {"b": "BytesList", "f": "FloatList", "i": "Int64List"}[name[0]]
        feature.field.add(name=name, number=number, label=field.LABEL_OPTIONAL, type=field.TYPE_MESSAGE, type_name=kind, oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=field.LABEL_OPTIONAL, type=field.TYPE_STRING)
    entry.field.add(name="value", number=2, label=field.LABEL_OPTIONAL, type=field.TYPE_MESSAGE, type_name=".reference.Feature")
    features.field.add(name="feature", number=1, label=field.LABEL_REPEATED, type=field.TYPE_MESSAGE, type_name=".reference.Features.FeatureEntry")
    file.message_type.add(name="Example").field.add(name="features", number=1, label=field.LABEL_OPTIONAL, type=field.TYPE_MESSAGE,
                                                    type_name=".reference.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("reference.Example"))


Example = example_class()


def example(**features):
    """bytes, or lists of float or int, by feature."""
    made = Example()
    for name, values in features.items():
        feature = made.features.feature[name]
        if isinstance(values, bytes):
            feature.bytes_list.value.append(values)
        elif values and isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif values and isinstance(values[0], float):
            feature.float_list.value.extend(values)
        else:
            feature.int64_list.value.extend(values)
    return made.SerializeToString()


def record(data):
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", masked_crc32c(data))


def picture(seed, height=20, width=30):
    y, x = numpy.mgrid[0:height, 0:width]
    return numpy.stack([(x * 7 + seed * 13) % 256, (y * 11 + seed) % 256, (x + y + seed * 29) % 256], -1).astype("u1")


def encoded(seed, kind="png", **shape):
    out = io.BytesIO()
    Image.fromarray(picture(seed, **shape)).save(out, kind)
    return out.getvalue()


class TfRecord(data_reader.DataTest):
    def put(self, name, *examples, pack=lambda data: data):
        (self.dir / name).parent.mkdir(exist_ok=True)
        (self.dir / name).write_bytes(pack(b"".join(map(record, examples))))

    def refused_file(self, code, *words, **split):
        return self.refused(code, *words, **{"format": "tfrecord", "path": "t", "x": "a", **split})

    def test_features_of_every_kind(self):
        raw = numpy.arange(12, dtype="<i2")
        self.put("t", *[example(f=[0.5 * i, -1.5], one=[3.25 + i], i=[i, 2 * i, 2**62 + i], label=[i - 1], raw=(raw + i).tobytes(), image=encoded(i),
                                unused=[b"a", b"b"]) for i in range(5)])
        found = self.read(format="tfrecord", path="t", order=["f", "one", "ints", "label", "raw", "image"], size=[20, 30],
                          columns={"f": {}, "one": "one", "ints": "i", "label": {"dtype": "int32"}, "raw": {"decode": "int16", "shape": [3, 4]},
                                   "image": {"decode": "image"}})
        numpy.testing.assert_array_equal(found["f"], numpy.array([[0.5 * i, -1.5] for i in range(5)], "f4"))
        numpy.testing.assert_array_equal(found["one"], numpy.array([3.25 + i for i in range(5)], "f4"))
        numpy.testing.assert_array_equal(found["ints"], [[i, 2 * i, 2**62 + i] for i in range(5)])
        self.assertEqual((found["label"].dtype, found["label"].tolist()), (numpy.int32, [-1, 0, 1, 2, 3]))
        numpy.testing.assert_array_equal(found["raw"], [(raw + i).reshape(3, 4) for i in range(5)])
        numpy.testing.assert_array_equal(found["image"], [picture(i).transpose(2, 0, 1) for i in range(5)])

    def test_compressed_files_patterns_folders_and_lists(self):
        packs = [lambda data: data, gzip.compress, zlib.compress, lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:])]
        for i, pack in enumerate(packs):
            self.put(f"d/train-{i}", *[example(a=[10 * i + j]) for j in range(3)], pack=pack)
        want = [10 * i + j for i in range(4) for j in range(3)]
        for path in "d", "d/train-*", "d/train-?", [f"d/train-{i}" for i in range(4)]:
            self.assertEqual(self.read(format="tfrecord", path=path, x="a", batch=5)["x"].tolist(), want)
        self.assertEqual(self.read(format="tfrecord", path=["d/train-2", "d/train-0"], x="a")["x"].tolist(), [20, 21, 22, 0, 1, 2])
        self.assertEqual(self.read(format="tfrecord", path="d", x="a", skip=2, take=3)["x"].tolist(), want[2:5])

    def test_damage_has_its_place(self):
        one, two = record(example(a=[1])), record(example(a=[2]))
        for content, words in [(one + two[:-1], ["t' is truncated: record 1, which begins at byte", f"byte {len(one)}, takes {len(two)} bytes",
                                                 f"end at byte {len(one + two) - 1}."]),
                               (one + two[:5], ["is truncated: record 1", "has no whole length"]), (b"Hello, this is some text.", ["t' is no TFRecord file"]),
                               (one + two[:3] + b"\1" + two[4:], [f"checksum of the length of record 1, at byte {len(one)}, is wrong"]),
                               (gzip.compress(one + two[:-1]), [f"byte {len(one)} of what it unpacks to"]), (gzip.compress(one)[:-12], ["t' is truncated"]),
                               (zlib.compress(one)[:-6], ["t' is truncated"]), (gzip.compress(one)[:20] + b"\xff" * 9, ["t' is"]),
                               (gzip.compress(one) + b"more", ["other bytes follow"]), (b"", ["t' holds no records"]), (record(b"\xff\xff\xff"), ["is no tf.Example"])]:
            with self.subTest(words=words):
                (self.dir / "t").write_bytes(content)
                self.refused_file(DAMAGED, *words)
        (self.dir / "t").write_bytes(one + two[:14] + b"\x7f" + two[15:])
        self.refused_file(DAMAGED, f"t' is damaged: the checksum of record 1, at byte {len(one)}, is wrong.")

    def test_examples_that_are_not_alike(self):
        self.put("t", example(a=[1], b=b"xyz", c=[b"1", b"2"], i=encoded(1)), example(a=[1, 2], b=b"xy", c=[1.5], i=encoded(2, height=5)))
        self.refused_file(DAMAGED, "t', record 1 gives integers of shape [2], and the first example's is integers of shape []")
        self.refused_file(DAMAGED, "has no feature 'd', which data.train.x names; it has a, b, c, i", x="d")
        self.refused_file(CONFIGURATION, "t', record 0: b holds bytes: say by \"decode\" what they are", x="b")
        self.refused_file(DAMAGED, "b holds 3 bytes, which is no whole number of int16 values", x={"from": "b", "decode": "int16"})
        self.refused_file(DAMAGED, "Feature 'c' of '", "holds 2 byte strings; 1 is read", x="c")
        self.refused_file(DAMAGED, "Feature 'a' of '", "holds numbers, and decode is for bytes", x={"from": "a", "decode": "uint8"})
        self.refused_file(DAMAGED, "record 1 gives uint8 of shape [3, 5, 30]", x={"from": "i", "decode": "image"})
        self.refused_file(DAMAGED, "is no JPEG and no PNG file", x={"from": "b", "decode": "image"})
        self.refused_file(CONFIGURATION, "data.train.x has a decode that is \"imgae\", did you mean \"image\"?", x={"from": "b", "decode": "imgae"})
        self.refused_file(CONFIGURATION, "data.train.path is missing", path=None)
        self.refused_file(CONFIGURATION, "data.train.path must be", path=[])
        self.refused_file(CONFIGURATION, "data.train.x is missing", x=None)
        self.refused_file(DAMAGED, "cannot be opened: No such file", path="none")
        self.refused_file(DAMAGED, "data.train.path: there is no file '", path="none-*")


class Tar(data_reader.DataTest):
    def tar(self, name, members, mode="w", **options):
        with tarfile.open(self.dir / name, mode, **options) as archive:
            for member, data in members:
                info = tarfile.TarInfo(member)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))

    def samples(self, first, count, folder="", kind="png"):
        return [member for i in range(first, first + count)
                for member in ((f"{folder}s{i:04}.{kind}", encoded(i)), (f"{folder}s{i:04}.cls", b"%d\n" % (i % 3)))]

    def test_samples_of_several_shards(self):
        array = io.BytesIO()
        numpy.save(array, numpy.arange(6.0).reshape(2, 3))
        self.tar("a-0.tar", [("__meta__", b"x"), *self.samples(0, 3), (".hidden.png", b"x"), ("README", b"x")])
        self.tar("a-1.tar", self.samples(3, 2, "deep/"))
        found = self.read(format="tar", path="a-*.tar")
        numpy.testing.assert_array_equal(found["x"], [picture(i).transpose(2, 0, 1) for i in range(5)])
        self.assertEqual(found["y"].tolist(), [0, 1, 2, 0, 1])
        self.tar("b.tar", [("k.left.npy", array.getvalue()), ("k.mask.bin", b"\1\2"), ("k.label.cls", b"7")])
        found = self.read(format="tar", path="b.tar", columns={"left": "left.npy", "mask": {"from": "mask.bin", "decode": "uint8"}, "label": "label.cls"},
                          order=["left", "mask", "label"])
        numpy.testing.assert_array_equal(found["left"], [numpy.arange(6.0).reshape(2, 3)])
        self.assertEqual((found["mask"].tolist(), found["label"].tolist()), ([[1, 2]], [7]))
        self.assertEqual(list(self.read(format="tar", path="a-0.tar", x={"from": "jpg;png", "scale": "1/255"})), ["x"])

    def test_every_kind_of_tar(self):
        long = "f" * 90 + "/" + "g" * 120 + "/"
        for kind in tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT:
            for folder in "", long if kind != tarfile.USTAR_FORMAT else "h" * 80 + "/":
                for mode in "w", "w:gz":
                    with self.subTest(kind=kind, folder=folder[:3], mode=mode):
                        self.tar("t.tar", self.samples(0, 2, folder), mode, format=kind)
                        found = self.read(format="tar", path="t.tar")
                        numpy.testing.assert_array_equal(found["x"], [picture(i).transpose(2, 0, 1) for i in range(2)])

    def test_what_is_refused(self):
        def refused(code, *words, **split):
            return self.refused(code, *words, **{"format": "tar", "path": "t.tar", **split})
        self.tar("t.tar", self.samples(0, 3))
        whole = (self.dir / "t.tar").read_bytes()
        for size in 300, 520:
            (self.dir / "t.tar").write_bytes(whole[:size])
            refused(DAMAGED, "data.train.path: '", f"t.tar' is truncated: the member that begins at byte 0 goes beyond the end at byte {size}.")
        for size in 0, 1000, whole.rindex(b"s0002.cls") + 1024:
            (self.dir / "t.tar").write_bytes(whole[:size])
            refused(DAMAGED, f"t.tar' is truncated: it ends at byte {size}, without the blocks of zeros that end a tar file.")
        damaged = bytearray(whole)
        second = next(at for at in range(512, len(whole), 512) if whole[at:at + 5] == b"s0000")
        damaged[second + 3] ^= 1
        (self.dir / "t.tar").write_bytes(damaged)
        refused(DAMAGED, f"t.tar' is damaged: the checksum of the header at byte {second} is wrong.")
        (self.dir / "t.tar").write_bytes(b"text" * 500)
        refused(DAMAGED, "t.tar' is no tar file")
        self.tar("t.tar", [])
        refused(DAMAGED, "t.tar' holds no samples")
        self.tar("t.tar", [*self.samples(0, 1), ("s0001.png", encoded(1))])
        refused(DAMAGED, "t.tar: s0001' has no cls, which data.train.y names; it has png")
        self.tar("t.tar", [("a.png", b"no picture"), ("a.cls", b"one")])
        refused(DAMAGED, "t.tar: a.png' is no JPEG and no PNG file")
        refused(DAMAGED, "t.tar: a.cls' holds no integer", x="cls")
        self.tar("t.tar", [("a.txt", b"text"), ("a.txt", b"text")])
        refused(DAMAGED, "t.tar' holds 'a.txt' twice")
        self.tar("t.tar", [("a.txt", b"text")])
        refused(CONFIGURATION, "data.train.x: what '", "t.tar: a.txt' holds is not known", x="txt")


class Unpaired(data_reader.DataTest):
    def setUp(self):
        super().setUp()
        for side, count in ("A", 5), ("B", 8):
            (self.dir / side).mkdir()
            for i in range(count):
                Image.new("RGB", (4, 4), (10 * i + (1 if side == "B" else 0),) * 3).save(self.dir / side / f"{i}.png")

    def sides(self, **split):
        found = self.read(format="unpaired_images", x="A", y="B", **split)
        return found["x"][:, 0, 0, 0].tolist(), found["y"][:, 0, 0, 0].tolist()

    def test_as_many_as_the_smaller_has_or_as_are_asked_for(self):
        self.assertEqual(self.sides(), ([0, 10, 20, 30, 40], [1, 11, 21, 31, 41]))
        self.assertEqual(self.sides(examples=7), ([0, 10, 20, 30, 40, 0, 10], [1, 11, 21, 31, 41, 51, 61]))
        self.assertEqual(self.sides(examples=2), ([0, 10], [1, 11]))

    def test_each_epoch_pairs_them_anew(self):
        epochs = [self.sides(shuffle=True, epoch=epoch) for epoch in range(12)]
        for x, y in epochs:
            self.assertEqual(sorted(x), [0, 10, 20, 30, 40])
            self.assertEqual(len(set(y)), 5)
        self.assertEqual({b for _, y in epochs for b in y}, {10 * i + 1 for i in range(8)}, "some of the larger folder are never seen")
        self.assertEqual(len({frozenset(zip(x, y)) for x, y in epochs}), len(epochs))
        self.assertEqual(epochs[3], self.sides(shuffle=True, epoch=3))
        self.assertEqual(epochs[3], self.sides(shuffle=True, epoch=3, batch=1))

    def test_what_is_refused(self):
        keys = {"format": "unpaired_images", "x": "A", "y": "B"}
        self.refused(DAMAGED, "data.train.y: '", "none' cannot be read: No such file or directory.", **{**keys, "y": "none"})
        (self.dir / "empty").mkdir()
        self.refused(DAMAGED, "data.train.y: '", "empty' holds no JPEG or PNG file", **{**keys, "y": "empty"})
        self.refused(CONFIGURATION, "data.train.x and y must name a folder of pictures each", **{**keys, "y": None})
        self.refused(CONFIGURATION, "data.train.fraction is not for folders that are no pairs", **keys, fraction=[0, 0.5])
        self.refused(CONFIGURATION, "data.train.examples must be at least 1, is 0", **keys, examples=0)


if __name__ == "__main__":
    data_reader.main()
