"""The steps of a new user: `muster new`, build, train with two workers of which one is killed, load the weights; from the build folder,
and from an installed prefix that was moved."""
import json
import os
import re
import sys
import time
import unittest

import numpy
import torch
from safetensors.torch import load_file

from outside import BIN, BUILD, CMAKE, SOURCE, OutsideTest

PARAMETERS = {"first.weight": (64, 2), "first.bias": (64,), "second.weight": (64, 64), "second.bias": (64,),
              "output.weight": (3, 64), "output.bias": (3,)}


def readme(project):
    """The commands of the project's README.md, block by block."""
    return re.findall(r"^```\n(.*?)^```$", (project / "README.md").read_text(), re.MULTILINE | re.DOTALL)


class NewProject(OutsideTest):
    def shell(self, project, commands, more=""):
        """Commands as they were copied, with the build's cmake and the bootstrap's python3 in the PATH; what they printed."""
        folders = [os.path.dirname(sys.executable), os.path.dirname(CMAKE), os.environ["PATH"]]
        environment = {"PATH": ":".join(folders), "CMAKE_CXX_COMPILER_LAUNCHER": ""}
        return self.run_command("bash", "-ec", commands.rstrip() + more, cwd=project, environment=environment)

    def check_headers(self, project):
        """Checks the headers that program.cc includes, by the file that the compiler wrote for make."""
        (written,) = (project / "build").rglob("program.cc.o.d")
        headers = written.read_text()
        self.assertIn("/muster/program.h", headers)
        for heavy in "torch/torch.h", "torch/all.h", "torch/nn/modules.h", "grpc", "google/protobuf":
            self.assertNotIn(f"/{heavy}", headers, "it doubles the time to compile a user's file")

    def trained(self, project, run="run"):
        result = json.loads((project / run / "result.json").read_text())
        self.assertEqual((result["status"], result["steps"]), ("completed", 785), result)
        self.assertGreater(result["metrics"]["test"]["accuracy"], 0.9)
        checkpoint = project / run / "checkpoints" / (project / run / "checkpoints" / "latest").read_text().strip()
        return load_file(checkpoint / "model.safetensors")

    def test_three_commands_from_the_build_folder(self):
        project = self.dir / "two_spirals"
        printed = self.run_command(BIN / "muster", "new", project)
        build, train, look, after, load = readme(project)
        # The command prints the commands of README.md.
        for command in build, train:
            self.assertIn(command.strip(), printed)
        started = time.monotonic()
        self.shell(project, build)
        self.shell(project, train)
        print(f"configured, built and trained in {time.monotonic() - started:.1f} s")
        self.check_headers(project)
        weights = self.trained(project)
        self.assertEqual({n: tuple(t.shape) for n, t in weights.items()}, PARAMETERS)
        self.assertEqual(sorted(self.shell(project, load).splitlines()), sorted(f"{n} {shape}" for n, shape in PARAMETERS.items()))
        printed = self.shell(project, look)
        self.assertIn("no problem was found", printed)
        self.assertIn("100% tests passed", printed)
        # With a worker that is killed on the way it ends with the same weights.
        log = self.shell(project, train, " --set model_dir=run2 --restart on-failure --fault kill@worker:1:step=100")
        self.assertIn("worker 1 was killed by SIGKILL", log)
        for name, tensor in self.trained(project, "run2").items():
            torch.testing.assert_close(tensor, weights[name], rtol=0, atol=0, msg=lambda m, n=name: f"{n}: {m}")
        # They are those of a net that Python knows, and it knows the arms of the spiral.
        net = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
        net.load_state_dict({re.sub(r"^\w+", lambda m: {"first": "0", "second": "2", "output": "4"}[m[0]], n): t for n, t in weights.items()})
        labels, radius = torch.arange(300) % 3, torch.linspace(0.1, 0.95, 300)
        angle = (labels / 3 + radius) * 2 * torch.pi
        points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
        self.assertGreater((net(points).argmax(1) == labels).float().mean().item(), 0.95)
        # The program's own predictions are Python's, and its evaluation is training's.
        numpy.save(project / "points.npy", points.numpy())
        printed = self.shell(project, after)
        self.assertIn("test: 2,000 examples", printed)
        best = project / "run" / "checkpoints" / (project / "run" / "checkpoints" / "best").read_text().split("\n")[0]
        net.load_state_dict({re.sub(r"^\w+", lambda m: {"first": "0", "second": "2", "output": "4"}[m[0]], n): t
                             for n, t in load_file(best / "model.safetensors").items()})
        torch.testing.assert_close(torch.from_numpy(numpy.load(project / "logits.npy")), net(points).detach(), rtol=1e-4, atol=1e-5)
        # The same job again has nothing left to do.
        self.assertIn("trained to its end", self.shell(project, train))
        self.check_a_moved_prefix(project)

    def check_a_moved_prefix(self, project):
        """The program that was built against the build folder trains under an installed Muster, wherever that lies; and a new
        project configures against it."""
        prefix = self.install()
        for path in sorted(prefix.rglob("*")):
            if path.is_file() and not path.is_symlink():
                content = path.read_bytes()
                for tree in SOURCE, BUILD, self.dir / "prefix":
                    self.assertNotIn(str(tree).encode() + b"/", content, f"{path} names {tree}")
        headers = sorted(p.relative_to(prefix / "include").as_posix() for p in (prefix / "include").rglob("*.h"))
        self.assertIn("muster/program.h", headers)
        self.assertEqual([h for h in headers if not re.fullmatch(r"muster/\w+\.h", h)], [])
        self.run_command(prefix / "bin" / "muster", "launch", "--workers", 1, "--job", project / "job.json", "--set", "max_steps=20",
                         "--set", f"model_dir={self.dir / 'prefixed'}")
        self.assertEqual(json.loads((self.dir / "prefixed" / "result.json").read_text())["steps"], 20)
        other = self.dir / "other"
        printed = self.run_command(prefix / "bin" / "muster", "new", other, "--name", "my_model")
        self.assertIn(f"-DMuster_ROOT={prefix}", printed)
        self.shell(other, readme(other)[0])
        printed = self.run_command(prefix / "bin" / "muster", "check", "--job", other / "job.json")
        self.assertIn("no problem was found", printed)
        self.assertIn("first.weight: Float [64, 2]", printed)
        self.check_a_built_in_program(prefix)

    def check_a_built_in_program(self, prefix):
        """`linear` is written as anybody's program is: it builds against a prefix, and trains as the one that is built in."""
        build, losses = self.dir / "linear", []
        self.build_project(SOURCE / "tests" / "package" / "linear", build, prefix)
        for program in build / "linear.so", "linear":
            model_dir = self.dir / f"linear-{len(losses)}"
            job = self.job(program=str(program), max_steps=1, program_args={"kernel_init": 0.5}, model_dir=str(model_dir))
            self.run_command(prefix / "bin" / "muster-worker", "--job", job)
            result = json.loads((model_dir / "result.json").read_text())
            self.assertEqual((result["status"], result["steps"]), ("completed", 1))
            losses.append(result["metrics"]["train"]["loss"])
        self.assertEqual(losses[0], losses[1])

    def test_what_is_no_folder_for_a_project(self):
        (self.dir / "full").mkdir()
        (self.dir / "full" / "thesis.tex").write_text("")
        (self.dir / "file").write_text("")
        for arguments, words in [(["full"], "is not empty"), (["file"], "is a file"), (["a-b"], "'a-b' is not a valid program name"),
                                 (["x", "--name", "1st"], "'1st' is not a valid program name"), (["file/x"], "cannot")]:
            with self.subTest(arguments=arguments):
                printed = self.run_command(BIN / "muster", "new", *arguments, code=2)
                self.assertIn(words, printed)
                self.assertEqual(len(printed.splitlines()), 1, printed)
        self.assertFalse((self.dir / "x").exists() or (self.dir / "a-b").exists())
        self.assertEqual([p.name for p in (self.dir / "full").iterdir()], ["thesis.tex"])


if __name__ == "__main__":
    unittest.main()
