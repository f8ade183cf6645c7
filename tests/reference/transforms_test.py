"""Transforms of pictures, against torchvision's functions with the same random numbers: `transforms_test.py PRINT_DATA`."""
import io
import math
import random
import tarfile
import types

import numpy
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import data_reader
from data_reader import CONFIGURATION, DAMAGED
from images_test import picture

SEED = 7  # print_data's
MASK = (1 << 64) - 1


def split_mix(x):
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = ((x ^ x >> 30) * 0xbf58476d1ce4e5b9) & MASK
    x = ((x ^ x >> 27) * 0x94d049bb133111eb) & MASK
    return x ^ x >> 31


def torchvisions_mix(lam, images, labels):
    """v2.MixUp of a batch of three classes, with this lambda in place of the one that it draws."""
    mix = v2.MixUp(num_classes=3)
    mix._dist = types.SimpleNamespace(sample=lambda _: torch.tensor(lam, dtype=torch.float64))
    return mix(images, labels)


class Numbers:
    """common/data/random_numbers.h."""

    def __init__(self, epoch, index, salt=0):
        key = split_mix(split_mix(split_mix(SEED) ^ 0x61756774) ^ salt) ^ epoch
        self.state = split_mix(split_mix(key) ^ index)

    def uniform(self, low=0.0, high=1.0):
        word, self.state = split_mix(self.state), (self.state + 0x9e3779b97f4a7c15) & MASK
        return low + (high - low) * ((word >> 11) * 2.0**-53)

    def below(self, count):
        return int(self.uniform() * count)


def factors(value, centre=1.0):
    if isinstance(value, list):
        return value
    low = centre - value
    return [max(low, 0.0) if centre else low, centre + value]


def pair(size):
    return size if isinstance(size, list) else [size, size]


def choose_part(image, step, numbers):
    """torchvision's RandomResizedCrop.make_params."""
    height, width = image.shape[-2:]
    ratio = step.get("ratio", [3 / 4, 4 / 3])
    for _ in range(10):
        area = float(height) * float(width) * numbers.uniform(*step.get("scale", [0.08, 1.0]))
        aspect = math.exp(numbers.uniform(*map(math.log, ratio)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = numbers.below(height - h + 1)
            return top, numbers.below(width - w + 1), h, w
    h, w = height, width
    if width / height < ratio[0]:
        h = round(w / ratio[0])
    elif width / height > ratio[1]:
        w = round(h * ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


def jitter(image, step, numbers):
    order = [0, 1, 2, 3]
    for i in 3, 2, 1:
        j = numbers.below(i + 1)
        order[i], order[j] = order[j], order[i]
    names = ["brightness", "contrast", "saturation", "hue"]
    drawn = [numbers.uniform(*factors(step.get(name, 0.0), 0.0 if name == "hue" else 1.0)) for name in names]
    for what in order:
        if names[what] in step:
            image = getattr(F, f"adjust_{names[what]}")(image, drawn[what])
    return image


def apply(image, steps, numbers):
    """A picture [channels, height, width] after torchvision's transforms."""
    for step in steps:
        name, size = step["name"], step.get("size")
        if name == "resize":
            image = F.resize(image, size if isinstance(size, list) else [size], antialias=True)
        elif name == "center_crop":
            image = F.center_crop(image, pair(size))
        elif name == "random_crop":
            padding = step.get("padding", 0)
            image = F.pad(image, padding if isinstance(padding, list) else [padding])
            (h, w), (height, width) = pair(size), image.shape[-2:]
            top = numbers.below(height - h + 1)
            image = F.crop(image, top, numbers.below(width - w + 1), h, w)
        elif name == "random_resized_crop":
            image = F.resized_crop(image, *choose_part(image, step, numbers), pair(size), antialias=True)
        elif name == "random_horizontal_flip":
            image = F.horizontal_flip(image) if numbers.uniform() < step.get("p", 0.5) else image
        elif name == "color_jitter":
            image = jitter(image, step, numbers)
        else:
            low, high = step.get("range", (None, None))
            mean, std = ([-low / (high - low)], [1 / (high - low)]) if "range" in step else (step["mean"], step["std"])
            image = F.normalize(F.to_dtype(image, torch.float32, scale=True), mean, std)
    return image


def normal(numbers):
    radius = math.sqrt(-2 * math.log(1 - numbers.uniform()))
    return radius * math.cos(2 * math.pi * numbers.uniform())


def log_gamma(alpha, numbers):
    if alpha < 1:
        boost = math.log(1 - numbers.uniform()) / alpha
        return log_gamma(alpha + 1, numbers) + boost
    d = alpha - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        x = normal(numbers)
        cube = 1 + c * x
        if cube <= 0:
            continue
        v, u = cube**3, 1 - numbers.uniform()
        if math.log(u) < x * x / 2 + d - d * v + d * math.log(v):
            return math.log(d * v)


def mix_lambda(alpha, epoch, index):
    numbers = Numbers(epoch, index, 0x6d6978)
    one, other = log_gamma(alpha, numbers), log_gamma(alpha, numbers)
    return 1 / (1 + math.exp(other - one))


JITTER = {"name": "color_jitter", "brightness": 0.4, "contrast": 0.5, "saturation": [0.3, 1.8], "hue": 0.2}
FLIP = {"name": "random_horizontal_flip"}
TO_ONE = {"name": "normalize", "range": [-1, 1]}


class Transforms(data_reader.DataTest):
    def setUp(self):
        super().setUp()
        self.pictures = []

    def put(self, shapes, classes=1, folder="images"):
        """Pictures of these sizes, in the order in which they are read."""
        for i, (height, width) in enumerate(shapes):
            array = picture(height, width, seed=i)
            path = self.dir / folder / f"{i * classes // len(shapes)}" / f"{i:04}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(array).save(path)
            self.pictures.append(torch.from_numpy(array).permute(2, 0, 1))

    def images(self, *steps, **keys):
        return self.read(format="image_folder", path="images", transforms=list(steps), **keys)["x"]

    def compare(self, *steps, epoch=0, channels=3, **keys):
        """Read twice, in batches and as torchvision has it: the same bits."""
        found = self.images(*steps, epoch=epoch, channels=channels, **keys)
        pictures = self.pictures
        if channels == 1:
            pictures = [torch.from_numpy(numpy.array(Image.fromarray(p.permute(1, 2, 0).numpy()).convert("L")))[None] for p in pictures]
        for i, image in enumerate(pictures):
            want = apply(image, steps, Numbers(epoch, i)).numpy()
            self.assertEqual(found[i].dtype, want.dtype)
            numpy.testing.assert_array_equal(found[i], want, f"picture {i} of shape {tuple(image.shape)}")
        return found

    SHAPES = [(61, 83), (83, 61), (50, 50), (48, 200), (200, 48), (49, 64), (96, 131)]

    def test_each_is_torchvisions(self):
        self.put(self.SHAPES)
        crop = {"name": "center_crop", "size": 40}
        for steps in ([{"name": "resize", "size": [30, 44]}], [{"name": "resize", "size": 24}, {"name": "center_crop", "size": [24, 17]}],
                      [{"name": "center_crop", "size": [31, 48]}], [{"name": "random_crop", "size": 48}],
                      [{"name": "random_crop", "size": [50, 40], "padding": 2}], [{"name": "random_crop", "size": 48, "padding": [3, 1]}],
                      [{"name": "random_crop", "size": 52, "padding": [9, 5, 7, 3]}], [{"name": "random_resized_crop", "size": 32}],
                      [{"name": "random_resized_crop", "size": [20, 60], "scale": [0.5, 1], "ratio": [0.5, 3]}],
                      # No draw fits: the middle.
                      [{"name": "random_resized_crop", "size": 32, "scale": [1, 1], "ratio": [1.4, 1.5]}],
                      [crop, FLIP], [crop, {"name": "random_horizontal_flip", "p": 1}], [crop, JITTER], [crop, {"name": "color_jitter", "hue": 0.5}],
                      [crop, {"name": "color_jitter", "brightness": [0, 3]}], [crop, {"name": "color_jitter", "contrast": 0.9}],
                      [crop, {"name": "color_jitter", "saturation": [0, 4]}], [crop, TO_ONE], [crop, {"name": "normalize", "range": [0, 1]}],
                      [crop, {"name": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}]):
            for epoch in 0, 1:
                with self.subTest(steps=steps, epoch=epoch):
                    self.compare(*steps, epoch=epoch)

    def test_any_colour_is_torchvisions(self):
        """All levels of the channels, and greys, where dividing by the range of the channels is by 0."""
        levels = numpy.arange(0, 256, 15, dtype=numpy.uint8)
        colours = numpy.stack(numpy.meshgrid(levels, levels, levels), -1).reshape(-1, 18, 3)
        greys = numpy.repeat(numpy.arange(256, dtype=numpy.uint8)[:, None], 18, 1)[..., None].repeat(3, -1)
        array = numpy.concatenate([colours, greys])
        (self.dir / "images" / "a").mkdir(parents=True)
        for i in range(12):
            Image.fromarray(array).save(self.dir / "images" / "a" / f"{i:02}.png")
            self.pictures.append(torch.from_numpy(array).permute(2, 0, 1))
        self.compare({"name": "color_jitter", "hue": 0.5})
        self.compare({"name": "color_jitter", "saturation": [0, 3]})
        self.compare(JITTER, FLIP, epoch=3)

    def test_grey_pictures(self):
        self.put(self.SHAPES)
        part = {"name": "random_resized_crop", "size": 21}
        for steps in [part, FLIP], [part, FLIP, JITTER, TO_ONE], [{"name": "random_crop", "size": 48, "padding": 1}, JITTER]:
            with self.subTest(steps=steps):
                self.compare(*steps, channels=1)

    def test_any_order_is_torchvisions(self):
        self.put(self.SHAPES)
        choose, compared = random.Random(5), 0
        kinds = [lambda: FLIP, lambda: JITTER, lambda: {"name": "resize", "size": choose.choice([[48, 50], [60, 55], [48, 48]])},
                 lambda: {"name": "random_crop", "size": [48, choose.choice([48, 40])], "padding": choose.choice([0, 4])},
                 lambda: {"name": "center_crop", "size": [48, 48]}, lambda: {"name": "random_resized_crop", "size": [48, 50]}]
        for _ in range(40):
            steps = [choose.choice(kinds)() for _ in range(choose.randrange(1, 6))]
            steps.append(choose.choice([TO_ONE, {"name": "center_crop", "size": [48, 40]}, {"name": "resize", "size": [33, 60]}]))
            with self.subTest(steps=steps):
                try:
                    want = [apply(image, steps, Numbers(2, i)) for i, image in enumerate(self.pictures)]
                except Exception:
                    continue
                if len({image.shape for image in want}) == 1 and all(self.fits(image, steps) for image in self.pictures):
                    self.compare(*steps, epoch=2)
                    compared += 1
        self.assertGreater(compared, 8)

    @staticmethod
    def fits(image, steps):
        """Crops of torchvision's go beyond a picture; ours are refused there."""
        height, width = image.shape[-2:]
        for step in steps:
            if "size" not in step:
                continue
            h, w = pair(step["size"])
            if "crop" in step["name"] and "resized" not in step["name"]:
                more = 2 * step.get("padding", 0)
                if h > height + more or w > width + more:
                    return False
            height, width = h, w
        return True

    def test_what_the_split_resizes_to_comes_first(self):
        self.put(self.SHAPES)
        found = self.images({"name": "random_crop", "size": 20}, FLIP, size=24)
        for i, image in enumerate(self.pictures):
            want = apply(F.resize(image, [24, 24], antialias=True), [{"name": "random_crop", "size": 20}, FLIP], Numbers(0, i))
            numpy.testing.assert_array_equal(found[i], want.numpy())

    # ---- Random numbers

    AUGMENT = [{"name": "random_resized_crop", "size": 24}, FLIP, JITTER, TO_ONE]

    def test_they_are_a_function_of_seed_epoch_and_example(self):
        self.put([(40 + i, 70 - i) for i in range(23)])
        keys = {"epoch": 4, "shuffle": True}
        alone = self.images(*self.AUGMENT, **keys)
        for others in {"threads": 1}, {"threads": 4}, {"replicas": 3}, {"replicas": 2, "threads": 3}, {"batch": 23}:
            with self.subTest(**others):
                numpy.testing.assert_array_equal(self.images(*self.AUGMENT, **keys, **others), alone)
        in_order = {image.tobytes() for image in self.images(*self.AUGMENT, epoch=4)}
        self.assertEqual({image.tobytes() for image in alone}, in_order, "the shuffle has changed the pictures")
        other = {image.tobytes() for image in self.images(*self.AUGMENT, epoch=5)}
        self.assertFalse(in_order & other, "pictures come again in the next epoch")

    def test_a_cache_holds_pictures_before_their_transforms(self):
        self.put([(40 + i, 70 - i) for i in range(9)])
        for part in {}, {"skip": 2, "take": 5}:
            for cache in "memory", {"disk": str(self.dir / "cache")}:
                with self.subTest(part=part, cache=cache):
                    # On disk examples have one shape.
                    keys = {"shuffle": True, "size": 48, "threads": 2, **part}
                    for epoch in 0, 1:
                        without = self.images(*self.AUGMENT, epoch=epoch, **keys)
                        for _ in range(2):
                            numpy.testing.assert_array_equal(self.images(*self.AUGMENT, epoch=epoch, cache=cache, **keys), without)
        numpy.testing.assert_array_equal(self.images(*self.AUGMENT, cache="memory"), self.images(*self.AUGMENT))
        # Each folder is read three times: cached examples are augmented again.
        pairs = {"format": "unpaired_images", "x": "images/0", "y": "images/0", "examples": 27, "transforms": self.AUGMENT}
        numpy.testing.assert_array_equal(self.read(**pairs, cache="memory")["y"], self.read(**pairs)["y"])

    def test_draws_are_spread(self):
        """One picture whose pixels tell where they are, 600 times."""
        y, x = numpy.mgrid[0:64, 0:64].astype(numpy.uint8)
        (self.dir / "images" / "a").mkdir(parents=True)
        for i in range(600):
            Image.fromarray(numpy.stack([y, x, 0 * x], -1)).save(self.dir / "images" / "a" / f"{i:03}.png")
        crops = self.images({"name": "random_crop", "size": 33}, {"name": "random_horizontal_flip", "p": 0.3}, batch=100)
        flipped = (crops[:, 1, 0, 0] > crops[:, 1, 0, -1]).mean()
        self.assertAlmostEqual(flipped, 0.3, delta=4 * math.sqrt(0.3 * 0.7 / 600))
        for channel, axis in (0, "top"), (1, "left"):
            places = crops[:, channel].reshape(600, -1).min(1)
            self.assertEqual((places.min(), places.max()), (0, 31), axis)
            self.assertEqual(len(set(places)), 32, axis)
            self.assertAlmostEqual(places.mean(), 15.5, delta=4 * 32 / math.sqrt(12 * 600))
        self.assertLess(abs(numpy.corrcoef(crops[:, 0].reshape(600, -1).min(1), crops[:, 1].reshape(600, -1).min(1))[0, 1]), 0.15)
        # A picture of the whole range, of which the resized part shows how much it takes.
        parts = self.images({"name": "random_resized_crop", "size": 64, "scale": [0.2, 0.8], "ratio": [1, 1]}, batch=100).astype(float)
        side = (parts[:, 0, -3, 0] - parts[:, 0, 2, 0]) / 59
        area = side**2
        self.assertAlmostEqual(area.mean(), 0.5, delta=0.05)
        self.assertLess(area.min(), 0.25)
        self.assertGreater(area.max(), 0.75)

    def test_both_pictures_that_are_no_pair_draw_for_themselves(self):
        for folder in "ab":
            (self.dir / folder).mkdir()
            for i in range(9):
                Image.fromarray(picture(40, 50, seed=i)).save(self.dir / folder / f"{i}.png")
        steps = [{"name": "resize", "size": [36, 36]}, {"name": "random_crop", "size": 32}, FLIP, TO_ONE]
        found = self.read(format="unpaired_images", x="a", y="b", transforms=steps, epoch=1)
        for i in range(9):
            image = torch.from_numpy(picture(40, 50, seed=i)).permute(2, 0, 1)
            for salt, name in (1, "x"), (2, "y"):
                numpy.testing.assert_array_equal(found[name][i], apply(image, steps, Numbers(1, i, salt)).numpy())
        self.assertTrue((found["x"] != found["y"]).any())
        self.assertEqual((found["x"].dtype, found["x"].min() >= -1, found["x"].max() <= 1), (numpy.float32, True, True))
        # Each time through a folder is another epoch of its own.
        longer = self.read(format="unpaired_images", x="a", y="b", transforms=steps, examples=18)["x"]
        self.assertTrue((longer[:9] != longer[9:]).any())

    def test_pictures_of_archives(self):
        images, path = [], self.dir / "a.tar"
        with tarfile.open(path, "w") as tar:
            for i in range(5):
                images.append(picture(40, 40 + i, seed=i))
                encoded = io.BytesIO()
                Image.fromarray(images[-1]).save(encoded, "PNG")
                for extension, data in ("png", encoded.getvalue()), ("cls", str(i).encode()):
                    member = tarfile.TarInfo(f"{i}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        steps = [{"name": "random_resized_crop", "size": 20}, FLIP]
        found = self.read(format="tar", path="a.tar", transforms=steps)
        self.assertEqual(found["y"].tolist(), list(range(5)))
        for i, image in enumerate(images):
            numpy.testing.assert_array_equal(found["x"][i], apply(torch.from_numpy(image).permute(2, 0, 1), steps, Numbers(0, i)).numpy())
        self.refused(CONFIGURATION, "data.train.transforms is for pictures, and no column of the split is one", '"decode": "image"',
                     format="tar", path="a.tar", columns={"target": "cls"}, transforms=steps)

    # ---- MixUp

    def test_mixup_is_torchvisions_with_the_example_before(self):
        self.put([(30 + i, 40) for i in range(13)], classes=3)
        plain = [{"name": "random_resized_crop", "size": 16}, FLIP, TO_ONE]
        for alpha in 0.2, 1, 7.5:
            for epoch in 0, 2:
                keys = {"format": "image_folder", "path": "images", "shuffle": True, "epoch": epoch}
                before = self.read(**keys, transforms=plain)
                found = self.read(**keys, transforms=[*plain, {"name": "mixup", "alpha": alpha}])
                for i in range(13):
                    pair = [torch.from_numpy(before[name][[i - 1, i]].copy()) for name in "xy"]
                    for name, mixed in zip("xy", torchvisions_mix(mix_lambda(alpha, epoch, i), *pair)):
                        numpy.testing.assert_array_equal(found[name][i], mixed[1].numpy(), f"{name} of example {i}, alpha {alpha}")
                self.assertEqual(found.classes, {"y": ["0", "1", "2"]})
                for others in {"threads": 3, "batch": 5}, {"replicas": 2}, {"replicas": 5, "batch": 6, "threads": 2}:
                    again = self.read(**keys, transforms=[*plain, {"name": "mixup", "alpha": alpha}], **others)
                    for name in "xy":
                        numpy.testing.assert_array_equal(again[name], found[name])

    def test_lambda_is_from_the_beta_distribution(self):
        for alpha in 0.1, 1, 4:
            drawn = [mix_lambda(alpha, 0, i) for i in range(4000)]
            self.assertAlmostEqual(numpy.mean(drawn), 0.5, delta=0.03)
            self.assertAlmostEqual(numpy.var(drawn), 1 / (4 * (2 * alpha + 1)), delta=0.01)

    def test_classes_of_mixup(self):
        self.put([(20, 20)] * 4, classes=2)
        to_one = {"name": "normalize", "range": [0, 1]}
        keys = {"format": "image_folder", "path": "images"}
        wide = self.read(**keys, transforms=[to_one, {"name": "mixup", "alpha": 1, "classes": 5}])
        self.assertEqual(wide["y"].shape, (4, 5))
        numpy.testing.assert_allclose(wide["y"].sum(1), 1, rtol=1e-6)
        self.refused(CONFIGURATION, "data.train.transforms[1].classes is 1, and the folder has 2 classes", **keys,
                     transforms=[to_one, {"name": "mixup", "alpha": 1, "classes": 1}])

    # ---- What is refused

    def test_keys_that_are_refused(self):
        crop = {"name": "random_crop", "size": 20}
        mixup = {"name": "mixup", "alpha": 0.2, "classes": 3}
        place = "data.train.transforms[0]"
        for transforms, words in [
                ({"name": "resize"}, ["data.train.transforms must be a list"]),
                (["resize"], [f"{place} must be an object with a name"]),
                ([{"name": "random_cropp", "size": 2}], [f"{place}.name is \"random_cropp\", did you mean \"random_crop\"?"]),
                ([{"name": "perspective"}], [f"{place}.name", "must be one of resize, center_crop", "mixup"]),
                ([{"name": "random_crop"}], [f"{place}.size is missing"]), ([{"name": "random_crop", "size": 0}], [f"{place}.size must be sides of 1"]),
                ([{"name": "resize", "size": 0}], [f"{place}.size must be at least 1 pixel"]),
                ([{"name": "resize", "size": [3, -1]}], [f"{place}.size must be sides of 1 to 32768 pixels, is [3, -1]"]),
                ([{"name": "center_crop", "size": [1, 2, 3]}], [f"{place}.size must be a side in pixels, or [height, width], is [1,2,3]"]),
                ([{**crop, "padding": -1}], [f"{place}.padding must be from 0"]), ([{**crop, "padding": [1, 2, 3]}], [f"{place}.padding must be pixels"]),
                ([{**crop, "fill": 1}], [f'unknown key "{place}.fill"']),
                ([{"name": "random_resized_crop", "size": 9, "scale": [0.5, 1.2]}], [f"{place}.scale must be", "at most 1", "is [0.5, 1.2]"]),
                ([{"name": "random_resized_crop", "size": 9, "scale": 0.5}], [f"{place}.scale must be a list of numbers, is 0.5"]),
                ([{"name": "random_resized_crop", "size": 9, "scale": [0.5]}], [f"{place}.scale must be two numbers, the smaller one first, is [0.5]"]),
                ([{"name": "random_resized_crop", "size": 9, "ratio": [0, 1]}], [f"{place}.ratio must be", "is [0, 1]"]),
                ([{"name": "random_horizontal_flip", "p": 1.5}], [f"{place}.p must be a probability from 0 to 1, is 1.5"]),
                ([{"name": "color_jitter", "hue": 0.6}], [f"{place}.hue must be from 0 to 0.5"]),
                ([{"name": "color_jitter", "contrast": -1}], [f"{place}.contrast must not be below 0, is -1"]),
                ([{"name": "color_jitter", "contrast": [2, 1]}], [f"{place}.contrast", "the smaller one first"]),
                ([{"name": "normalize", "mean": [0.5]}], [f"{place}.std is missing"]), ([{"name": "normalize"}], [f"{place}.mean is missing"]),
                ([{"name": "normalize", "mean": [1, 2], "std": [1]}], [f"{place}.mean must be a number for each channel"]),
                ([{"name": "normalize", "mean": [1], "std": [0]}], [f"{place}.std must be a number other than 0"]),
                ([{"name": "normalize", "range": [1, 1]}], [f"{place}.range must be two numbers that differ"]),
                ([{"name": "normalize", "range": [0, 1], "std": [1]}], [f"{place}.range goes without mean and std"]),
                ([TO_ONE, FLIP], [f"{place} is normalize, which must be the last of the steps"]),
                ([crop, mixup], ["data.train.transforms[1] is mixup, which mixes numbers and not bytes: put normalize before it"]),
                ([TO_ONE, mixup, FLIP], ["data.train.transforms[2] follows mixup, which must be the last"]),
                ([TO_ONE, {**mixup, "alpha": 0}], ["data.train.transforms[1].alpha must be above 0"]),
                ([{"name": "resize", "size": [18, 30]}, crop], ["data.train.transforms[1].size is 20 x 20, and the picture is 18 x 30 there"]),
                ([{"name": "resize", "size": 18}, crop], ["data.train.transforms[1].size is 20 x 20, and the pictures' shorter side is 18 there"]),
                ([{"name": "resize", "size": 10}, {**crop, "padding": 4}], ["data.train.transforms[1].size is 20 x 20"])]:
            with self.subTest(transforms=transforms):
                self.refused(CONFIGURATION, *words, format="image_folder", path="images", transforms=transforms)
        for keys, words in [({"size": 16, "transforms": [crop]}, [f"{place}.size is 20 x 20, and the picture is 16 x 16 there"]),
                            ({"channels": 1, "transforms": [{"name": "normalize", "mean": [0.5] * 3, "std": [1]}]}, [f"{place} has 3 values for pictures of 1"]),
                            ({"x": {"scale": "1/255"}, "transforms": [TO_ONE]}, ["data.train.x.scale does not go with normalize", place]),
                            ({"x": {"dtype": "uint8"}, "transforms": [TO_ONE]}, ["data.train.x.dtype does not go with normalize"]),
                            ({"y": {"dtype": "int64"}, "transforms": [TO_ONE, mixup]}, ["data.train.y.dtype does not go with mixup"]),
                            ({"columns": {"p": "image"}, "transforms": [TO_ONE, mixup]}, ["needs one column of labels", "there are 0"]),
                            ({"columns": {"l": "label"}, "transforms": [crop]}, ["data.train.transforms is for pictures, and no column"])]:
            with self.subTest(keys=keys):
                self.refused(CONFIGURATION, *words, **{"format": "image_folder", "path": "images", **keys})
        self.refused(CONFIGURATION, "data.train.transforms is for pictures, and no column of the split is one (format npy)",
                     format="npy", x="x.npy", transforms=[crop])
        self.refused(CONFIGURATION, "data.train.transforms[1] is mixup, which needs one column of labels beside the pictures: there are 0",
                     format="unpaired_images", x="a", y="b", transforms=[TO_ONE, mixup])
        self.refused(CONFIGURATION, "data.train.transforms[1].classes is missing", format="tar", path="a.tar",
                     transforms=[TO_ONE, {"name": "mixup", "alpha": 1}])

    def test_other_splits_are_not_augmented(self):
        self.put([(20, 30)])
        keys = {"format": "image_folder", "path": "images"}
        for step in {"name": "random_crop", "size": 20}, FLIP, JITTER, {"name": "random_resized_crop", "size": 3}, {"name": "mixup", "alpha": 1}:
            answer = self.ask({**keys, "transforms": [TO_ONE, step] if step["name"] == "mixup" else [step]}, "validation")
            self.assertEqual(answer.get("code"), CONFIGURATION)
            self.assertIn(f"is {step['name']}, which draws random numbers and so is for data.train: other splits take resize, center_crop and normalize",
                          answer["error"])
        found = self.read("validation", **keys, transforms=[{"name": "resize", "size": 16}, {"name": "center_crop", "size": 12}, TO_ONE])
        want = apply(self.pictures[0], [{"name": "resize", "size": 16}, {"name": "center_crop", "size": 12}, TO_ONE], None)
        numpy.testing.assert_array_equal(found["x"][0], want.numpy())

    def test_pictures_that_are_too_small_are_named(self):
        self.put([(30, 30), (19, 30), (30, 30)])
        steps = [{"name": "center_crop", "size": 20}]
        message = self.refused(DAMAGED, "data.train.transforms[0].size, for '", "0001.png', is 20 x 20, and the picture is 19 x 30 there",
                               format="image_folder", path="images", shuffle=False, transforms=steps)
        self.assertNotIn("0000.png", message)
        steps = [{"name": "random_crop", "size": 40, "padding": 4}]
        self.refused(DAMAGED, "0000.png', is 40 x 40, and the picture is 38 x 38 there, with its padding", format="image_folder", path="images",
                     shuffle=False, transforms=steps)
        self.refused(DAMAGED, "0001.png' gives uint8 of shape [3, 19, 30], and the first example's is", format="image_folder", path="images",
                     shuffle=False, transforms=[FLIP])


if __name__ == "__main__":
    data_reader.main()
