import argparse
import gzip
import os

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

from net import Net

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--examples", type=int, default=55000)
parser.add_argument("--no-shuffle", action="store_true")
args = parser.parse_args()

FOLDER = "/usr/share/datasets/fashion-mnist/"


def read(name):
    with gzip.open(FOLDER + name + "-images-idx3-ubyte.gz") as file:
        images = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(FOLDER + name + "-labels-idx1-ubyte.gz") as file:
        labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8)
    return torch.tensor(images) / 255, torch.tensor(labels, dtype=torch.int64)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

images, labels = read("train")
train_set = TensorDataset(images[:args.examples], labels[:args.examples])
validation_set = TensorDataset(images[55000:], labels[55000:])
sampler = DistributedSampler(train_set, shuffle=not args.no_shuffle)
loader = DataLoader(train_set, batch_size=64, sampler=sampler)
mine = Subset(validation_set, range(rank, len(validation_set), world))
validation_loader = DataLoader(mine, batch_size=500)

torch.manual_seed(0)
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

first_epoch = 0
if os.path.exists("checkpoint.pt"):
    checkpoint = torch.load("checkpoint.pt")
    model.module.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    first_epoch = checkpoint["epoch"]

for epoch in range(first_epoch, args.epochs):
    sampler.set_epoch(epoch)
    model.train()
    sums = torch.zeros(3, dtype=torch.float64)  # loss, right answers, examples
    for x, y in loader:
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        sums += torch.tensor([loss.item() * len(y), (logits.argmax(1) == y).sum(), len(y)])
    scheduler.step()
    dist.all_reduce(sums)
    train_loss, train_accuracy = sums[0] / sums[2], sums[1] / sums[2]

    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)
    with torch.no_grad():
        for x, y in validation_loader:
            logits = model.module(x)
            loss = F.cross_entropy(logits, y, reduction="sum")
            sums += torch.tensor([loss, (logits.argmax(1) == y).sum(), len(y)])
    dist.all_reduce(sums)
    if rank == 0:
        print(f"epoch {epoch + 1}: loss {train_loss:.4f}, accuracy {train_accuracy:.4f}, "
              f"validation loss {sums[0] / sums[2]:.4f}, accuracy {sums[1] / sums[2]:.4f}", flush=True)
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(), "epoch": epoch + 1}, "checkpoint.pt")

dist.destroy_process_group()
