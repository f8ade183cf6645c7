"""Programs outside the tree: built with find_package(Muster) alone, trained by one, two and three members, resumed, killed once.

  programs_test.py   (MUSTER_BIN_DIR: where the binaries are, MUSTER_CMAKE: cmake)
"""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from outside import BUILD, CMAKE
from harness import ClusterTest, checkpoints, curve, losses, result

HERE = pathlib.Path(__file__).resolve().parent / "programs"
PROGRAMS = None  # where the built programs are


def setUpModule():
    global PROGRAMS
    PROGRAMS = pathlib.Path(tempfile.mkdtemp(prefix="muster-outside-"))
    for command in ([CMAKE, "-S", str(HERE), "-B", str(PROGRAMS), "-DCMAKE_BUILD_TYPE=Release", f"-DMuster_ROOT={BUILD}"],
                    [CMAKE, "--build", str(PROGRAMS), "--parallel", "2"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")


def tearDownModule():
    shutil.rmtree(PROGRAMS)


def saved(model_dir, step, file="model.safetensors"):
    from safetensors.numpy import load_file
    return load_file(model_dir / "checkpoints" / f"step-{step:08}" / file)


class Programs:
    """Tests that each of the four programs must pass; the classes below name the program."""
    program, keys, steps = None, {}, 24

    def job_of(self, name, **keys):
        model_dir = self.dir / name
        return model_dir, self.job(**{"program": str(PROGRAMS / f"{self.program}.so"), "epochs": None, "max_steps": self.steps, "global_batch_size": 7,
                                      "model_dir": str(model_dir), "summary": {"every_steps": 1}, **self.keys, **keys})

    def run_to_end(self, members, job):
        if members == 1:
            self.finish([self.start(None, None, job)])
        else:
            self.finish(self.start_all(self.cluster(members - 1), job))

    def same(self, got_dir, want_dir, step, tolerance):
        import numpy
        for file in "model.safetensors", "optimizer.safetensors":
            got, want = saved(got_dir, step, file), saved(want_dir, step, file)
            self.assertEqual(sorted(got), sorted(want))
            for name, values in want.items():
                if tolerance == 0:
                    self.assertEqual(got[name].tobytes(), values.tobytes(), f"{file}: {name}")
                else:
                    numpy.testing.assert_allclose(got[name], values, rtol=tolerance, atol=tolerance, err_msg=f"{file}: {name}")

    def test_two_and_three_members_equal_one(self):
        one, job = self.job_of("one")
        self.run_to_end(1, job)
        expected = losses(one)
        self.assertEqual(sorted(expected), list(range(1, self.steps + 1)))
        for members in 2, 3:
            several, job = self.job_of(f"of-{members}")
            self.run_to_end(members, job)
            got = losses(several)
            self.assertEqual(sorted(got), sorted(expected))
            for step, loss in expected.items():
                self.assertAlmostEqual(got[step], loss, delta=2e-5, msg=f"step {step} of {members} members")
            self.same(several, one, self.steps, 2e-4)

    def test_a_stopped_run_goes_on_exactly(self):
        whole, job = self.job_of("whole")
        self.run_to_end(2, job)
        parts, job = self.job_of("parts", max_steps=self.steps // 2 + 1)
        self.run_to_end(2, job)
        _, job = self.job_of("parts")
        self.run_to_end(2, job)
        self.same(parts, whole, self.steps, 0)
        self.assertEqual(curve(parts), curve(whole))

    def test_killed_once_it_ends_as_if_it_had_not_been(self):
        whole, job = self.job_of("whole")
        self.run_to_end(2, job)
        killed, job = self.job_of("killed")
        printed = self.run_launch("--workers", 1, "--restart", "always", "--job", job, "--fault", f"kill@worker:0:step={self.steps // 2}:phase=forward",
                               timeout=90)
        self.assertIn("kill", printed)
        self.same(killed, whole, self.steps, 0)
        self.assertEqual(curve(killed), curve(whole))


class Classifier(Programs, ClusterTest):
    program, keys = "classifier", {"program_args": {"hidden": 8}, "global_batch_size": 40}

    def test_learns(self):
        model_dir, job = self.job_of("learns", epochs=100, max_steps=None, summary={"every_steps": 50}, program_args={"hidden": 32})
        self.run_to_end(2, job)
        self.assertGreater(result(model_dir)["metrics"]["validation"]["accuracy"], 0.9)


class Sequence(Programs, ClusterTest):
    program = "sequence"

    def test_groups_and_weights_change_the_result(self):
        with_groups, job = self.job_of("with")
        self.run_to_end(1, job)
        without, job = self.job_of("without", optimizer={"name": "adamw", "weight_decay": 0.1, "groups": []})
        self.run_to_end(1, job)
        a, b = saved(with_groups, self.steps), saved(without, self.steps)
        self.assertFalse((a["head.bias"] == b["head.bias"]).all())


class Gan(Programs, ClusterTest):
    program = "gan"

    def test_one_after_another_is_another_result(self):
        at_once, job = self.job_of("at-once")
        self.run_to_end(1, job)
        in_turn, job = self.job_of("in-turn", program_args={"at_once": False})
        self.run_to_end(1, job)
        self.assertEqual(len(losses(in_turn)), self.steps)
        self.assertFalse((saved(at_once, self.steps)["f.first.weight"] == saved(in_turn, self.steps)["f.first.weight"]).all())


class Bandit(Programs, ClusterTest):
    program = "bandit"

    def test_finishes_when_it_is_good_enough(self):
        model_dir, job = self.job_of("good", max_steps=400, global_batch_size=32, program_args={"enough": 0.25})
        self.run_to_end(2, job)
        steps = result(model_dir)["steps"]
        self.assertEqual(result(model_dir)["status"], "completed")
        self.assertLess(steps, 400)
        self.assertEqual(checkpoints(model_dir)[-1], steps)
        self.assertGreaterEqual(curve(model_dir, tag="reward")[steps], 0.25)
        # A later start trains no further.
        self.run_to_end(2, job)
        self.assertEqual(result(model_dir)["steps"], steps)


if __name__ == "__main__":
    unittest.main()
