#!/usr/bin/env python3
"""Cost of the interpreter of exported programs: writes a small transformer with torch.export.save and trains it in turns
with the same model in C++ (bench/exported_bench.cc), several batch sizes. Run with bootstrap's Python:
    $(deploy/bootstrap --prefix)/bin/python bench/exported.py build-bench/bin/exported_bench
"""
import pathlib
import subprocess
import sys
import tempfile

import needs

needs.modules("torch")
import torch
from torch import nn
from torch.nn import functional

WORDS, WIDTH, HEADS, LAYERS, LENGTH = 256, 128, 4, 4, 64


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm2, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = (t.view(n, length, HEADS, width // HEADS).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        # In the order of bench/exported_bench.cc.
        self.a_embed = nn.Embedding(WORDS, WIDTH)
        self.a_place = nn.ParameterList([nn.Parameter(torch.randn(1, LENGTH, WIDTH) * 0.1)])
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.z_head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.a_embed(tokens) + self.a_place[0][:, :tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.z_head(x)


def main():
    torch.manual_seed(1)
    batch = torch.export.Dim("batch", min=1, max=1024)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.pt2"
        program = torch.export.export(Model().train(), (torch.zeros(4, LENGTH, dtype=torch.long),), dynamic_shapes=({0: batch},))
        torch.export.save(program, str(path))
        for size in 1, 8, 32:
            subprocess.run([sys.argv[1], path, str(size), "10"], check=True)


if __name__ == "__main__":
    main()
