"""CycleGAN with real processes, on two small domains of generated pictures: it learns, members agree, nothing is lost with one of them."""
import io
import os
import pty
import re
import select
import subprocess
import sys
import time
import unittest

import numpy
from PIL import Image
from safetensors.numpy import load_file

from harness import BIN, SOURCE, ClusterTest, checkpoints, curve, events, losses, result

SIZE = 24  # of the pictures: the least that the program takes
ARGS = {"width": 8, "discriminator_width": 8, "blocks": 2}
TEN = {f"loss_{net}/{part}" for net in "GF" for part in ("loss", "cycle", "identity", "total")} | {"loss_X/loss", "loss_Y/loss"}
ERRORS = {"MAE(X, F(G(X)))", "MAE(X, F(X))", "MAE(Y, G(F(Y)))", "MAE(Y, G(Y))"}


class CycleGan(ClusterTest):
    def domains(self, name, *arguments):
        folder = self.dir / name
        subprocess.run([sys.executable, SOURCE / "examples/pictures.py", "domains", folder, *map(str, arguments)], check=True, timeout=60)
        return folder

    def gan(self, folder, size=None, args={}, **keys):
        split = lambda name: {"format": "unpaired_images", "x": f"{name}A", "y": f"{name}B", **({"size": size} if size else {})}
        return self.job(**{"program": "cyclegan", "program_args": {**ARGS, **args}, "folder": str(folder), "data": {"train": split("train"), "test": split("test")},
                           "global_batch_size": 3, "max_steps": None, **keys})

    def launch(self, name, job, *arguments, code=0, timeout=240):
        """The folder of what it wrote, and what it printed."""
        model_dir = self.dir / name
        few = {"OMP_NUM_THREADS": "1"}  # tiny networks: threads would only wait for one another
        return model_dir, self.run_launch("--job", job, "--set", f"model_dir={model_dir}", "--set", "timeouts.join=60", *arguments,
                                          code=code, timeout=timeout, environment=few)

    def weights(self, model_dir, step, file="model.safetensors"):
        return load_file(model_dir / "checkpoints" / f"step-{step:08}" / file)

    def check_equal_weights(self, one, two, step):
        for file in sorted(path.name for path in (one / "checkpoints" / f"step-{step:08}").glob("*.safetensors")):
            a, b = self.weights(one, step, file), self.weights(two, step, file)
            self.assertEqual(set(a), set(b))
            for name in a:
                self.assertEqual(a[name].tobytes(), b[name].tobytes(), f"{file}: {name}")

    def test_the_cycle_loss_falls_whatever_the_number_of_members(self):
        folder = self.domains("domains", "--size", SIZE, "--count", 13, 11, "--test-count", 6)
        job = self.gan(folder, epochs=8, summary={"every_steps": 1}, checkpoint={"every_epochs": 4}, args={"grid_epochs": 4})
        runs = {members: self.launch(f"of-{members}", job, "--workers", members - 1)[0] for members in (1, 2, 3)}
        for members, run in runs.items():
            for net in "GF":
                fell = curve(run, "train", f"epoch_loss_{net}/cycle")
                self.assertEqual(len(fell), 8)
                self.assertLess(fell[32], fell[4], f"loss_{net}/cycle on {members}")
            metrics = result(run)["metrics"]
            self.assertEqual(set(metrics["train"]), TEN | {"loss"})
            self.assertEqual(set(metrics["test"]), TEN | ERRORS | {"loss"})
            test = metrics["test"]
            self.assertAlmostEqual(test["loss_G/total"], sum(test[f"loss_G/{part}"] for part in ("loss", "cycle", "identity")), delta=1e-5)
            self.assertAlmostEqual(test["loss_G/cycle"], 10 * test["MAE(Y, G(F(Y)))"], delta=1e-5)
            self.assertAlmostEqual(test["loss_F/identity"], 5 * test["MAE(X, F(X))"], delta=1e-5)
            self.assertEqual(len(curve(run, "test", "epoch_MAE(X, F(G(X)))")), 8)
            self.assertEqual(checkpoints(run), [16, 32])
            self.check_grids(run, folder)
        # At such a rate rounding grows from step to step, as it does in PyTorch between float32 and float64; with small steps it does not.
        self.check_equal_losses(runs, 1e-4, steps=3)
        plain = ("--set", "optimizer.name=sgd", "--set", "learning_rate=1e-6", "--set", "epochs=4")
        self.check_equal_losses({members: self.launch(f"plain-{members}", job, "--workers", members - 1, *plain)[0] for members in (1, 2, 3)}, 1e-5, steps=16)

    def test_the_job_in_examples(self):
        self.domains("domains", "--count", 4, "--test-count", 5)
        run, log = self.launch("run", SOURCE / "examples/cyclegan.json", "--workers", 1, "--set", f"folder={self.dir}", "--set", "epochs=2",
                               "--set", "program_args.width=4", "--set", "program_args.grid_epochs=2", "--set", "program_args.blocks=1")
        self.assertEqual(result(run)["steps"], 4)
        # A folder of pictures, translated.
        pictures = [sys.executable, SOURCE / "examples/pictures.py"]
        subprocess.run([*pictures, "pack", self.dir / "domains/testA", self.dir / "x.npy", "--size", "64"], check=True, timeout=60)
        subprocess.run([BIN / "muster", "predict", "--job", run / "job.json", "--input", self.dir / "x.npy", "--output", self.dir / "y.npy"],
                       check=True, timeout=60, capture_output=True)
        subprocess.run([*pictures, "unpack", self.dir / "y.npy", self.dir / "translated"], check=True, timeout=60)
        # The grid shows the same: its second column.
        (grid,) = [picture for (tag, _), picture in self.grids(run).items() if tag[5] == "x"]
        for i, path in enumerate(sorted((self.dir / "translated").iterdir())):
            got = numpy.asarray(Image.open(path)).astype(int)
            self.assertLessEqual(numpy.abs(got - grid[64 * i:64 * i + 64, 64:128]).max(), 1, path.name)

    def check_equal_losses(self, runs, tolerance, steps):
        want = losses(runs[1])
        for members, run in runs.items():
            found = losses(run)
            for step in range(1, steps + 1):
                self.assertAlmostEqual(found[step], want[step], delta=tolerance * want[step], msg=f"step {step} on {members}")

    def grids(self, run):
        """{(tag, step): picture} in TensorBoard."""
        found = {}
        for event in events(run / "train"):
            for value in event.summary.value:
                if value.tag.startswith("grid/"):
                    (png,) = value.tensor.string_val[2:]
                    found[value.tag, event.step] = numpy.asarray(Image.open(io.BytesIO(png)))
        return found

    def check_grids(self, run, folder):
        """Rows of the first five test pictures, which stay as they are, their translations, and those translated back."""
        grids = self.grids(run)
        self.assertEqual(set(grids), {(f"grid/{name}_translated_cycled", step) for name in "xy" for step in (16, 32)})
        for (tag, _), grid in grids.items():
            self.assertEqual(grid.shape, (5 * SIZE, 3 * SIZE, 3))
            for i, path in enumerate(sorted((folder / f"test{'A' if tag[5] == 'x' else 'B'}").iterdir())[:5]):
                numpy.testing.assert_array_equal(grid[SIZE * i:SIZE * i + SIZE, :SIZE], numpy.asarray(Image.open(path)), err_msg=f"{tag}, row {i}")
            self.assertGreater(grid[:, SIZE:2 * SIZE].std(), 1)
            self.assertGreater(numpy.abs(grid[:, SIZE:2 * SIZE].astype(int) - grid[:, 2 * SIZE:]).mean(), 1)
        x = "grid/x_translated_cycled"
        self.assertGreater(numpy.abs(grids[x, 16][:, SIZE:].astype(int) - grids[x, 32][:, SIZE:]).mean(), 1)

    def test_killed_in_the_middle_nothing_is_lost(self):
        folder = self.domains("domains", "--size", SIZE, "--count", 9, "--test-count", 2)
        job = self.gan(folder, epochs=6, deterministic=True, checkpoint={"every_epochs": 2})
        undisturbed, _ = self.launch("undisturbed", job, "--workers", 1)
        for member in "worker:0", "chief:0":
            killed, log = self.launch(f"killed-{member[:-2]}", job, "--workers", 1, "--restart", "on-failure", "--fault", f"kill@{member}:step=8")
            self.assertIn("kill at step 8", log)
            self.assertEqual(result(killed)["steps"], 18)
            self.check_equal_weights(undisturbed, killed, 18)

    def test_killed_with_pools_it_goes_on_from_its_checkpoint(self):
        folder = self.domains("domains", "--size", SIZE, "--count", 9, "--test-count", 2)
        job = self.gan(folder, epochs=6, deterministic=True, checkpoint={"every_epochs": 1}, args={"pool": 4})
        undisturbed, _ = self.launch("undisturbed", job, "--workers", 0)
        killed, log = self.launch("killed", job, "--workers", 0, "--restart", "on-failure", "--fault", "kill@chief:0:step=11")
        self.assertIn("going on after step 9", log)
        self.check_equal_weights(undisturbed, killed, 18)
        pools = self.weights(killed, 18, "replica_buffers.safetensors")
        self.assertEqual(pools["pools.x"].shape, (1, 4, 3, SIZE, SIZE))
        self.assertEqual(pools["pools.count_x"].tolist(), [4])
        without, _ = self.launch("without", self.gan(folder, epochs=6, deterministic=True), "--workers", 0)
        self.assertNotEqual(self.weights(without, 18)["X.model.0.weight"].tobytes(), self.weights(killed, 18)["X.model.0.weight"].tobytes())

    def test_parameter_servers(self):
        folder = self.domains("domains", "--size", SIZE, "--count", 8, "--test-count", 2)
        job = self.gan(folder, epochs=8, global_batch_size=4, args={"grid_epochs": 4})
        run, _ = self.launch("ps", job, "--workers", 2, "--ps", 2)
        fell = curve(run, "train", "epoch_loss_F/cycle")
        self.assertLess(fell[max(fell)], fell[min(fell)])
        self.assertEqual(set(result(run)["metrics"]["test"]), TEN | ERRORS | {"loss"})
        self.assertIn("grid/y_translated_cycled", {value.tag for event in events(run / "train") for value in event.summary.value})
        pooled = self.gan(folder, epochs=8, args={"pool": 2})
        _, log = self.launch("pooled", pooled, "--workers", 2, "--ps", 1, code=1)
        self.assertRegex(log, r'buffer "pools\.\w+" is declared kPerReplica, which parameter servers cannot save')

    def test_steps_of_uneven_folders_with_a_bar_for_each_pass(self):
        """1,067 and 1,334 pictures in sixes are 178 steps, 120 and 140 are 20; of the last five three replicas have 2, 2 and 1."""
        folder = self.dir / "domains"
        draw = numpy.random.default_rng(3)
        for name, count in ("trainA", 1067), ("trainB", 1334), ("testA", 120), ("testB", 140):
            (folder / name).mkdir(parents=True)
            for i in range(count):
                Image.fromarray(draw.integers(0, 256, (24, 24, 3), dtype=numpy.uint8)).save(folder / name / f"{i:04}.png", compress_level=1)
        job = self.gan(folder, global_batch_size=6, epochs=1, args={"width": 1, "discriminator_width": 1, "blocks": 0, "pool": 400})
        run = self.dir / "run"
        # A terminal is drawn ten times a second, which may be less often than there are passes here: the pause before the pass makes
        # its first batch worth a drawing.
        shown = self.on_a_terminal([BIN / "muster", "launch", "--workers", "2", "--job", job, "--set", f"model_dir={run}",
                                    "--fault", "delay=1s@chief:0:step=178:phase=evaluate"])
        self.assertEqual(result(run)["steps"], 178)
        # Pools count what each replica saw.
        pools = self.weights(run, 178, "replica_buffers.safetensors")
        for name in "pools.count_x", "pools.count_y":
            self.assertEqual(pools[name].tolist(), [177 * 2 + 2, 177 * 2 + 2, 177 * 2 + 1])
        self.assertIn("examples: train 1,067, test 120", shown)
        self.assertRegex(shown, r"epoch 1/1\D*\d+/178")
        self.assertRegex(shown, r"test\D*\d+/20\b")

    def on_a_terminal(self, command, timeout=240):
        """The output of a program, which ends with exit code 0."""
        here, there = pty.openpty()
        process = subprocess.Popen(command, stdout=there, stderr=there, env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "OMP_WAIT_POLICY": "passive"})
        os.close(there)
        shown, deadline = b"", time.monotonic() + timeout
        try:
            while time.monotonic() < deadline:
                if not select.select([here], [], [], 1)[0]:
                    continue
                try:
                    piece = os.read(here, 65536)
                except OSError:  # nobody has the other end any more
                    break
                shown += piece
            self.assertEqual(process.wait(30), 0, shown.decode(errors="replace"))
        finally:
            process.kill()
            process.wait()
            os.close(here)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode(errors="replace"))

    def test_bad_pictures(self):
        folder = self.domains("domains", "--size", SIZE, "--count", 3, "--test-count", 2)

        def refused(job, code, *said):
            process = self.start(None, None, job, [f"model_dir={self.dir / 'refused'}"])
            self.finish([process], code=code)
            (line,) = [line for line in process.output().splitlines() if " E" in line[:16] or line.startswith("muster")]
            for words in said:
                self.assertIn(words, line)

        refused(self.gan(folder, size=20), 2, "pictures of data.train must be 24 pixels or more high and wide, in multiples of 4, and are x [3,20,20], y [3,20,20]")
        second = folder / "trainB/00001.png"
        Image.new("RGB", (24, 20)).save(second)
        refused(self.gan(folder), 3, "trainB/00001.png' gives uint8 of shape [3, 20, 24], and the first example's is uint8 of shape [3, 24, 24]")
        second.write_text("no picture")
        refused(self.gan(folder), 3, "trainB/00001.png'")
        Image.new("RGB", (24, 24)).save(second)
        for path in (folder / "testB").iterdir():
            path.unlink()
        refused(self.gan(folder), 3, "testB")
        (folder / "testB").rmdir()
        refused(self.gan(folder), 3, "data.test.y", "testB")
        self.assertEqual(list((self.dir / "refused").glob("checkpoints/step-*")), [])


if __name__ == "__main__":
    unittest.main()
