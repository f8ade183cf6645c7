"""A run of recording_worker: what it used, where it can be held, and what an undisturbed one gives."""
import itertools
import json
import pathlib
import signal
import subprocess
import time

from harness import BIN, ClusterTest, checkpoints, curve, tensors

WORKER = "../tests/recording_worker"
BATCH, EXAMPLES, EPOCHS = 6, 34, 4  # 6 steps an epoch, the last one short
STEPS_PER_EPOCH, STEPS = 6, 24


def wait_until(what, condition, timeout=30):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout} s")
        time.sleep(0.01)


class RecordingTest(ClusterTest):
    references = {}

    def setUp(self):
        super().setUp()
        self.model_dir = self.dir / "model"

    def run_job(self, **keys):
        job = {"program": "recording", "program_args": {"examples": EXAMPLES}, "global_batch_size": BATCH, "epochs": EPOCHS,
               "max_steps": None, "seed": 3, "model_dir": str(self.model_dir), "checkpoint": {"every_steps": 2},
               "learning_rate": {"name": "cosine", "initial": 0.05}}
        job.update(keys)
        return self.job(**job)

    def start_run(self, members, job, sets=(), directory=None, drain=False):
        """One start of it; what its steps use goes to a folder of its own. `drain`: training waits for each checkpoint."""
        where = self.dir / (directory or f"start-{len(self.processes)}")
        where.mkdir(exist_ok=True)
        self.where = where
        environment = {"MUSTER_TEST_DIR": str(where)}
        if drain:
            environment["MUSTER_TEST_DRAIN"] = "1"
        if members == 1:
            return [self.start(None, None, job, sets, environment, WORKER)]
        cluster = self.cluster(members, chief=False)
        # For a task whose process was lost.
        self.start_again = lambda i, **more: self.start(cluster, f"worker:{i}", job, sets, {**environment, **more}, WORKER)
        return [self.start_again(i) for i in range(members)]

    def hold(self, moment, directory):
        """To be called before the start that it is for."""
        where = self.dir / directory
        where.mkdir(exist_ok=True)
        (where / f"hold-{moment}").write_text("")

    def wait_held(self, moment):
        wait_until(f"held at {moment}", (self.where / f"held-{moment}").exists)

    def release(self, moment):
        (self.where / f"hold-{moment}").unlink()

    def wait_reported(self, step):
        """Until the chief has heard of this step, or of a later one: members report after their first one, then once a second."""
        command = [BIN / "muster", "status", self.model_dir, "--json"]

        def reported():
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)
            return done.returncode == 0 and max(task["step"] for task in json.loads(done.stdout)["tasks"]) >= step
        wait_until(f"step {step} reported", reported)

    def wait_saved(self, step):
        """Waits for this step's checkpoint or a later one, because a run that continues deletes old ones soon."""
        wait_until(f"step {step} saved", lambda: max(checkpoints(self.model_dir), default=-1) >= step)

    def kill_all(self, processes):
        for process in processes:
            process.signal(signal.SIGKILL)
        for process in processes:
            process.wait(10)

    def used(self, where):
        """{step: its examples, sorted} of one start. An interrupted step is written again by the process that repeats it,
        so the last line of a step counts; but a process that was lost, or left, or did not come back in time, has not done its very
        last one, if the others cover that step."""
        files = []
        for file in pathlib.Path(where).glob("used-*"):
            lines = [list(map(int, line.split())) for line in file.read_text().splitlines()]
            files.append({step: examples for step, *examples in lines})
        used = {}
        for step in set().union(*files):
            batch = min(BATCH, EXAMPLES - (step - 1) % STEPS_PER_EPOCH * BATCH)
            sure = sum((f[step] for f in files if step in f and step < max(f)), [])
            perhaps = [f[step] for f in files if step in f and step == max(f)]
            tries = (sure + sum(some, []) for n in range(len(perhaps) + 1) for some in itertools.combinations(perhaps, n))
            whole = [examples for examples in tries if len(examples) == len(set(examples)) == batch]
            used[step] = sorted(whole[0] if whole else sure + sum(perhaps, []))
        return used

    def torn(self, where):
        """The steps that a process may have left, or died, in after their last reduction and before it wrote down its part; or lived
        through, but took their result from a member that was ahead of it: a gap in its lines."""
        steps = [{int(line.split()[0]) for line in file.read_text().splitlines()} for file in pathlib.Path(where).glob("used-*")]
        end = max(max(mine) for mine in steps)
        return {step for mine in steps for step in range(min(mine), min(max(mine) + 2, end + 1)) if step not in mine}

    def undisturbed(self, **keys):
        """The same job in one go, by one member: its curves, examples and final parameters. Run once for all tests of a file."""
        key = json.dumps(keys, sort_keys=True)
        if key not in self.references:
            self.references[key] = self.run_undisturbed(**keys)
        return self.references[key]

    def run_undisturbed(self, **keys):
        model_dir, self.model_dir = self.model_dir, self.dir / "undisturbed"
        self.finish(self.start_run(1, self.run_job(**keys), directory="undisturbed-used"))
        want = {"loss": curve(self.model_dir), "validation": curve(self.model_dir, "validation", "epoch_loss"),
                "used": self.used(self.where), "tensors": tensors(self.model_dir, STEPS),
                "slots": tensors(self.model_dir, STEPS, "optimizer.safetensors")}
        self.model_dir = model_dir
        self.assertEqual(sorted(want["loss"]), list(range(1, STEPS + 1)))
        self.assertEqual(sorted(want["validation"]), [6, 12, 18, 24])
        return want

    def check_examples(self, used):
        for epoch in range(EPOCHS):
            steps = range(epoch * STEPS_PER_EPOCH + 1, (epoch + 1) * STEPS_PER_EPOCH + 1)
            self.assertEqual(sorted(e for step in steps for e in used[step]), list(range(EXAMPLES)), "each example once")

    def check_close(self, got, want, tolerance=2e-6):
        self.assertEqual(sorted(got), sorted(want))
        for key in want:
            self.assertAlmostEqual(got[key], want[key], delta=tolerance * max(1, abs(want[key])), msg=key)

    def check_equal(self, want, starts):
        """`starts`: (folder, the step that it continued after), in order: each replaces earlier steps after that step."""
        self.check_close(curve(self.model_dir), want["loss"])
        self.check_close(curve(self.model_dir, "validation", "epoch_loss"), want["validation"])
        used = {}
        for where, after in starts:
            mine = self.used(where)
            self.assertEqual(min(mine, default=after + 1), after + 1, "the first step of a start is the next one")
            for step in self.torn(where) & set(mine):
                if set(mine[step]) < set(want["used"][step]) and len(mine[step]) == len(set(mine[step])):
                    mine[step] = want["used"][step]
            used = {**{step: examples for step, examples in used.items() if step <= after}, **mine}
        self.assertEqual(used, want["used"])
        self.check_examples(used)
        for file, key in ("model.safetensors", "tensors"), ("optimizer.safetensors", "slots"):
            got = tensors(self.model_dir, STEPS, file)
            self.assertEqual(sorted(got), sorted(want[key]))
            for name, values in want[key].items():
                for a, b in zip(got[name], values):
                    self.assertAlmostEqual(float(a), float(b), delta=1e-5, msg=name)
