"""Real processes that train on one GPU, each a host to NCCL: numbers, losses of processes, saves and resumption, bit for bit.

The same tests run on the CPU, so that all but CUDA and NCCL is tested on every host. Without a GPU the others are skipped, which
MUSTER_REQUIRE_GPU=1 forbids.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster" / "base"))
import harness  # noqa: E402
from harness import BIN, ClusterTest, checkpoints, curve, result, tensors, write_idx  # noqa: E402
from recurrence import recurrence  # noqa: E402

GPU = pathlib.Path("/dev/nvidiactl").exists()
EXAMPLES, BATCH, EPOCHS = 1000, 64, 4  # 16 steps an epoch, of which the last is short
STEPS = EPOCHS * 16


class OnTheCpu(ClusterTest):
    DEVICES, PRECISIONS = "cpu", ["bfloat16"]
    references = {}  # of devices and members: what undisturbed() returned

    def setUp(self):
        if self.DEVICES == "cuda" and not GPU:
            if int(os.environ.get("MUSTER_REQUIRE_GPU", "0")) > 0:
                self.fail("MUSTER_REQUIRE_GPU is set, and this host has no GPU")
            self.skipTest("this host has no GPU")
        super().setUp()

    def pictures(self):
        """Four classes of bright squares, as Fashion-MNIST's files."""
        folder = self.dir / "pictures"
        if not folder.exists():
            folder.mkdir()
            random = numpy.random.default_rng(7)
            for name, count in ("train", EXAMPLES), ("t10k", 200):
                labels = random.integers(0, 4, count).astype(numpy.uint8)
                images = random.integers(0, 100, (count, 28, 28)).astype(numpy.uint8)
                for image, label in zip(images, labels):
                    image[14 * (label // 2):14 * (label // 2) + 14, 14 * (label % 2):14 * (label % 2) + 14] += 60
                write_idx(folder / f"{name}-images-idx3-ubyte", images)
                write_idx(folder / f"{name}-labels-idx1-ubyte", labels)
        return folder

    def convnet(self, name, **keys):
        """A job that a second run, whole or not, repeats bit for bit."""
        self.model_dir = self.dir / name
        return self.job(**{"program": "fashion_mnist", "program_args": {"data_dir": str(self.pictures()), "validation": 0}, "max_steps": None,
                           "epochs": EPOCHS, "global_batch_size": BATCH, "optimizer": "adam", "learning_rate": 0.003, "seed": 3, "devices": self.DEVICES,
                           "deterministic": True, "checkpoint": {"every_steps": 8}, "model_dir": str(self.model_dir), **keys})

    def final(self):
        return {f"{file} {name}": values.tobytes() for file in ("model.safetensors", "optimizer.safetensors")
                for name, values in tensors(self.model_dir, STEPS, file).items()}

    def undisturbed(self, members):
        job = self.convnet(f"undisturbed-{members}")
        if members == 1:
            processes = [self.start(None, None, job)]
        else:
            processes = self.start_all(self.cluster(members - 1), job)
        self.finish(processes, 200)
        self.assertEqual(result(self.model_dir)["status"], "completed")
        return {"loss": curve(self.model_dir), "files": self.final()}

    def reference(self, members):
        """One for all tests: they compare with it alone."""
        key = self.DEVICES, members
        if key not in self.references:
            self.references[key] = self.undisturbed(members)
        return self.references[key]

    def check_same(self, want):
        self.assertEqual(result(self.model_dir)["status"], "completed")
        self.assertEqual(sorted(curve(self.model_dir)), list(range(1, STEPS + 1)))
        self.assertEqual(curve(self.model_dir), want["loss"])
        self.assertEqual(self.final(), want["files"])

    def replaced(self, victim, fault):
        """Two members, of which one ends in the middle of training, and another process in its place."""
        want = self.reference(2)
        cluster, job = self.cluster(1), self.convnet("disturbed")
        members = {member.name: member for member in self.start_all(cluster, job, faults=[fault])}
        self.assertEqual(members[victim].wait(120), -9, members[victim].output())
        members[victim] = self.start(cluster, victim, job)
        self.finish(members.values(), 200)
        self.check_same(want)
        self.assertEqual(result(self.model_dir)["recovery"]["losses"], 1)

    # ---- Numbers

    def test_linear_follows_its_recurrence_on_one_and_two(self):
        ones = numpy.ones(1000)
        job = self.job(max_steps=60, epochs=2, devices=self.DEVICES, program_args={"kernel_init": 0.7, "bias_init": -0.2})
        want = recurrence(0.7, -0.2, ones, ones, 60)
        for members in 1, 2:
            got = self.train(members, job, timeout=200)
            self.assertEqual(sorted(got), list(range(1, 61)))
            self.assertLessEqual(max(abs(got[i + 1] - w) for i, w in enumerate(want)), 1e-6, f"{members} members")

    def test_a_convnet_learns_the_same_on_one_and_two(self):
        alone, two = self.undisturbed(1), self.undisturbed(2)
        for step, loss in alone["loss"].items():
            self.assertAlmostEqual(two["loss"][step], loss, delta=1e-3 * max(1, loss), msg=f"step {step}")
        self.assertLess(alone["loss"][STEPS], 0.1 * alone["loss"][1])
        self.assertGreater(result(self.model_dir)["metrics"]["test"]["accuracy"], 0.95)

    def test_mixed_precision_learns_too(self):
        for precision in self.PRECISIONS:
            with self.subTest(precision=precision):
                job = self.convnet(precision, precision=precision, deterministic=False)
                self.finish(self.start_all(self.cluster(1), job), 200)
                self.assertLess(curve(self.model_dir)[STEPS], 0.2 * curve(self.model_dir)[1])

    # ---- Losses of processes

    def test_a_worker_is_killed_and_replaced(self):
        self.replaced("worker:0", "kill@worker:0:step=20:phase=reduce")

    def test_the_chief_is_killed_and_replaced(self):
        self.replaced("chief:0", "kill@chief:0:step=21:phase=update")

    def test_a_worker_that_stands_still_is_named_and_the_job_goes_on(self):
        """After the deadline of a reduction; what stood still comes back, and is a member again."""
        want = self.reference(2)
        job = self.convnet("disturbed", timeouts={"collective": 4, "heartbeat": 4})
        members = self.start_all(self.cluster(1), job, faults=["stop@worker:0:step=20:for=12s"])
        self.finish(members, 200)
        self.assertRegex(members[0].output(), r"W chief 0 \| .*worker 0 .*(timeouts\.|heartbeat|answer)")
        self.check_same(want)

    def test_everybody_is_killed_and_started_again(self):
        want = self.reference(2)
        job = self.convnet("disturbed")
        members = self.start_all(self.cluster(1), job, faults=["delay=60s@*:step=30"])
        members[0].wait_for("saved step", 120)
        for member in members:
            member.wait_for("fault 1", 120)
            member.signal(signal.SIGKILL)
            member.wait(10)
        members = self.start_all(self.cluster(1), job)
        # A save that is due while another is written is left out.
        members[0].wait_for(f"going on after step {checkpoints(self.model_dir)[-1]} ", 120)
        self.finish(members, 200)
        self.check_same(want)

    def test_a_stop_on_request_saves_and_the_next_run_goes_on(self):
        want = self.reference(1)
        job = self.convnet("disturbed")
        process = self.start(None, None, job, faults=["delay=2s@*:step=20"])
        process.wait_for("fault 1", 120)
        harness.ask_to_stop(process)
        self.finish([process], 120, code=harness.PREEMPTED)
        self.finish([self.start(None, None, job)], 200)
        self.check_same(want)

    # ---- Beside training

    def test_a_worker_of_parameter_servers(self):
        job = self.convnet("served", strategy="parameter_server", deterministic=False)
        cluster = self.cluster(1, chief=False, ps=2)
        self.finish([self.start(cluster, task, job, environment={} if task[0] == "w" else {"CUDA_VISIBLE_DEVICES": ""}, sets=[] if task[0] == "w" else ["devices=cpu"])
                     for task in ("worker:0", "ps:0", "ps:1")], 200)
        self.assertLess(curve(self.model_dir)[STEPS], 0.2 * curve(self.model_dir)[1])

    def test_evaluate_agrees_with_training(self):
        self.undisturbed(1)
        done = subprocess.run([str(BIN / "muster"), "evaluate", "--job", str(self.convnet("undisturbed-1"))], capture_output=True, text=True, timeout=200,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertAlmostEqual(float(re.search(r"loss +(\S+)", done.stdout + done.stderr)[1]), result(self.model_dir)["metrics"]["test"]["loss"], delta=1e-5)


class OnTheGpu(OnTheCpu):
    DEVICES, PRECISIONS = "cuda", ["bfloat16", "float16"]

    def test_launch_gives_each_member_its_gpus(self):
        launch = self.start_launch("--workers", "auto", "--job", self.convnet("launched", devices="auto"))
        self.finish([launch], 200)
        self.assertIn("replica 0 on cuda:0", launch.output())
        self.assertNotIn("on cpu", launch.output())

    def test_two_members_that_hold_one_gpu_are_refused(self):
        members = self.start_all(self.cluster(1), self.convnet("refused"), environment={"NCCL_HOSTID": ""})
        self.finish(members, 100, code=harness.CONFIGURATION)
        self.assertRegex(members[0].output(), r"chief 0 and worker 0 both hold GPU GPU-")


if __name__ == "__main__":
    harness.main()
