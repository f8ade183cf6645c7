"""Prints cycle_gan_reference.h: gradients and parameters that Python's torch gives for the model of cycle_gan.h.

    "$(deploy/bootstrap --prefix)"/bin/python tests/unit/train/step/make_cycle_gan_reference.py > tests/unit/train/step/cycle_gan_reference.h
"""
import math

import torch

STEPS, BATCH, HIDDEN, SIZE = 20, 8, 4, 3


def numbers(shape, start):
    count = math.prod(shape)
    return torch.tensor([0.7 * math.sin(1.3 * (start + i)) for i in range(count)], dtype=torch.float64).float().reshape(shape)


def make(start, outputs):
    shapes = [(HIDDEN, SIZE), (HIDDEN,), (outputs, HIDDEN), (outputs,)]
    return [numbers(shape, start + 100 * i).requires_grad_() for i, shape in enumerate(shapes)]


def run(net, x):
    return torch.tanh(x @ net[0].T + net[1]) @ net[2].T + net[3]


class Gan:
    def __init__(self):
        self.nets = {"g": make(1000, SIZE), "f": make(2000, SIZE), "x": make(3000, 1), "y": make(4000, 1)}
        self.optimizers = {name: torch.optim.Adam(net, lr=0.01, betas=(0.5, 0.999), eps=1e-8) for name, net in self.nets.items()}

    def losses(self, step):
        x, y = numbers((BATCH, SIZE), 10000 + 1000 * step), numbers((BATCH, SIZE), 50000 + 1000 * step)
        g, f, dx, dy = (lambda v, net=self.nets[name]: run(net, v) for name in "gfxy")
        fake_y, fake_x = g(x), f(y)
        cycle = (f(fake_y) - x).abs().mean() + (g(fake_x) - y).abs().mean()
        judged_x, judged_y = dx(fake_x), dy(fake_y)  # shared by two losses each
        return {"g": (judged_y - 1).square().mean() + 10 * cycle, "f": (judged_x - 1).square().mean() + 10 * cycle,
                "x": ((dx(x) - 1).square().mean() + judged_x.square().mean()) / 2,
                "y": ((dy(y) - 1).square().mean() + judged_y.square().mean()) / 2}

    def gradients(self, step):
        losses = self.losses(step)
        return {name: torch.autograd.grad(losses[name], net, retain_graph=True) for name, net in self.nets.items()}

    def update(self, name, gradients):
        for parameter, gradient in zip(self.nets[name], gradients):
            parameter.grad = gradient
        self.optimizers[name].step()

    def flat(self):
        return flat(self.nets)


def flat(nets):
    return torch.cat([p.detach().reshape(-1) for name in "gfxy" for p in nets[name]])


def show(name, values):
    print(f"inline const std::vector<float> {name} = {{")
    text = [f"{v:.9g}" for v in values.tolist()]
    text = [t if "." in t or "e" in t else t + ".0" for t in text]
    for i in range(0, len(text), 6):
        print("    " + ", ".join(t + "f" for t in text[i:i + 6]) + ",")
    print("};")


print("// Made by make_cycle_gan_reference.py: do not edit.")
print("// clang-format off")
print("#pragma once\n\n#include <vector>\n\nnamespace muster::testing {\n")
gan = Gan()
show("kCycleGanGradients", flat(gan.gradients(0)))
for step in range(STEPS):
    together = gan.gradients(step)
    for name in "gfxy":
        gan.update(name, together[name])
show("kCycleGanTogether", gan.flat())
gan = Gan()
for step in range(STEPS):
    for name in "gfxy":
        gan.update(name, gan.gradients(step)[name])
show("kCycleGanInTurn", gan.flat())
print("\n}  // namespace muster::testing")
