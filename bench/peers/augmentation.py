"""torchvision's input pipeline over a folder of JPEG files, tuned as one would.

python augmentation.py FOLDER WORKERS io|pil SECONDS     prints pictures a second

ImageFolder and DataLoader with worker processes; transforms.v2 on uint8 tensors, as torchvision's guide has it for speed. Pictures are
decoded by torchvision.io ("io") or Pillow ("pil"). Needs torchvision.
"""
import sys
import time

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2

BATCH = 32


def read(path):
    return decode_image(read_file(path), ImageReadMode.RGB)


def main():
    folder, workers, decoder, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    torch.set_num_threads(1)
    steps = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(),
             v2.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.ToDtype(torch.float32, scale=True),
             v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
    if decoder == "io":
        dataset = ImageFolder(folder, v2.Compose(steps), loader=read)
    else:
        dataset = ImageFolder(folder, v2.Compose([v2.PILToTensor(), *steps]))
    loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=True, prefetch_factor=4)

    def batches():
        while True:
            yield from loader
    source = batches()
    for _ in range(4 * workers):
        next(source)
    count, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        count += len(next(source)[0])
    print(count / (time.monotonic() - start), flush=True)


if __name__ == "__main__":
    main()
