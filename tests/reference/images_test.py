"""Pictures and folders of them, against Pillow's decoder and torch's resize (which is torchvision's): `images_test.py PRINT_DATA`."""
import io
import struct
import zlib

import numpy
import torch
from PIL import Image, ImageOps

import data_reader
from data_reader import CONFIGURATION, DAMAGED

ORIENTATION = 0x0112


def picture(height=37, width=50, channels=3, seed=0):
    """Smooth areas, edges and some noise, as photographs have."""
    generator = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [127 + 90 * numpy.sin(x / (5 + c) + y / 9) + 20 * (x > width // 2) + generator.normal(0, 4, (height, width)) for c in range(channels)]
    return numpy.clip(numpy.stack(planes, -1), 0, 255).astype(numpy.uint8).squeeze()


def png(array, depth, color, palette=b"", interlace=0):
    """A PNG file of the published format, for what Pillow does not write: `array` has its rows as bytes."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    height, row = array.shape
    width = row * 8 // (depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color])
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    rows = b"".join(b"\0" + bytes(line) for line in array)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + (chunk(b"PLTE", palette) if palette else b"")
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Images(data_reader.DataTest):
    def put(self, name, image, **options):
        """A picture, or bytes, in the folder of its class."""
        path = self.dir / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(image, bytes):
            path.write_bytes(image)
        else:
            image.save(path, **options)
        return path

    def images(self, **split):
        return self.read(format="image_folder", path="images", **split)

    def refused_folder(self, code, *words, **split):
        return self.refused(code, *words, format="image_folder", path="images", **split)

    def compare(self, path, mode="RGB", mean=0.0, most=0):
        """The one picture of the folder with Pillow's."""
        ours = self.images(channels=3 if mode == "RGB" else 1)["x"][0]
        with Image.open(path) as image:
            theirs = numpy.asarray(ImageOps.exif_transpose(image).convert(mode), dtype=int)
        theirs = theirs.transpose(2, 0, 1) if mode == "RGB" else theirs[None]
        self.assertEqual(ours.shape, theirs.shape)
        difference = numpy.abs(ours.astype(int) - theirs)
        self.assertLessEqual(difference.mean(), mean)
        self.assertLessEqual(difference.max(), most)
        self.assertGreater(theirs.std(), 10, "the picture is flat")
        path.unlink()

    # ---- Decoding

    def test_jpeg_is_what_pillow_reads(self):
        rgb, cmyk = Image.fromarray(picture()), Image.fromarray(picture(channels=4), mode="CMYK")
        for image, options in [(rgb, {}), (rgb, {"quality": 30, "subsampling": 2}), (rgb, {"quality": 95, "subsampling": 0}), (rgb, {"progressive": True}),
                               (rgb.convert("L"), {}), (cmyk, {}), (rgb, {"quality": 100, "restart_marker_rows": 1})]:
            for mode in "RGB", "L":
                with self.subTest(mode=image.mode, options=options, to=mode):
                    self.compare(self.put("a/1.jpg", image, **options), mode, mean=0.5, most=12)

    def test_png_is_what_pillow_reads(self):
        rgb = Image.fromarray(picture())
        grey = rgb.convert("L")
        transparent = rgb.copy()
        transparent.putalpha(grey)
        palette = rgb.quantize(31)
        clear = rgb.quantize(16)
        for image, options in [(rgb, {}), (grey, {}), (grey.convert("1"), {}), (transparent, {}), (transparent.convert("LA"), {}), (palette, {}),
                               (rgb.quantize(4), {}), (clear, {"transparency": 3}), (grey, {"transparency": 100})]:
            for mode in "RGB", "L":
                with self.subTest(mode=image.mode, options=options, to=mode):
                    self.compare(self.put("a/1.png", image, **options), mode)

    def test_of_16_bits_the_upper_8_are_kept(self):
        values = numpy.random.default_rng(3).integers(0, 1 << 16, (5, 6 * 3), dtype=numpy.uint16)
        self.compare(self.put("a/1.png", png(values.astype(">u2").view(numpy.uint8), 16, 2)))
        grey = values[:, :6]
        self.put("a/1.png", png(grey.astype(">u2").copy().view(numpy.uint8), 16, 0))
        numpy.testing.assert_array_equal(self.images(channels=1)["x"][0, 0], grey >> 8)

    def test_low_depths_and_interlacing(self):
        bits = numpy.random.default_rng(4).integers(0, 256, (6, 4), dtype=numpy.uint8)
        for depth in 1, 2, 4:
            with self.subTest(depth=depth):
                self.compare(self.put("a/1.png", png(bits, depth, 0)))
        # Adam7 of an image of one pixel is one pass of one row.
        self.put("a/1.png", png(numpy.array([[9, 8, 7]], numpy.uint8), 8, 2, interlace=1))
        self.assertEqual(self.images()["x"].tolist(), [[[[9]], [[8]], [[7]]]])

    def test_rotated_pictures_are_turned_upright(self):
        for orientation in range(1, 9):
            for name, order in ("1.jpg", "big"), ("1.png", "little"):
                with self.subTest(orientation=orientation, name=name):
                    exif = Image.Exif()
                    exif.endian = "<" if order == "little" else ">"
                    exif[ORIENTATION] = orientation
                    path = self.put(f"a/{name}", Image.fromarray(picture(24, 40)), exif=exif)
                    with Image.open(path) as image:
                        self.assertEqual(image.getexif().get(ORIENTATION), orientation)
                    self.compare(path, mean=0.5, most=12)

    def test_exif_data_that_make_no_sense_are_no_rotation(self):
        for exif in b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\0\x09", b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x63\0\0\0":
            with self.subTest(exif=exif):
                self.put("a/1.jpg", Image.fromarray(picture(10, 20)), exif=exif)
                self.assertEqual(self.images()["x"].shape, (1, 3, 10, 20))

    # ---- Damage

    def encoded(self, kind, **options):
        bytes_ = io.BytesIO()
        Image.fromarray(picture()).save(bytes_, kind, **options)
        return bytes_.getvalue()

    def test_a_truncated_picture_is_named_with_its_offset(self):
        for kind, options in ("jpeg", {}), ("jpeg", {"progressive": True}), ("png", {}):
            whole = self.encoded(kind, **options)
            for length in (3, 30, 300, len(whole) // 2, len(whole) - 20, len(whole) - 1):
                with self.subTest(kind=kind, length=length):
                    self.put("a/1.jpg", whole[:length])
                    message = self.refused_folder(DAMAGED, "data.train.path: '", "images/a/1.jpg' is ")
                    if length > 30 and not (kind == "jpeg" and length == len(whole) - 1):
                        self.assertIn(f"is truncated: its {kind.upper()} data break off at byte {length}.", message)

    def test_a_damaged_picture_is_an_error_or_a_picture_never_a_crash(self):
        generator = numpy.random.default_rng(5)
        refused = 0
        for kind, options in ("jpeg", {}), ("jpeg", {"progressive": True}), ("png", {}):
            whole = self.encoded(kind, **options)
            for _ in range(60):
                damaged = bytearray(whole)
                for _ in range(generator.integers(1, 6)):
                    damaged[generator.integers(2, len(whole))] = generator.integers(256)
                self.put("a/1.jpg", bytes(damaged))
                answer = self.ask({"format": "image_folder", "path": "images", "size": 8})
                if "error" in answer:
                    refused += 1
                    self.assertEqual(answer["code"], DAMAGED, answer)
                    self.assertIn("images/a/1.jpg'", answer["error"])
        self.assertGreater(refused, 30)

    def test_what_is_no_jpeg_and_no_png(self):
        for content, words in [(b"Hello world\n", 'is no JPEG and no PNG file: it begins with "Hello wo".'), (b"", "it is empty"),
                               (self.encoded("gif"), "it is a GIF file"), (self.encoded("webp"), "it is a WebP file"),
                               (b"\0\1", 'it begins with "\\x00\\x01"')]:
            with self.subTest(words=words):
                self.put("a/1.jpg", content)
                self.refused_folder(DAMAGED, "images/a/1.jpg' is no JPEG", words)

    def test_a_small_file_that_claims_a_huge_picture(self):
        huge = png(numpy.zeros((1, 8), numpy.uint8), 8, 0)
        huge = huge[:16] + struct.pack(">II", 500000, 500000) + huge[24:29] + struct.pack(">I", zlib.crc32(b"IHDR" + struct.pack(">II", 500000, 500000)
                                                                                                 + huge[24:29])) + huge[33:]
        self.put("a/1.png", huge)
        self.refused_folder(DAMAGED, "claims to hold 500000 x 500000 pixels")

    # ---- Folders

    def test_classes_are_numbered_by_name_and_files_follow_by_class_folder_and_name(self):
        values = {}
        for value, name in enumerate(["b/2.png", "b/10.PNG", "a-x/1.png", "a/z.jpeg.png", "a/sub/1.png", "a/sub-x/0.png", "C/1.png", "b/.hidden.png"]):
            values[name] = value
            self.put(name, Image.new("L", (3, 2), value))
        self.put("b/notes.txt", b"no picture")
        self.put(".git/1.png", Image.new("L", (3, 2), 99))
        (self.dir / "images" / "README").write_text("no class")
        found = self.images(channels=1)
        # Python's order: capitals first; torchvision's ImageFolder walks folders in this order.
        order = ["C/1.png", "a/z.jpeg.png", "a/sub/1.png", "a/sub-x/0.png", "a-x/1.png", "b/10.PNG", "b/2.png"]
        self.assertEqual(found["x"][:, 0, 0, 0].tolist(), [values[name] for name in order])
        self.assertEqual(found["y"].tolist(), [0, 1, 1, 1, 2, 3, 3])
        self.assertEqual(found.classes, {"y": ["C", "a", "a-x", "b"]})
        self.assertEqual((found["x"].dtype, found["y"].dtype), (numpy.uint8, numpy.int64))

    def test_sizes_are_torchvisions(self):
        shapes = [(37, 50), (50, 37), (21, 21), (200, 31), (16, 19)]
        for i, (height, width) in enumerate(shapes):
            self.put(f"a/{i}.png", Image.fromarray(picture(height, width, seed=i)))
        arrays = [torch.from_numpy(picture(*shape, seed=i)).permute(2, 0, 1)[None] for i, shape in enumerate(shapes)]

        def resize(array, size):
            if tuple(array.shape[2:]) == tuple(size):
                return array
            return torch.nn.functional.interpolate(array, size=size, mode="bilinear", antialias=True)

        def shorter(array, side):
            height, width = array.shape[2:]
            return resize(array, (int(side * height / width), side) if width <= height else (side, int(side * width / height)))

        def centre(array, height, width):
            top, left = int(round((array.shape[2] - height) / 2)), int(round((array.shape[3] - width) / 2))
            return array[:, :, top:top + height, left:left + width]
        for split, want in [({"size": 24}, lambda a: resize(a, (24, 24))), ({"size": [20, 33]}, lambda a: resize(a, (20, 33))),
                            ({"size": [21, 16], "shorter_side": 25}, lambda a: centre(shorter(a, 25), 21, 16)),
                            ({"size": 24, "shorter_side": 24}, lambda a: centre(shorter(a, 24), 24, 24))]:
            with self.subTest(**split):
                found = self.images(**split)["x"]
                numpy.testing.assert_array_equal(found, torch.cat([want(array) for array in arrays]).numpy())

    def test_columns_parts_and_conversions(self):
        for i in range(10):
            self.put(f"{i % 2}/{i}.png", Image.new("RGB", (4, 4), (i, i, i)))
        found = self.images(size=2, x={"scale": "1/255"})
        self.assertEqual(found["x"].dtype, numpy.float32)
        self.assertEqual((found["x"] * 255).round()[:, 0, 0, 0].tolist(), [0, 2, 4, 6, 8, 1, 3, 5, 7, 9])
        named = self.images(size=2, columns={"target": {"from": "label", "dtype": "int32"}, "pixels": "image"}, order=["target", "pixels"])
        self.assertEqual(list(named), ["target", "pixels"])
        self.assertEqual(named["target"].dtype, numpy.int32)
        self.assertEqual(list(self.images(size=2, columns={"image": "image"})), ["image"])
        both = [self.images(size=2, fraction=part)["x"][:, 0, 0, 0].tolist() for part in ([0, 0.7], [0.7, 1])]
        self.assertEqual(sorted(sum(both, [])), list(range(10)))
        for part in both:
            self.assertEqual({value % 2 for value in part}, {0, 1}, "a class is left out")
        self.assertEqual(self.images(size=2, skip=7, take=2)["x"][:, 0, 0, 0].tolist(), both[1][:2])
        shuffled = [self.read(format="image_folder", path="images", size=2, shuffle=True, epoch=epoch)["x"][:, 0, 0, 0].tolist() for epoch in (0, 1)]
        self.assertEqual(sorted(shuffled[0]), list(range(10)))
        self.assertNotEqual(shuffled[0], shuffled[1])

    def test_any_number_of_threads_gives_the_same_bytes(self):
        for i in range(40):
            self.put(f"{i % 3}/{i}.jpg", Image.fromarray(picture(60 + i, 90 - i, seed=i)))
        keys = {"format": "image_folder", "path": "images", "size": 32, "shorter_side": 40, "shuffle": True, "epoch": 5}
        alone = self.read(**keys)
        for threads in 1, 4:
            together = self.read(**keys, threads=threads, batch=3)
            for name, values in alone.items():
                numpy.testing.assert_array_equal(together[name], values)

    def test_folders_that_are_refused(self):
        self.refused_folder(DAMAGED, "data.train.path: '", "images' cannot be read: No such file or directory.")
        (self.dir / "images").mkdir()
        self.refused_folder(DAMAGED, "holds no folders: an image folder has one for each class")
        self.put("a/1.png", Image.new("L", (3, 2)))
        (self.dir / "images" / "empty").mkdir()
        self.refused_folder(DAMAGED, "the class folder '", "images/empty' holds no JPEG or PNG file")
        self.put("empty/1.gif", b"GIF89a")
        self.refused_folder(DAMAGED, "images/empty/1.gif' is a picture of a kind that is not read")
        (self.dir / "images" / "empty" / "1.gif").unlink()
        self.put("empty/2.png", Image.new("L", (5, 5)))
        self.refused_folder(DAMAGED, "images/empty/2.png' gives uint8 of shape [3, 5, 5]", "first example's is uint8 of shape [3, 2, 3]", '"size"')
        self.put("other/1.png", Image.new("L", (3, 2)))

    def test_splits_have_the_same_classes(self):
        for name in "train/a", "train/b", "val/a", "val/c":
            self.put(f"{name}/1.png", Image.new("L", (3, 2)))
        splits = {which: {"format": "image_folder", "path": f"images/{folder}"} for which, folder in (("train", "train"), ("validation", "val"))}
        both = self.ask(None, "validation", data=splits, open=["train", "validation"])
        self.assertEqual((both["error"], both["code"]), ("data.train has the classes a, b and data.validation has a, c: give both a folder for each of "
                                                         "the same classes", DAMAGED))

    def test_keys_that_are_refused(self):
        for keys, words in [({"path": None}, ["data.train.path is missing"]), ({"size": 0}, ["data.train.size must be a side of 1 to 32768 pixels"]),
                            ({"size": [1, 2, 3]}, ["data.train.size"]), ({"channels": 4}, ["data.train.channels must be 3 (RGB) or 1 (grey), is 4"]),
                            ({"shorter_side": 5}, ["data.train.shorter_side needs size"]),
                            ({"size": [4, 9], "shorter_side": 8}, ["data.train.shorter_side must be from 9"]),
                            ({"x": "label", "y": "lable"}, ["data.train.y", "lable", "label"]), ({"sise": 3}, ["sise", "size"]),
                            ({"columns": {"a": {"dtype": "int64"}}}, ["data.train.columns.a does not say what it is", "image, label"])]:
            with self.subTest(keys=keys):
                self.refused(CONFIGURATION, *words, **{"format": "image_folder", "path": "images", **keys})


if __name__ == "__main__":
    data_reader.main()
