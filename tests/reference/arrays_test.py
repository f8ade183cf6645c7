"""npz, CSV, text and token files against numpy and Python's csv: `arrays_test.py PRINT_DATA`."""
import csv
import gzip
import io
import zipfile

import numpy

import data_reader
from data_reader import CONFIGURATION, DAMAGED


class Npz(data_reader.DataTest):
    def save(self, packed, **arrays):
        (numpy.savez_compressed if packed else numpy.savez)(self.dir / "data.npz", **arrays)

    def test_arrays_are_numpys(self):
        generator = numpy.random.default_rng(0)
        arrays = {"x_train": generator.normal(size=(23, 3, 2)).astype("f4"), "y_train": generator.integers(0, 9, 23), "wide": generator.normal(size=(23, 2)),
                  "fortran": numpy.asfortranarray(generator.normal(size=(23, 5)).astype("f4")), "yes": generator.integers(0, 2, 23).astype(bool),
                  "image": generator.integers(0, 256, (23, 1, 4, 4), dtype="u1")}
        for packed in False, True:
            with self.subTest(packed=packed):
                self.save(packed, **arrays)
                found = self.read(format="npz", path="data.npz", x="x_train", y={"from": "y_train", "dtype": "int32"})
                numpy.testing.assert_array_equal(found["x"], arrays["x_train"])
                numpy.testing.assert_array_equal(found["y"], arrays["y_train"])
                self.assertEqual(found["y"].dtype, numpy.int32)
                found = self.read(format="npz", path="data.npz", columns={name: name for name in ("wide", "fortran", "yes", "image")},
                                  order=["image", "wide", "fortran", "yes"], skip=3, take=11)
                for name, values in found.items():
                    numpy.testing.assert_array_equal(values, arrays[name][3:14].astype("f4" if name == "wide" else arrays[name].dtype))
                self.save(packed, x=arrays["x_train"], y=arrays["y_train"])
                self.assertEqual(list(self.read(format="npz", path="data.npz", x={}, y={"scale": 2})), ["x", "y"])

    def test_what_is_refused(self):
        def refused(code, *words, **split):
            return self.refused(code, *words, **{"format": "npz", "path": "data.npz", "x": "a", **split})
        refused(DAMAGED, "data.train.path: could not open", "data.npz: No such file")
        (self.dir / "data.npz").write_bytes(b"nothing of the kind")
        refused(DAMAGED, "data.npz is damaged: it is no zip archive, which what numpy.savez writes is")
        for packed in False, True:
            self.save(packed, a=numpy.arange(2000.0), b=numpy.arange(1999), c=numpy.array(3))
            refused(CONFIGURATION, 'data.train.x is "zebra", must be one of a, b, c', x="zebra")
            refused(DAMAGED, "'a' has 2000 examples and 'b' has 1999", y="b")
            refused(DAMAGED, "data.train.x: 'c' is a single number", x="c")
            whole = (self.dir / "data.npz").read_bytes()
            (self.dir / "data.npz").write_bytes(whole[:len(whole) // 2])
            refused(DAMAGED, "data.npz is damaged", "cut short")
        damaged = bytearray(whole)
        damaged[200] ^= 0x55
        (self.dir / "data.npz").write_bytes(damaged)
        refused(DAMAGED, "data.npz is damaged", "a.npy")
        with zipfile.ZipFile(self.dir / "data.npz", "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("a.npy", b"x" * 100)
        refused(DAMAGED, "compression (a.npy)")
        with zipfile.ZipFile(self.dir / "data.npz", "w") as archive:
            archive.writestr("a.npy", b"x" * 100)
        refused(DAMAGED, "data.train.x: '", "data.npz: a.npy' is not an npy file")
        numpy.savez(self.dir / "data.npz", a=numpy.array(["text"]))
        refused(DAMAGED, "data.npz: a.npy' holds dtype '<U4'")
        refused(CONFIGURATION, "data.train.path is missing", path=None)
        self.assertIn("data.train.x is missing", self.ask({"format": "npz", "path": "data.npz"})["error"])


class Csv(data_reader.DataTest):
    TABLE = 'a,"b, c",label,"say ""hi"""\n1,2.5,0,-1e-3\r\n\n+3,4,2,"5"\n" 6 ",\t7 ,1,0.1'

    def put(self, text, name="t.csv"):
        data = text if isinstance(text, bytes) else text.encode()
        (self.dir / name).write_bytes(data)

    def csv(self, **split):
        return self.read(**{"format": "csv", "path": "t.csv", **split})

    def refused_csv(self, code, *words, **split):
        return self.refused(code, *words, **{"format": "csv", "path": "t.csv", **split})

    def test_columns(self):
        self.put(self.TABLE)
        rows = [row for row in csv.reader(io.StringIO(self.TABLE, newline="")) if row]
        table = numpy.array([[float(cell) for cell in row] for row in rows[1:]])
        found = self.csv(y="label")
        numpy.testing.assert_array_equal(found["x"], table[:, [0, 1, 3]].astype("f4"))
        self.assertEqual((found["y"].dtype, found["y"].tolist()), (numpy.int64, [0, 2, 1]))
        numpy.testing.assert_array_equal(self.csv()["x"], table.astype("f4"))
        numpy.testing.assert_array_equal(self.csv(x={"dtype": "float64", "shape": [2, 2]})["x"], table.reshape(3, 2, 2))
        found = self.csv(columns={"one": "b, c", "two": ['say "hi"', "a"], "list": ["label"]}, order=["two", "one", "list"])
        numpy.testing.assert_array_equal(found["two"], table[:, [3, 0]].astype("f4"))
        self.assertEqual((found["one"].dtype, found["one"].shape, found["list"].shape), (numpy.float32, (3,), (3, 1)))
        self.assertEqual(self.csv(x="a", y={"from": "label", "scale": 0.5})["y"].tolist(), [0, 1, 0.5])

    def test_without_a_header_and_with_another_delimiter(self):
        self.put("1;2;3\n4;5;6\n")
        found = self.csv(header=False, delimiter=";", y=1)
        self.assertEqual(found["x"].tolist(), [[1, 3], [4, 6]])
        self.assertEqual(found["y"].tolist(), [2, 5])
        self.assertEqual(self.csv(header=False, delimiter=";", x=["2", 0])["x"].tolist(), [[3, 1], [6, 4]])
        self.put("1\t2\n", "t.csv")
        self.assertEqual(self.csv(header=False, delimiter="\t")["x"].tolist(), [[1, 2]])

    def test_gzip_marks_and_exact_integers(self):
        self.put(gzip.compress(b"\xef\xbb\xbfid,x\n9007199254740993,1\n-9223372036854775808,2\n"))
        self.assertEqual(self.csv(x="id")["x"].tolist(), [2**53 + 1, -2**63])
        self.put(gzip.compress(b"a\n1\n" * 1000)[:-9])
        self.refused_csv(DAMAGED, "data.train.path: '", "t.csv' is truncated")

    def test_many_rows_are_what_python_reads(self):
        generator = numpy.random.default_rng(1)
        values = generator.normal(size=(500, 7)) * 10.0 ** generator.integers(-30, 30, (500, 7))
        text = io.StringIO()
        csv.writer(text).writerows(values.tolist())
        self.put(text.getvalue())
        numpy.testing.assert_array_equal(self.csv(header=False, x={"dtype": "float64"}, batch=64)["x"], values)

    def test_what_is_refused_has_its_line_and_column(self):
        for text, words, split in [
                ("a,b\n1,2\n3,setosa\n", ["t.csv', line 3, column 2 (b): is 'setosa', which is no finite number."], {}),
                ("a,b\n1,2\n3,\n", ["line 3, column 2 (b): is empty."], {}), ("a,b\n1,nan\n", ["line 2, column 2 (b): is 'nan'"], {}),
                ("a,b\n1,2\n\n3\n", ["line 4: has 1 columns, and the first line has 2."], {}),
                ("a,b\n1,2\n3,1.5\n", ["line 3, column 2 (b): is '1.5', which is no integer."], {"y": {"from": "b", "dtype": "int64"}}),
                ('a,b\n1,"2\n', ["line 2: a quote is opened and never closed."], {}), ('a,b\n1,"2"x\n', ["line 2: text follows a closing quote."], {}),
                ("", ["t.csv' has no rows."], {}), ("a,b\n", ["t.csv' has no rows."], {}), ("a,a\n1,2\n", ["has two columns 'a'"], {"x": "a"}),
                ('a,b\n"1\n",2\nx,2\n', ["line 2, column 1 (a)"], {})]:
            with self.subTest(text=text):
                self.put(text)
                self.refused_csv(DAMAGED, *words, **split)
        self.put("one,two\n1,2\n")
        self.refused_csv(CONFIGURATION, "data.train.y", '"twoo"', '"two"', y="twoo")
        self.refused_csv(CONFIGURATION, "data.train.x: no column of", x=None, columns=None, y=["one", "two"])
        self.refused_csv(CONFIGURATION, "data.train.delimiter must be one character", delimiter="||")
        self.refused_csv(CONFIGURATION, "data.train.x must be a name in the split's files", x=1.5)
        self.refused_csv(DAMAGED, "data.train.path: '", "none.csv' cannot be opened: No such file or directory.", path="none.csv")


class Windows(data_reader.DataTest):
    def test_text_is_bytes(self):
        text = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.".encode()
        (self.dir / "t.txt").write_bytes(text)
        bytes_ = numpy.frombuffer(text, "u1").astype("i8")
        found = self.read(format="text", path="t.txt", length=9)
        count = (len(text) - 1) // 9
        self.assertEqual((found["x"].dtype, found["y"].dtype), (numpy.int64, numpy.int64))
        numpy.testing.assert_array_equal(found["x"], bytes_[:9 * count].reshape(-1, 9))
        numpy.testing.assert_array_equal(found["y"], bytes_[1:9 * count + 1].reshape(-1, 9))
        self.assertEqual(list(self.read(format="text", path="t.txt", length=9, targets=False)), ["x"])
        self.assertEqual(self.read(format="text", path="t.txt", length=len(text), targets=False)["x"].shape[0], 1)
        named = self.read(format="text", path="t.txt", length=4, columns={"target": "next_tokens", "ids": "tokens"}, order=["ids", "target"])
        numpy.testing.assert_array_equal(named["ids"][:, 1:], named["target"][:, :-1])

    def test_tokens(self):
        generator = numpy.random.default_rng(2)
        for dtype, most in ("uint16", 1 << 16), ("uint32", 1 << 32):
            tokens = generator.integers(0, most, 101, dtype=numpy.uint64).astype(dtype)
            tokens[:2] = most - 1
            tokens.tofile(self.dir / "t.bin")
            for length, stride in (10, None), (10, 3), (100, 1), (7, 20):
                with self.subTest(dtype=dtype, length=length, stride=stride):
                    keys = {} if stride is None else {"stride": stride}
                    found = self.read(format="tokens", path="t.bin", dtype=dtype, length=length, **keys)
                    starts = range(0, len(tokens) - length, stride or length)
                    numpy.testing.assert_array_equal(found["x"], [tokens[s:s + length].astype("i8") for s in starts])
                    numpy.testing.assert_array_equal(found["y"], [tokens[s + 1:s + 1 + length].astype("i8") for s in starts])

    def test_what_is_refused(self):
        (self.dir / "t.bin").write_bytes(b"\1" * 1001)
        keys = {"format": "tokens", "path": "t.bin", "dtype": "uint16", "length": 8}
        self.refused(DAMAGED, "data.train.path: '", "t.bin' has 1001 bytes, which is no whole number of uint16 tokens of 2 bytes", **keys)
        self.refused(DAMAGED, "has 1001 bytes, which is no whole number of uint32", **{**keys, "dtype": "uint32"})
        (self.dir / "t.bin").write_bytes(b"\1" * 16)
        self.refused(DAMAGED, "has 8 tokens, and one example takes 9, the last one's target among them", **keys)
        (self.dir / "t.bin").write_bytes(b"")
        self.refused(DAMAGED, "has 0 tokens, and one example takes 3", **{"format": "text", "path": "t.bin", "length": 3, "targets": False})
        self.refused(DAMAGED, "none' cannot be opened: No such file or directory.", **{**keys, "path": "none"})
        self.refused(CONFIGURATION, "data.train.dtype is missing", "uint16 or uint32", **{**keys, "dtype": None})
        self.refused(CONFIGURATION, "data.train.dtype", '"uint12", did you mean "uint16"', **{**keys, "dtype": "uint12"})
        self.refused(CONFIGURATION, "data.train.length is missing", **{**keys, "length": None})
        self.refused(CONFIGURATION, "data.train.length must be at least 1, is 0", **{**keys, "length": 0})
        self.refused(CONFIGURATION, "data.train.stride must be at least 1, is 0", **{**keys, "stride": 0})
        self.refused(CONFIGURATION, "data.train.y", "next_tokens", **{**keys, "targets": False, "y": "next_tokens"})


if __name__ == "__main__":
    data_reader.main()
