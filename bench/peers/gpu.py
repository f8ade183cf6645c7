"""A model of bench/gpu.py in PyTorch, on one GPU, on random examples that are in the GPU's memory already.

python gpu.py resnet50|mobilenet_v2|gpt|convnet BATCH STEPS float32|bfloat16     prints {"examples_per_second": ..., "loss": ...}

Tuned as one would, without a compiler: channels last, fused optimizers, autocast. The loss is read once, at the end. torchvision has to
be on the path for the image models.
"""
import json
import sys

import torch
from torch import nn
from torch.nn import functional

from models import Gpt, adamw, timed

WARM_UP = 20
DEVICE = "cuda"


def images(make, batch, size, classes):
    pictures = torch.randint(0, 256, (4 * batch, 3, size, size), dtype=torch.uint8, device=DEVICE)
    labels = torch.randint(0, classes, (4 * batch,), device=DEVICE)
    model = make(num_classes=classes).to(DEVICE, memory_format=torch.channels_last)
    mean, std = (torch.tensor(values, device=DEVICE).view(1, 3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))

    def loss(indices):
        x = pictures[indices].float().div_(255).sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)
        return functional.cross_entropy(model(x).float(), labels[indices])
    return 4 * batch, loss, torch.optim.Adam(model.parameters(), lr=1e-3, fused=True), None


def resnet50(batch):
    import torchvision
    return images(torchvision.models.resnet50, batch, 224, 1000)


def mobilenet_v2(batch):
    import torchvision
    return images(torchvision.models.mobilenet_v2, batch, 128, 2)


def gpt(batch):
    """GPT-2 small with a vocabulary of bytes: 12 layers, width 768, 512 tokens."""
    tokens = torch.randint(0, 256, (4 * batch, 513), device=DEVICE)
    with torch.device(DEVICE):
        model = Gpt(12, 12, 768, 512)

    def loss(indices):
        rows = tokens[indices]
        return functional.cross_entropy(model(rows[:, :-1]).view(-1, 256).float(), rows[:, 1:].reshape(-1))
    return 4 * batch, loss, adamw(model), model


def convnet(batch):
    """The tutorial's, with 64 hidden units."""
    x, y = torch.rand(60000, 1, 28, 28, device=DEVICE), torch.randint(0, 10, (60000,), device=DEVICE)
    model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(13 * 13 * 32, 64), nn.ReLU(), nn.Linear(64, 10)).to(DEVICE)
    return len(x), lambda i: functional.cross_entropy(model(x[i]).float(), y[i]), torch.optim.SGD(model.parameters(), lr=0.01, fused=True), None


def main():
    name, batch, steps, precision = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.manual_seed(1)
    examples, loss_of, optimizer, clipped = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2, "gpt": gpt, "convnet": convnet}[name](batch)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "bfloat16"):
            loss = loss_of(torch.randint(0, examples, (batch,), device=DEVICE))
        loss.backward()
        if clipped is not None:
            nn.utils.clip_grad_norm_(clipped.parameters(), 1.0)
        optimizer.step()
        return loss

    loss, seconds = timed(step, steps, WARM_UP, torch.cuda.synchronize)
    print(json.dumps({"examples_per_second": batch * steps / seconds, "loss": loss.item()}))


if __name__ == "__main__":
    main()
