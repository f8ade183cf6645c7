"""language_model beside the same GPT in PyTorch: losses and parameters of a few steps, and the text that it generates.

Usage: gpt_test.py MUSTER, whose other programs are beside it.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

MUSTER = pathlib.Path(sys.argv.pop())
LAYERS, HEADS, WIDTH, VOCABULARY, LENGTH, BATCH, RATE = 3, 4, 32, 256, 16, 6, 0.01


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(WIDTH, 3 * WIDTH), "c_proj": nn.Linear(WIDTH, WIDTH)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(WIDTH, 4 * WIDTH), "c_proj": nn.Linear(4 * WIDTH, WIDTH)})

    def forward(self, x):
        batch, length, _ = x.shape
        parts = (part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in self.attn["c_attn"](self.ln_1(x)).split(WIDTH, -1))
        y = functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(batch, length, WIDTH)
        x = x + self.attn["c_proj"](y)
        return x + self.mlp["c_proj"](functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


class Language(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-gpt-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        torch.manual_seed(1)
        self.net = Gpt()
        save_file(self.net.state_dict(), self.dir / "w.safetensors")
        text = numpy.random.default_rng(0).integers(0, VOCABULARY, LENGTH * BATCH + 1, dtype=numpy.uint8)
        (self.dir / "text").write_bytes(text.tobytes())
        tokens = torch.tensor(text.astype(numpy.int64))
        self.x, self.y = tokens[:-1].view(BATCH, LENGTH), tokens[1:].view(BATCH, LENGTH)

    def job(self, args={}, **keys):
        job = {"program": "language_model", "program_args": {"layers": LAYERS, "heads": HEADS, "width": WIDTH, **args}, "global_batch_size": BATCH,
               "data": {"train": {"format": "text", "path": str(self.dir / "text"), "length": LENGTH, "shuffle": False}},
               "load": {"gpt": str(self.dir / "w.safetensors")}, "learning_rate": RATE, "model_dir": str(self.dir / "run"), **keys}
        path = self.dir / "job.json"
        path.write_text(json.dumps(job))
        return path

    def run_program(self, program, *arguments, code=0):
        done = subprocess.run([MUSTER.with_name(program), *map(str, arguments)], capture_output=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr.decode()

    def reference_step(self, optimizer):
        optimizer.zero_grad()
        loss = functional.cross_entropy(self.net(self.x).flatten(0, 1), self.y.flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.assertGreater(norm.item(), 1, "clipping is not tried")
        optimizer.step()
        return loss.item()

    def optimizer(self):
        plain = lambda name: name.endswith("bias") or "ln_" in name
        return torch.optim.AdamW([{"params": [p for n, p in self.net.named_parameters() if not plain(n)], "weight_decay": 0.1},
                                  {"params": [p for n, p in self.net.named_parameters() if plain(n)], "weight_decay": 0}], lr=RATE, betas=(0.9, 0.95), eps=1e-7)

    def test_steps(self):
        for args, keys in ({}, {}), ({"activation_checkpoint": True}, {}), ({}, {"accumulate_steps": 2}):
            with self.subTest(args=args, **keys):
                self.net.load_state_dict(load_file(self.dir / "w.safetensors"))
                optimizer = self.optimizer()
                for step in 1, 2, 3:
                    job = self.job(args, max_steps=step, model_dir=str(self.dir / f"run{len(args)}{len(keys)}"), **keys)
                    self.run_program("muster", "launch", "--workers", 1 if step < 3 else 0, "--job", job)
                    loss = self.reference_step(optimizer)
                    folder = self.dir / f"run{len(args)}{len(keys)}"
                    metrics = json.loads((folder / "result.json").read_text())["metrics"]["train"]
                    self.assertAlmostEqual(metrics["loss"], loss, delta=1e-4 * loss)
                    self.assertAlmostEqual(metrics["perplexity"], numpy.exp(loss), delta=1e-3 * numpy.exp(loss))
                    got = load_file(folder / f"checkpoints/step-{step:08}/model.safetensors")
                    want = self.net.state_dict()
                    self.assertEqual(set(got), set(want))
                    for name, tensor in want.items():
                        numpy.testing.assert_allclose(got[name].numpy(), tensor.numpy(), atol=1e-4 * step, err_msg=f"{name} after step {step}")

    def test_an_exported_one_trains_alike(self):
        """PyTorch's as a file of torch.export, on two members, beside the program with the same weights: AdamW with groups, clipping."""
        batch = torch.export.Dim("batch", min=1)
        torch.export.save(torch.export.export(self.net.train(), (self.x,), dynamic_shapes=({0: batch},)), self.dir / "model.pt2")
        optimizer = {"name": "adamw", "beta2": 0.95, "weight_decay": 0.1, "epsilon": 1e-7, "global_clipnorm": 1.0,
                     "groups": [{"parameters": ["*.bias", "*ln_*"], "weight_decay": 0}]}
        losses = {}
        for name, keys in ("program", {}), ("exported", {
                "program": {"exported": str(self.dir / "model.pt2"), "loss": "cross_entropy"}, "program_args": {}, "load": {}}):
            job = self.job(model_dir=str(self.dir / name), epochs=4, optimizer=optimizer, callbacks=[{"name": "csv_logger", "filename": "log.csv"}], **keys)
            self.run_program("muster", "launch", "--workers", 1, "--job", job)
            losses[name] = numpy.genfromtxt(self.dir / name / "log.csv", delimiter=",", names=True)["loss"]
        self.assertLess(losses["program"][3], losses["program"][0])
        numpy.testing.assert_allclose(losses["exported"], losses["program"], rtol=1e-4)

    def test_the_likeliest_text(self):
        job = self.job({"temperature": 0, "generate": 24})
        prompt = "a text that is longer than the context"
        self.run_program("muster", "predict", "--job", job, "--checkpoint", self.dir / "w.safetensors", "--prompt", prompt, "--output", self.dir / "out.npy")
        tokens = list(prompt.encode())
        with torch.no_grad():
            for _ in range(24):
                tokens.append(int(self.net(torch.tensor([tokens[-LENGTH:]]))[0, -1].argmax()))
        self.assertEqual(numpy.load(self.dir / "out.npy").tolist(), [tokens[len(prompt):]])

    def test_bad_input(self):
        for args, keys, said in [({"width": 30}, {}, "width must be a multiple of heads, 4, is 30"), ({"layers": 0}, {}, "layers must be above 0, is 0"),
                                 ({"context": 8}, {}, "context must not be below the length of the training windows, 16, is 8"),
                                 ({}, {"data": None}, "the job has no data.train: name a text there")]:
            with self.subTest(said):
                self.assertIn(said, self.run_program("muster-worker", "--job", self.job(args, **keys), code=2)[1])
        predict = "predict", "--job", self.job(), "--checkpoint", self.dir / "w.safetensors", "--output", self.dir / "out.npy"
        self.assertIn("the prompt is empty", self.run_program("muster", *predict, "--prompt", "", code=2)[1])
        numpy.save(self.dir / "x.npy", numpy.array([[1, 300]]))
        self.assertIn("tokens must be from 0 to 255, are from 1 to 300", self.run_program("muster", *predict, "--input", self.dir / "x.npy", code=2)[1])
        self.assertFalse((self.dir / "out.npy").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
