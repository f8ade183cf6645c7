"""A model of the examples in PyTorch, on random examples in memory: one process, or a rank of DistributedDataParallel over gloo.

python models.py mobilenet_v2|gpt|cyclegan STEPS     prints {"examples_per_second": ..., "loss": ...}

A rank has RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME. Tuned as one would: one thread a core, channels last,
fused optimizers, DDP's buckets as views; start it with tcmalloc preloaded. torchvision has to be on the path for mobilenet_v2.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)
WARM_UP = 3


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.ln_1(x)).split(width, -1))
        y = functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.projection(y)
        return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, length, vocabulary=256):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for embedding in self.wte, self.wpe:
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


def adamw(model):
    """The optimizer of the language model: weights decay, vectors do not."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}],
                             lr=1e-3, betas=(0.9, 0.95), fused=True)


def timed(step, steps, warm_up, wait=lambda: None):
    """The last loss, and the seconds that the steps after the first ones took. `wait`: until the device is done."""
    for _ in range(warm_up):
        step()
    wait()
    begin = time.time()
    for _ in range(steps):
        loss = step()
    wait()
    return loss, time.time() - begin


def mobilenet_v2(wrap):
    """16 images of 128 x 128, bytes as Muster's job has them."""
    import torchvision
    images, labels = torch.randint(0, 256, (64, 3, 128, 128), dtype=torch.uint8), torch.randint(0, 2, (64,))
    model = wrap(torchvision.models.mobilenet_v2(num_classes=2).to(memory_format=torch.channels_last))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))

    def loss(indices):
        x = images[indices].float().div_(255).sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)
        return functional.cross_entropy(model(x), labels[indices])
    return 16, len(images), loss, optimizer, None


def gpt(wrap):
    """10.7 million parameters, 8 sequences of 128."""
    tokens = torch.randint(0, 256, (64, 129))
    model = wrap(Gpt(6, 6, 384, 128))
    optimizer = adamw(model)

    def loss(indices):
        batch = tokens[indices]
        return functional.cross_entropy(model(batch[:, :-1]).view(-1, 256), batch[:, 1:].reshape(-1))
    return 8, len(tokens), loss, optimizer, model


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.chain = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width), nn.ReLU(True),
                                   nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width))

    def forward(self, x):
        return x + self.chain(x)


def generator(width=64, blocks=6):
    layers = [nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.InstanceNorm2d(width), nn.ReLU(True)]
    for c in width, 2 * width:
        layers += [nn.Conv2d(c, 2 * c, 3, stride=2, padding=1), nn.InstanceNorm2d(2 * c), nn.ReLU(True)]
    layers += [Residual(4 * width) for _ in range(blocks)]
    for c in 4 * width, 2 * width:
        layers += [nn.ConvTranspose2d(c, c // 2, 3, stride=2, padding=1, output_padding=1), nn.InstanceNorm2d(c // 2), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())


def discriminator(width=64):
    layers = [nn.Conv2d(3, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2, True)]
    for c, stride in (width, 2), (2 * width, 2), (4 * width, 1):
        layers += [nn.Conv2d(c, 2 * c, 4, stride=stride, padding=1), nn.InstanceNorm2d(2 * c), nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, padding=1))


class CycleGan(nn.Module):
    """All four losses as one sum, of which each network gets the gradients of its own: for one backward pass, and one DDP."""

    def __init__(self):
        super().__init__()
        self.g, self.f, self.dx, self.dy = generator(), generator(), discriminator(), discriminator()
        for parameter in self.parameters():
            nn.init.normal_(parameter, 0, 0.02)

    @staticmethod
    def frozen(net, x):
        return torch.func.functional_call(net, {name: parameter.detach() for name, parameter in net.named_parameters()}, x)

    def half(self, net, other_fake, fake, same, judge, real):
        """A generator's losses, and those of the discriminator of what it makes."""
        patches = self.frozen(judge, fake)
        of_generator = (patches - 1).square().mean() + 10 * (net(other_fake.detach()) - real).abs().mean() + 5 * (same - real).abs().mean()
        return of_generator + 0.5 * ((judge(real) - 1).square().mean() + judge(fake.detach()).square().mean())

    def forward(self, x, y):
        fake_y, same_y = self.g(torch.cat([x, y])).chunk(2)
        fake_x, same_x = self.f(torch.cat([y, x])).chunk(2)
        return self.half(self.g, fake_x, fake_y, same_y, self.dy, y) + self.half(self.f, fake_y, fake_x, same_x, self.dx, x)


def cyclegan(wrap):
    """One pair of 64 x 64, the paper's widths, 6 blocks."""
    x, y = torch.randint(0, 256, (2, 16, 3, 64, 64), dtype=torch.uint8)
    model = wrap(CycleGan())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    scaled = lambda pictures: pictures.float().div_(127.5).sub_(1)
    return 1, len(x), lambda indices: model(scaled(x[indices]), scaled(y[indices])), optimizer, None


def main():
    name, steps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(1)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        dist.init_process_group("gloo")

    def wrap(model):
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True) if world > 1 else model

    batch, examples, loss_of, optimizer, clipped = {"mobilenet_v2": mobilenet_v2, "gpt": gpt, "cyclegan": cyclegan}[name](wrap)
    generator = torch.Generator().manual_seed(dist.get_rank() if world > 1 else 0)

    def step():
        optimizer.zero_grad(set_to_none=world == 1)
        loss = loss_of(torch.randint(0, examples, (batch,), generator=generator))
        loss.backward()
        if clipped is not None:
            nn.utils.clip_grad_norm_(clipped.parameters(), 1.0)
        optimizer.step()
        return loss

    loss, seconds = timed(step, steps, WARM_UP)
    if world == 1 or dist.get_rank() == 0:
        print(json.dumps({"examples_per_second": batch * world * steps / seconds, "loss": loss.item()}))


if __name__ == "__main__":
    main()
