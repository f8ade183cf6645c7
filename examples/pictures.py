#!/usr/bin/env python3
"""Draws small sets of photograph-like pictures, on which the examples train where there are no photographs at hand.

  pictures.py photos FOLDER [--classes fish,flowers] [--count 200] [--size 160]    FOLDER/fish/0000.jpg ...
  pictures.py domains FOLDER [--count 60] [--test-count 10] [--size 64]            FOLDER/trainA/0000.png ..., trainB, testA, testB
  pictures.py pack FOLDER x.npy [--size 64]      any folder of pictures as an array that `muster predict` takes
  pictures.py unpack y.npy FOLDER                and what it made of them as PNG files

The same arguments draw the same pictures. Needs Pillow and NumPy.
"""
import argparse
import math
import pathlib

import numpy
from PIL import Image, ImageDraw, ImageFilter


def noise(random, width, height, cells):
    """[height, width] from 0 to 1, smooth: as many hills as `cells` in a row."""
    small = Image.fromarray((random.random((cells + 1, cells + 1)) * 255).astype(numpy.uint8))
    return numpy.asarray(small.resize((width, height), Image.Resampling.BICUBIC), numpy.float32) / 255


def background(random, width, height):
    """Light and shade over a mixture of two colours."""
    mixture = sum(noise(random, width, height, cells) / weight for cells, weight in ((2, 2), (5, 4), (17, 8), (60, 16)))
    first, second = random.integers(30, 226, (2, 3))
    pixels = first + (second - first) * mixture[..., None]
    light = numpy.linspace(*random.uniform(0.75, 1.2, 2), height)[:, None, None]
    return Image.fromarray(numpy.clip(pixels * light, 0, 255).astype(numpy.uint8))


def colour(random):
    return tuple(int(value) for value in random.integers(20, 236, 3))


def ellipse(cx, cy, a, b, angle, points=40):
    turns = numpy.linspace(0, 2 * math.pi, points, endpoint=False)
    x, y = a * numpy.cos(turns), b * numpy.sin(turns)
    c, s = math.cos(angle), math.sin(angle)
    return [(cx + c * u - s * v, cy + s * u + c * v) for u, v in zip(x, y)]


def flower(random, draw, cx, cy, radius):
    petals, turn, paint = int(random.integers(5, 10)), random.uniform(0, 6), colour(random)
    for i in range(petals):
        angle = turn + 2 * math.pi * i / petals
        x, y = cx + 0.55 * radius * math.cos(angle), cy + 0.55 * radius * math.sin(angle)
        draw.polygon(ellipse(x, y, 0.5 * radius, 0.9 * radius / petals + 0.08 * radius, angle), fill=paint, outline=colour(random))
    draw.polygon(ellipse(cx, cy, 0.28 * radius, 0.28 * radius, 0), fill=colour(random))


def fish(random, draw, cx, cy, radius):
    angle, paint, stripes = random.uniform(-0.7, 0.7), colour(random), colour(random)
    c, s = math.cos(angle), math.sin(angle)
    side = 1 if random.random() < 0.5 else -1

    def place(u, v):
        return cx + side * (c * u - s * v), cy + s * u + c * v

    draw.polygon([place(0.6 * radius, 0), place(radius, -0.4 * radius), place(radius, 0.4 * radius)], fill=paint)
    draw.polygon([place(u - cx, v - cy) for u, v in ellipse(cx, cy, 0.8 * radius, 0.4 * radius, 0)], fill=paint)
    for u in numpy.linspace(-0.3, 0.5, int(random.integers(2, 6))) * radius:
        draw.line([place(u, -0.28 * radius), place(u + 0.06 * radius, 0), place(u, 0.28 * radius)], fill=stripes, width=max(1, int(0.05 * radius)))
    draw.polygon(ellipse(*place(-0.55 * radius, -0.08 * radius), 0.06 * radius, 0.06 * radius, 0), fill=(10, 10, 10))


def house(random, draw, cx, cy, radius):
    w, h = random.uniform(0.5, 0.8) * radius, random.uniform(0.4, 0.6) * radius
    draw.rectangle([cx - w, cy - 0.2 * radius, cx + w, cy + h], fill=colour(random))
    draw.polygon([(cx - 1.15 * w, cy - 0.2 * radius), (cx + 1.15 * w, cy - 0.2 * radius), (cx, cy - radius)], fill=colour(random))
    pane = colour(random)
    for u in -0.55 * w, 0.25 * w:
        draw.rectangle([cx + u, cy, cx + u + 0.35 * w, cy + 0.5 * h], fill=pane)


def tree(random, draw, cx, cy, radius):
    draw.rectangle([cx - 0.08 * radius, cy, cx + 0.08 * radius, cy + radius], fill=colour(random))
    paint = colour(random)
    for level in range(int(random.integers(2, 5))):
        y, w = cy + (0.3 - 0.35 * level) * radius, (0.75 - 0.15 * level) * radius
        draw.polygon([(cx - w, y), (cx + w, y), (cx, y - 0.6 * radius)], fill=paint)


def boat(random, draw, cx, cy, radius):
    draw.polygon([(cx - 0.9 * radius, cy + 0.3 * radius), (cx + 0.9 * radius, cy + 0.3 * radius), (cx + 0.5 * radius, cy + 0.7 * radius),
                  (cx - 0.5 * radius, cy + 0.7 * radius)], fill=colour(random))
    for side in -1, 1:
        draw.polygon([(cx + 0.05 * side * radius, cy + 0.2 * radius), (cx + 0.05 * side * radius, cy - radius),
                      (cx + side * random.uniform(0.4, 0.8) * radius, cy + 0.2 * radius)], fill=colour(random))


def mushroom(random, draw, cx, cy, radius):
    draw.polygon(ellipse(cx, cy + 0.4 * radius, 0.22 * radius, 0.6 * radius, 0), fill=colour(random))
    draw.pieslice([cx - 0.8 * radius, cy - 0.7 * radius, cx + 0.8 * radius, cy + 0.7 * radius], 180, 360, fill=colour(random))
    dots = colour(random)
    for u in numpy.linspace(-0.5, 0.5, int(random.integers(2, 5))) * radius:
        draw.polygon(ellipse(cx + u, cy - 0.3 * radius, 0.1 * radius, 0.1 * radius, 0), fill=dots)


THINGS = {"boats": boat, "fish": fish, "flowers": flower, "houses": house, "mushrooms": mushroom, "trees": tree}


def photo(random, size, thing):
    """One thing somewhere on a background, of another width and height each time, a little blurred and grainy."""
    width, height = (int(value) for value in random.integers(int(0.8 * size), int(1.4 * size), 2))
    picture = background(random, width, height)
    radius = random.uniform(0.25, 0.42) * min(width, height)
    cx, cy = random.uniform(radius, width - radius), random.uniform(radius, height - radius)
    thing(random, ImageDraw.Draw(picture), cx, cy, radius)
    picture = picture.filter(ImageFilter.GaussianBlur(random.uniform(0.3, 1.2)))
    pixels = numpy.asarray(picture, numpy.float32) * random.uniform(0.8, 1.15) + random.normal(0, random.uniform(2, 9), (height, width, 3))
    return Image.fromarray(numpy.clip(pixels, 0, 255).astype(numpy.uint8))


def photos(arguments):
    names = arguments.classes.split(",")
    for unknown in set(names) - set(THINGS):
        raise SystemExit(f"pictures.py: no class '{unknown}': there are {', '.join(THINGS)}")
    for name in names:
        folder = arguments.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(arguments.count):
            random = numpy.random.default_rng([arguments.seed, *name.encode(), i])
            photo(random, arguments.size, THINGS[name]).save(folder / f"{i:04}.jpg", quality=int(random.integers(75, 96)))


def blend(below, above, mask):
    return below + (above - below) * mask[..., None]


def blob(random, size):
    """An ellipse with a soft edge as a mask [size, size], and where each pixel lies along and across it."""
    y, x = numpy.mgrid[0:size, 0:size].astype(numpy.float32) / size
    (cx, cy), (a, b), angle = random.uniform(0.2, 0.8, 2), random.uniform(0.12, 0.3, 2), random.uniform(0, math.pi)
    along = (x - cx) * math.cos(angle) + (y - cy) * math.sin(angle)
    across = (y - cy) * math.cos(angle) - (x - cx) * math.sin(angle)
    return numpy.clip((1.1 - numpy.hypot(along / a, across / b)) * size / 6, 0, 1), along, across


def animals(random, size, striped):
    """Of domain A: brown ones on grass; of B, striped ones on dry ground."""
    ground = numpy.array([[133, 122, 77], [189, 179, 122]] if striped else [[77, 97, 41], [133, 153, 71]], numpy.float32)
    slope = numpy.linspace(0, 0.6, size)[:, None] + 0.4 * noise(random, size, size, 3)
    pixels = blend(ground[0] + numpy.zeros((size, size, 3)), ground[1], slope)
    for _ in range(int(random.integers(1, 4))):
        mask, along, across = blob(random, size)
        body = numpy.array([158, 97, 46]) * random.uniform(0.8, 1.2) + numpy.zeros((size, size, 3))
        if striped:
            wave = 0.5 + 0.5 * numpy.sin(2 * math.pi * (along * random.uniform(9, 13) + 0.3 * numpy.sin(across * 12)))
            body = blend(numpy.array([235, 230, 219]) + numpy.zeros((size, size, 3)), numpy.array([20, 20, 23]), wave)
        pixels = blend(pixels, body, mask)
    pixels = pixels * (0.8 + 0.4 * noise(random, size, size, 2)[..., None]) + random.normal(0, 8, (size, size, 3))
    return Image.fromarray(numpy.clip(pixels, 0, 255).astype(numpy.uint8))


def domains(arguments):
    for domain, letter in enumerate("AB"):
        for test, counts in enumerate((arguments.count, arguments.test_count)):
            folder = arguments.folder / (("test" if test else "train") + letter)
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(counts[min(domain, len(counts) - 1)]):
                random = numpy.random.default_rng([arguments.seed, domain, test, i])
                animals(random, arguments.size, striped=domain == 1).save(folder / f"{i:04}.png")


def pack(arguments):
    files = sorted(path for path in arguments.folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not files:
        raise SystemExit(f"pictures.py: no pictures in '{arguments.folder}'")
    shape = (arguments.size, arguments.size)
    pictures = [numpy.asarray(Image.open(file).convert("RGB").resize(shape, Image.Resampling.BILINEAR)) for file in files]
    numpy.save(arguments.file, numpy.stack(pictures).transpose(0, 3, 1, 2))


def unpack(arguments):
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for i, pixels in enumerate(numpy.load(arguments.file)):
        picture = ((pixels.clip(-1, 1) + 1) * 127.5).round().astype(numpy.uint8).transpose(1, 2, 0)
        Image.fromarray(picture).save(arguments.folder / f"{i:04}.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("photos", help="a folder for each class")
    command.add_argument("folder", type=pathlib.Path)
    command.add_argument("--classes", default="fish,flowers", help=f"some of {', '.join(THINGS)}")
    command.add_argument("--count", type=int, default=200, help="pictures of each class")
    command.add_argument("--size", type=int, default=160, help="about so many pixels in each direction")
    command.add_argument("--seed", type=int, default=1)
    command.set_defaults(run=photos)
    command = commands.add_parser("domains", help="two domains that are no pairs, each with training and test pictures")
    command.add_argument("folder", type=pathlib.Path)
    command.add_argument("--count", type=int, nargs="+", default=[60], help="training pictures of each domain, or of A and of B")
    command.add_argument("--test-count", type=int, nargs="+", default=[10], help="likewise of test pictures")
    command.add_argument("--size", type=int, default=64, help="pixels in each direction")
    command.add_argument("--seed", type=int, default=1)
    command.set_defaults(run=domains)
    command = commands.add_parser("pack", help="a folder's pictures, by name, as an array of bytes [n, 3, size, size]")
    command.add_argument("folder", type=pathlib.Path)
    command.add_argument("file", type=pathlib.Path)
    command.add_argument("--size", type=int, default=64, help="pixels in each direction")
    command.set_defaults(run=pack)
    command = commands.add_parser("unpack", help="an array [n, 3, height, width] from -1 to 1 as PNG files")
    command.add_argument("file", type=pathlib.Path)
    command.add_argument("folder", type=pathlib.Path)
    command.set_defaults(run=unpack)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
