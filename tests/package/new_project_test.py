"""As a new user: `muster new`, build, train with two workers of which one is killed, load the weights; from the build folder,
and from an installed prefix that was moved."""
import json
import pathlib
import re
import subprocess
import unittest

import torch
from safetensors.torch import load_file

from outside import BIN, BUILD, SOURCE, OutsideTest


class NewProject(OutsideTest):
    def trained(self, project):
        result = json.loads((project / "run" / "result.json").read_text())
        self.assertEqual((result["status"], result["steps"]), ("completed", 785), result)
        self.assertGreater(result["metrics"]["test"]["accuracy"], 0.9)
        checkpoint = project / "run" / "checkpoints" / (project / "run" / "checkpoints" / "latest").read_text().strip()
        return load_file(checkpoint / "model.safetensors")

    def test_three_commands_from_the_build_folder(self):
        project = self.dir / "two_spirals"
        printed = self.run_command(BIN / "muster", "new", project)
        # What it says is what is done, but for the generator and the kill.
        self.assertIn(f"-DMuster_ROOT={BUILD}", printed)
        self.assertIn(f"{BIN}/muster launch --workers 2 --job job.json", printed)
        seconds = self.build_project(project, project / "build", BUILD)
        print(f"program.cc: {seconds:.1f} s of processor time, CMake included")
        log = self.run_command(BIN / "muster", "launch", "--workers", 2, "--job", "job.json", "--restart", "on-failure",
                               "--fault", "kill@worker:1:step=100", cwd=project)
        self.assertIn("worker 1", log)
        weights = self.trained(project)
        self.assertEqual({n: tuple(t.shape) for n, t in weights.items()},
                         {"first.weight": (64, 2), "first.bias": (64,), "second.weight": (64, 64), "second.bias": (64,),
                          "output.weight": (3, 64), "output.bias": (3,)})
        # They are those of a net that Python knows, and it knows the arms of the spiral.
        net = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
        net.load_state_dict({re.sub(r"^\w+", lambda m: {"first": "0", "second": "2", "output": "4"}[m[0]], n): t for n, t in weights.items()})
        labels, radius = torch.arange(300) % 3, torch.linspace(0.1, 0.95, 300)
        angle = (labels / 3 + radius) * 2 * torch.pi
        points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
        self.assertGreater((net(points).argmax(1) == labels).float().mean().item(), 0.95)
        # The project's own tests, and the same job again, which has nothing left to do.
        self.run_command("ctest", "--test-dir", project / "build", "--output-on-failure")
        self.assertIn("trained to its end", self.run_command(BIN / "muster", "launch", "--workers", 2, "--job", "job.json", cwd=project))
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
        self.build_project(other, other / "build", prefix)
        printed = self.run_command(prefix / "bin" / "muster", "check", "--job", other / "job.json")
        self.assertIn("nothing is refused", printed)
        self.assertIn("first.weight: Float [64, 2]", printed)

    def test_what_is_no_folder_for_a_project(self):
        (self.dir / "full").mkdir()
        (self.dir / "full" / "thesis.tex").write_text("")
        (self.dir / "file").write_text("")
        for arguments, words in [(["full"], "is not empty"), (["file"], "is a file"), (["a-b"], "'a-b' is no name"),
                                 (["x", "--name", "1st"], "'1st' is no name"), (["file/x"], "cannot")]:
            with self.subTest(arguments=arguments):
                printed = self.run_command(BIN / "muster", "new", *arguments, code=2)
                self.assertIn(words, printed)
                self.assertEqual(len(printed.splitlines()), 1, printed)
        self.assertFalse((self.dir / "x").exists() or (self.dir / "a-b").exists())
        self.assertEqual([p.name for p in (self.dir / "full").iterdir()], ["thesis.tex"])


if __name__ == "__main__":
    unittest.main()
