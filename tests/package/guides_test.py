"""docs/from_*.md as a new user tries them: their code is that of examples/guides, which is built, trained for a few steps, and gives
the numbers that Keras and PyTorch give.

  guides_test.py   (MUSTER_BIN_DIR: where the binaries are, MUSTER_CMAKE: cmake, MUSTER_TOOLS_VENV: where Keras is)
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import numpy
import torch
from safetensors.torch import save_file

from outside import BIN, BUILD, SOURCE, OutsideTest
from harness import result

GUIDES = SOURCE / "examples" / "guides"
DATA = "/usr/share/datasets/fashion-mnist"
TYPES = {"python": "*.py", "json": "*.json", "cpp": "*.cc"}


class Pages(unittest.TestCase):
    def test_code_is_that_of_the_files(self):
        for folder in sorted(GUIDES.iterdir()):
            page = (SOURCE / "docs" / f"{folder.name}.md").read_text()
            blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
            self.assertGreater(len(blocks), 5, folder.name)
            for kind, code in blocks:
                texts = [path.read_text() for path in folder.glob(TYPES[kind])]
                self.assertTrue(any(f"\n{code}" in f"\n{text}" for text in texts), f"docs/{folder.name}.md has what no file of {folder} has:\n{code}")

    def test_keys_and_files_that_pages_name(self):
        """Every file of a guide is one that its page names, but for what CMake needs."""
        for folder in sorted(GUIDES.iterdir()):
            page = (SOURCE / "docs" / f"{folder.name}.md").read_text()
            for path in folder.iterdir():
                if path.name != "CMakeLists.txt":
                    self.assertIn(path.name, page, f"docs/{folder.name}.md")


class Guide(OutsideTest):
    name = None

    def setUp(self):
        super().setUp()
        self.project = self.dir / self.name
        shutil.copytree(GUIDES / self.name, self.project)
        if (self.project / "program.cc").exists():
            self.build_project(self.project, self.project / "build", BUILD)

    def muster(self, program, *arguments, code=0):
        return self.run_command(BIN / program, *arguments, cwd=self.project, code=code, environment={"OMP_WAIT_POLICY": "passive"})

    def python(self, *arguments, **environment):
        return self.run_command(sys.executable, *arguments, cwd=self.project, environment={"OMP_NUM_THREADS": "1", **environment})


class FromPyTorch(Guide):
    name = "from_pytorch"

    def losses(self, job, *sets):
        """The losses of two epochs, like the output of PyTorch's script, from a job of two members."""
        model_dir = self.project / "runs" / job
        log = self.muster("muster", "launch", "--workers", 1, "--job", job, "--set", "epochs=2", "--set", f"model_dir={model_dir}",
                          *(word for setting in sets for word in ("--set", setting)))
        train = re.findall(r"epoch \d/2: loss (\S+), accuracy (\S+),", log)
        validation = re.findall(r"epoch \d/2 validation: loss (\S+), accuracy (\S+),", log)
        self.assertEqual(len(train), 2, log)
        return [[float(value) for value in line] for line in map(lambda a, b: a + b, train, validation)]

    def test_both_ways_print_what_the_script_prints(self):
        self.muster("muster", "check", "--job", "job.json")
        self.python("export.py")
        self.muster("muster", "check", "--job", "exported.json")
        # Its exit code does not count: gloo's threads now and then abort a process that is at its end.
        script = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py", "--no-shuffle", "--examples", "2000", "--epochs", "2"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        printed = subprocess.run(script, cwd=self.project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300).stdout
        want = [[float(v) for v in line] for line in re.findall(r"epoch \d: loss (\S+), accuracy (\S+), validation loss (\S+), accuracy (\S+)", printed)]
        self.assertEqual(len(want), 2, printed)
        self.assertLess(want[1][0], want[0][0])
        numpy.testing.assert_allclose(self.losses("exported.json", "data.train.shuffle=false", "data.train.take=2000"), want, atol=2e-3)
        # The program in C++ begins with the weights of Python's, under Python's names.
        save_file({name: tensor.contiguous() for name, tensor in torch.export.load(self.project / "net.pt2").state_dict.items()},
                  self.project / "net.safetensors")
        args = json.dumps({"shuffle": False, "examples": 2000})
        numpy.testing.assert_allclose(self.losses("job.json", f"program_args={args}", 'load={"net": "net.safetensors"}'), want, atol=2e-3)


class FromKeras(Guide):
    name = "from_keras"

    def keras(self, script):
        tools = os.environ["MUSTER_TOOLS_VENV"]
        (packages,) = pathlib.Path(tools).glob("lib/python3*/site-packages")
        return self.python(script, KERAS_BACKEND="torch", PYTHONPATH=str(packages))

    def test_as_the_page_goes(self):
        self.keras("export.py")
        job = ["--job", "job.json", "--set", "data.train.take=1280"]
        self.assertIn("no problem was found", self.muster("muster", "check", *job))
        log = self.muster("muster-worker", *job, "--set", "epochs=4")
        self.assertIn("Number of devices: 2", log)
        self.assertIn("parameters: model 347,146", log)
        self.assertEqual(re.findall(r"epoch (\d): learning rate (\S+)", log), [("1", "0.001"), ("2", "0.001"), ("3", "0.001"), ("4", "0.0001")])
        model_dir = self.project / "runs" / "fashion"
        self.assertEqual(sorted(p.name for p in model_dir.glob("*.safetensors")), [f"ckpt_{epoch}.safetensors" for epoch in (1, 2, 3, 4)])
        test = result(model_dir)["metrics"]["test"]
        # With and without a strategy.
        for more in ["--checkpoint", model_dir / "ckpt_4.safetensors"], ["--set", "devices=cpu"]:
            got = json.loads(self.muster("muster", "evaluate", *job, "--json", *more))["metrics"]
            self.assertAlmostEqual(got["loss"], test["loss"], delta=1e-5)
            self.assertAlmostEqual(got["accuracy"], test["accuracy"], delta=1e-9)
        # Keras evaluates and predicts the same.
        self.muster("muster", "export", "--job", "job.json", "--checkpoint", "latest", "--output", "fashion.safetensors")
        printed = self.keras("load.py")
        (loss, accuracy), = re.findall(r"Eval loss: (\S+), Eval accuracy: (\S+)", printed)
        self.assertAlmostEqual(float(loss), test["loss"], delta=1e-4)
        self.assertAlmostEqual(float(accuracy), test["accuracy"], delta=1e-4)
        self.muster("muster", "predict", *job, "--input", "images.npy", "--output", "logits.npy")
        self.assertIn(str(numpy.load(self.project / "logits.npy").argmax(1)), printed)
        # Training continues under another strategy, and on a cluster that TF_CONFIG describes.
        log = self.muster("muster", "launch", "--workers", 2, "--ps", 1, *job, "--set", "devices=cpu", "--set", "epochs=5")
        self.assertIn("the end of epoch 4", log)
        self.assertIn("epoch 5: learning rate 0.0001", log)
        log = self.muster("muster", "launch", "--workers", 2, "--no-chief", *job, "--set", "devices=cpu", "--set", "epochs=1", "--set", "model_dir=runs/two")
        self.assertIn("global batch 128 on 2 replicas in 2 processes", log)

    def test_a_model_with_dropout(self):
        self.keras("export_training.py")
        job = ["--job", "job.json", "--set", "model_dir=run"]
        self.muster("muster-worker", *job, "--set", "max_steps=40", "--set", "data.train.take=5120")
        model_dir = self.project / "run"
        got = [json.loads(self.muster("muster", "evaluate", *job, "--json", "--set", f"devices={devices}"))["metrics"]["loss"] for devices in ("cpu", "cpu:2")]
        self.assertAlmostEqual(got[0], got[1], delta=1e-5, msg="dropout is off")
        self.assertLess(got[0], result(model_dir)["metrics"]["train"]["loss"])

    def test_weights_that_were_written_as_constants(self):
        script = self.project / "export.py"
        script.write_text(script.read_text().replace("strict=True", "strict=False"))
        self.keras("export.py")
        printed = self.muster("muster", "check", "--job", "job.json", code=2)
        self.assertIn("depends on no parameter that requires a gradient", printed)
        self.assertIn("strict=True", printed)


class FromCustomLoop(Guide):
    name = "from_custom_loop"

    def test_two_replicas_of_a_process_and_two_processes_print_the_same(self):
        self.muster("muster", "check", "--job", "job.json")
        split = {"format": "idx", "take": 1000}
        few = {name: {**split, "x": {"path": f"{DATA}/{file}-images-idx3-ubyte.gz", "scale": "1/255", "shape": [1, 28, 28]},
                      "y": {"path": f"{DATA}/{file}-labels-idx1-ubyte.gz", "dtype": "int64"}} for name, file in {"train": "train", "test": "t10k"}.items()}
        some = ["--job", "job.json", "--set", "epochs=2", "--set", f"data={json.dumps(few)}"]
        logs = [self.muster("muster-worker", *some),
                self.muster("muster", "launch", "--workers", 2, "--no-chief", *some, "--set", "devices=cpu", "--set", "model_dir=runs/two")]
        lines = [re.findall(r"Epoch (\d+), Loss: (\S+), Accuracy: (\S+), Test Loss: (\S+), Test Accuracy: (\S+)", log) for log in logs]
        self.assertEqual([line[0] for line in lines[0]], ["1", "2"], logs[0])
        one, two = (numpy.array(found, float) for found in lines)
        numpy.testing.assert_allclose(two, one, rtol=2e-3, atol=2e-3)
        # The loop's counts equal the metrics.
        got = result(self.project / "runs" / "custom_loop")["metrics"]
        numpy.testing.assert_allclose(one[1][1:], [got["train"]["loss"], 100 * got["train"]["accuracy"], got["test"]["loss"], 100 * got["test"]["accuracy"]],
                                      atol=6e-3)
        self.assertLess(one[1][1], one[0][1])


if __name__ == "__main__":
    unittest.main()
