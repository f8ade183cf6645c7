"""Files that somebody made to do harm: each is refused with one sentence and exit code 3 (2 where the job names what it should not), in
bounded memory."""
import gzip
import io
import json
import os
import shutil
import struct
import unittest
import zipfile
import zlib

from harness import BIN, CONFIGURATION, DAMAGED, ClusterTest

MEMORY = 3 << 30  # of a process's data: what LibTorch takes, and a gigabyte or two


def npy(shape, data=b"", descr="<f4"):
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(shape, begin, end):
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(bytes(1 << 16))) + chunk(b"IEND", b""))


def npz(claimed=None):
    """With a deflated array of 64 MiB, or one that claims another size."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy((1 << 24,), bytes(1 << 26)))
    content = bytearray(file.getvalue())
    if claimed is not None:
        entry = content.rindex(b"PK\1\2")
        content[entry + 24:entry + 28] = struct.pack("<I", claimed)
    return bytes(content)


class HostileFiles(ClusterTest):
    def refused(self, code, *words, **job):
        path = self.job(folder=str(self.dir), **job)
        process = self.start_process(f"alone-{len(self.processes)}", ["prlimit", f"--data={MEMORY}:{MEMORY}", BIN / "muster-worker", "--job", path])
        self.finish([process], 60, code)
        text = process.output()
        errors = [line for line in text.splitlines() if " E" in line[:16] or line.startswith(("--", "muster"))]
        self.assertEqual(len(errors), 1, text)
        for word in words:
            self.assertIn(word, errors[0])
        for noise in "terminate called", "bad_alloc", "frame #", "Aborted", "json.exception":
            self.assertNotIn(noise, text)

    def write(self, name, content):
        (self.dir / name).write_bytes(content)
        return name

    def test_arrays(self):
        y = self.write("y.npy", npy((4,), bytes(16)))
        for content, word in [(npy((1 << 40,)), "x.npy"), (npy((1 << 62, 8)), "x.npy"), (npy((0,) * 33), "x.npy"), (npy((10**18,) * 4), "x.npy"),
                              (b"\x93NUMPY\2\0" + b"\xff" * 4, "x.npy"), (npy((4,), bytes(16), "|O"), "x.npy"), (npy((-1,)), "x.npy")]:
            with self.subTest(content=content[:80]):
                x = self.write("x.npy", content)
                self.refused(DAMAGED, word, data={"train": {"format": "npy", "x": x, "y": y}})

    def test_idx(self):
        y, most = self.write("y.idx", struct.pack(">4BI4B", 0, 0, 8, 1, 4, *range(4))), (1 << 32) - 1
        for name, content in [("huge", struct.pack(">4B3I", 0, 0, 14, 3, most, most, most)), ("short", struct.pack(">4B3I", 0, 0, 8, 3, 60000, 28, 28)),
                              ("dimensions", b"\0\0\x08\xff"), ("packed", gzip.compress(struct.pack(">4BI", 0, 0, 14, 1, 1 << 30) + bytes(1 << 20)))]:
            with self.subTest(name=name):
                self.refused(DAMAGED, f"{name}.idx", data={"train": {"format": "idx", "x": self.write(f"{name}.idx", content), "y": y}})

    def test_tokens(self):
        path = self.write("t.bin", b"To be, or not")
        for length in 14, (1 << 63) - 1:
            with self.subTest(length=length):
                self.refused(DAMAGED, "t.bin", "13 tokens", data={"train": {"format": "text", "path": path, "length": length}})

    def test_exported_programs(self):
        def program(name, model, weights=None):
            with zipfile.ZipFile(self.dir / name, "w") as archive:
                for member, content in (("models/model.json", model), ("data/weights/model_weights_config.json", json.dumps({"config": weights or {}})),
                                        ("data/constants/model_constants_config.json", '{"config": {}}'), ("data/weights/weight_0", bytes(4))):
                    archive.writestr("it/" + member, content)
            return {"exported": str(self.dir / name), "loss": "mean_squared_error"}

        def expanded(*sizes):
            meta = {"dtype": 7, "sizes": [{"as_int": n} for n in sizes], "strides": [{"as_int": 0}] * len(sizes), "requires_grad": False, "layout": 7,
                    "storage_offset": {"as_int": 0}}
            return {"path_name": "weight_0", "is_param": False, "use_pickle": False, "tensor_meta": meta}
        version = '{"schema_version": {"major": 8, "minor": 1}}'
        for name, model, weights in [("deep", "[" * 100000, None), ("deep_object", '{"a":' * 100000, None), ("expanded", version, {"a": expanded(1 << 40)}),
                                     ("many", version, {f"a{i}": expanded(1 << 27, i) for i in range(1, 30)}),
                                     ("overflow", version, {"a": expanded(1 << 62, 1 << 62)})]:
            with self.subTest(name=name):
                self.refused(DAMAGED, f"{name}.pt2", program=program(f"{name}.pt2", model, weights))

    def test_archives(self):
        for content in npz(0xfffffffe), npz(3), npz()[:-30], npz().replace(b"PK\1\2", b"PK\1\3"):
            with self.subTest(size=len(content)):
                self.refused(DAMAGED, "x.npz", data={"train": {"format": "npz", "path": self.write("x.npz", content), "x": "x", "y": "x"}})

    def test_records(self):
        def length(size):
            return struct.pack("<Q", size) + b"\0" * 4
        for name, content in ("long", length(1 << 62)), ("negative", length(0xffffffffffffffff)), ("packed", gzip.compress(length(1 << 40))):
            with self.subTest(name=name):
                path = self.write(f"{name}.tfrecord", content)
                self.refused(DAMAGED, path, data={"train": {"format": "tfrecord", "path": path, "x": "x"}})

    def test_pictures(self):
        for width, height in (60000, 60000), (0x7fffffff, 0x7fffffff), (1, 0x7fffffff):
            with self.subTest(width=width, height=height):
                shutil.rmtree(self.dir / "photos", ignore_errors=True)
                (self.dir / "photos" / "cats").mkdir(parents=True)
                (self.dir / "photos" / "cats" / "1.png").write_bytes(png(width, height))
                self.refused(DAMAGED, "cats/1.png", data={"train": {"format": "image_folder", "path": "photos"}})

    def test_weights(self):
        huge = 1 << 62
        for name, content in [
            ("overlap", safetensors({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12))),
            ("hole", safetensors({"a": tensor([1], 4, 8)}, bytes(8))),
            ("outside", safetensors({"a": tensor([2], 0, 8)}, bytes(4))),
            ("overflow", safetensors({"a": tensor([huge, 4], 0, 0)})),
            ("negative", safetensors({"a": tensor([-1], 0, 0)})),
            ("header", struct.pack("<Q", huge) + b"{}"),
            ("deep", safetensors(b"[" * 50000 + b"]" * 50000)),
            ("twice", safetensors(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4))),
        ]:
            with self.subTest(name=name):
                path = self.write(f"{name}.safetensors", content)
                self.refused(DAMAGED, path, load={"unit": path})

    def test_checkpoints(self):
        model_dir = self.dir / "model"
        first = self.start(None, None, self.job(model_dir=str(model_dir), checkpoint={"every_steps": 10}))
        self.finish([first])
        whole = max((model_dir / "checkpoints").glob("step-*"))
        manifest = json.loads((whole / "manifest.json").read_text())
        outside = self.dir / "outside"
        outside.write_bytes(b"secret")

        def changed(name, change):
            broken = self.dir / name / whole.name
            shutil.copytree(whole, broken)
            change(broken)
            return str(broken)

        def with_file(name):
            def change(folder):
                files = {**manifest["files"], name: {"bytes": 6, "crc32c": "00000000"}}
                text = {**manifest, "files": files, "total_bytes": manifest["total_bytes"] + 6}
                (folder / "manifest.json").write_text(json.dumps(text))
            return change

        def text(file, content):
            return lambda folder: (folder / file).write_text(content)
        for name, change in [("parent", with_file("../../outside")), ("absolute", with_file(str(outside))), ("dots", with_file("..")),
                             ("empty", text("manifest.json", "")), ("deep", text("manifest.json", "[" * 50000 + "]" * 50000)),
                             ("sizes", text("manifest.json", json.dumps({**manifest, "total_bytes": 1 << 63}))),
                             ("state", text("state.json", "{}"))]:
            with self.subTest(name=name):
                self.refused(DAMAGED, whole.name, restore=changed(name, change), model_dir=str(self.dir / f"of-{name}"))
        self.assertEqual(outside.read_bytes(), b"secret")

    def test_job_files(self):
        path = self.dir / "deep.json"
        path.write_text('{"program": ' + "[" * 50000 + "]" * 50000 + "}")
        process = self.start(None, None, path)
        self.finish([process], 60, CONFIGURATION)

    def test_a_link_in_the_locks_place(self):
        """Muster does not write through a link in the place of its file."""
        victim, model_dir = self.dir / "victim", self.dir / "m"
        victim.write_text("precious")
        model_dir.mkdir()
        (model_dir / "owner.lock").symlink_to(victim)
        self.refused(CONFIGURATION, str(model_dir), "symbolic links", model_dir=str(model_dir))
        self.assertEqual(victim.read_text(), "precious")

    def test_a_link_in_the_place_of_summaries(self):
        """Training continues without them, as if they could not be written for another reason."""
        elsewhere, model_dir = self.dir / "elsewhere", self.dir / "m"
        elsewhere.mkdir()
        model_dir.mkdir()
        (model_dir / "train").symlink_to(elsewhere)
        process = self.start(None, None, self.job(model_dir=str(model_dir)))
        self.finish([process])
        self.assertIn("symbolic links; training continues, and the event files are tried again", process.output())
        self.assertEqual(list(elsewhere.iterdir()), [])

    def test_a_new_model_dir_is_private(self):
        model_dir, umask = self.dir / "private", os.umask(0)
        try:
            self.finish([self.start(None, None, self.job(model_dir=str(model_dir)))])
        finally:
            os.umask(umask)
        self.assertEqual(oct(model_dir.stat().st_mode & 0o777), "0o700")
        for path in model_dir.rglob("*"):
            self.assertEqual(path.stat().st_mode & 0o077, 0, path)


if __name__ == "__main__":
    unittest.main(verbosity=2)
