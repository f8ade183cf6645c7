"""Jobs with parameter servers whose state tells what was done to it: what the tests of that share.

counting_role is a program each of whose batches takes exactly 1 from every element of every parameter, so a checkpoint tells how many
updates it holds, and whether one of them is there in part.
"""
import collections
import os
import signal

import numpy

from harness import BIN, ClusterTest, curve, result, task_pids, tensors
from recording import wait_until

EXAMPLES, BATCH = 64, 4


class ParameterServerTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.model_dir = self.dir / "model"
        self.used_dir = self.dir / "used"
        self.used_dir.mkdir()

    def launch(self, job, workers=2, ps=2, restart="on-failure", options=(), bin_dir=None):
        if bin_dir is not None:
            options = [*options, "--bin-dir", bin_dir]
        return self.start_launch("--workers", workers, "--ps", ps, "--restart", restart, "--job", job, *options,
                                 environment={"MUSTER_TEST_DIR": str(self.used_dir)})

    def ps_job(self, **keys):
        section = keys.pop("parameter_server", {})
        return self.job(**{"strategy": "parameter_server", "model_dir": str(self.model_dir), "parameter_server": section, **keys})


class CountingTest(ParameterServerTest):
    EPOCHS = 6

    def start_counting(self, ps=2, workers=2, section=None, restart="on-failure", held=False, options=(), **keys):
        """`held`: a kill is to come, before which no worker makes more than three of four of its batches."""
        bin_dir = self.dir / "bin"
        if not bin_dir.exists():
            bin_dir.mkdir()
            for name in "muster-chief", "muster-worker":
                os.symlink((BIN / "../tests/counting_role").resolve(), bin_dir / name)
            os.symlink((BIN / "muster-ps").resolve(), bin_dir / "muster-ps")
        keys = {"program": "counting", "program_args": {"examples": EXAMPLES, "sleep_ms": 30}, "global_batch_size": BATCH * workers,
                "epochs": self.EPOCHS, "max_steps": None, "checkpoint": {"every_steps": 24}, **keys}
        self.epochs = keys["epochs"]
        self.steps = self.epochs * EXAMPLES // BATCH
        if held:
            (self.used_dir / "hold").write_text(str(self.steps // workers * 3 // 4))
        return self.launch(self.ps_job(parameter_server={"chunk_bytes": 65536, **(section or {})}, **keys), workers, ps, restart, options, bin_dir=bin_dir)

    def counting_tasks(self, cluster, epochs=20, copies=2, **keys):
        """Starts all tasks without a supervisor: {"ps:0": process}."""
        self.epochs = epochs
        self.steps = epochs * EXAMPLES // BATCH
        job = self.ps_job(parameter_server={"copies": copies, "chunk_bytes": 65536},
                          **{"program": "counting", "program_args": {"examples": EXAMPLES, "sleep_ms": 30, "rows": 100}, "global_batch_size": 2 * BATCH,
                             "epochs": epochs, "max_steps": None, "checkpoint": {"every_steps": 24}, **keys})
        environment = {"MUSTER_TEST_DIR": str(self.used_dir)}
        (self.dir / "bin").mkdir(exist_ok=True)
        role = self.dir / "bin" / "muster-chief"
        if not role.exists():
            os.symlink((BIN / "../tests/counting_role").resolve(), role)
        binaries = {"chief": role, "worker": "../tests/counting_role", "ps": None}
        return {f"{kind}:{i}": self.start(cluster, f"{kind}:{i}", job, environment=environment, binary=binaries[kind])
                for kind, addresses in cluster.items() for i in range(len(addresses))}

    def used(self):
        """How often each example was used."""
        times = collections.Counter()
        for file in self.used_dir.glob("used-*"):
            for line in file.read_text().splitlines():
                times.update(map(int, line.split()))
        return times

    def updates(self, step):
        """The number of updates, by the checkpoint's elements: {count: elements}."""
        counts = collections.Counter()
        for values in tensors(self.model_dir, step).values():
            counts.update((-values).tolist())
        return {int(count): n for count, n in counts.items()}

    def row_updates(self, step):
        """The uses of examples, by the table: {times that it was used: examples}."""
        files = [path.name for path in (self.model_dir / "checkpoints" / f"step-{step:08}").glob("tables-*")]
        rows = -numpy.concatenate([tensors(self.model_dir, step, file)["seen.rows"] for file in files]).reshape(-1, 3)
        self.assertTrue((rows == rows[:, :1]).all(), rows)
        counts = collections.Counter(rows[:, 0].tolist())
        counts[0.0] += EXAMPLES - len(rows)  # rows that are not there have no update
        return {int(count): n for count, n in counts.items() if n}

    def check_exact(self):
        """Nobody died: every example once an epoch, every update whole and once."""
        self.assertEqual(self.used(), {example: self.epochs for example in range(EXAMPLES)})
        self.check_nothing_lost()
        got = result(self.model_dir)
        self.assertEqual(got["status"], "completed")
        self.assertEqual(got["steps"], self.steps)
        servers = got["parameter_server"]
        self.assertEqual((servers["updates"], servers["repeated_examples"], servers["torn_pushes"], servers["lost_updates"]), (self.steps, 0, 0, 0))
        self.assertEqual(sorted(curve(self.model_dir)), list(range(1, self.steps + 1)))

    def check_nothing_lost(self):
        """Every accepted update is in the final checkpoint, once, in parameters and in rows."""
        self.assertEqual(list(self.updates(self.steps)), [self.steps])
        self.assertEqual(self.row_updates(self.steps), {self.epochs: EXAMPLES})

    def check_lost(self):
        """Every update that is missing is counted: the parameters of a shard hold all the others."""
        lost = result(self.model_dir)["parameter_server"]["lost_updates"]
        updates = self.updates(self.steps)
        self.assertLessEqual(len(updates), 2, "a shard that holds a part of an update")
        self.assertEqual(2 * self.steps - min(updates) - max(updates), lost, updates)
        rows = self.row_updates(self.steps)
        self.assertLessEqual(max(rows), self.epochs)
        missing = sum((self.epochs - times) * n for times, n in rows.items())
        self.assertLessEqual(missing, lost * BATCH)
        return lost

    def wait_steps(self, launch, count):
        """`count` batches of all workers have been pushed."""
        wait_until(f"{count} steps", lambda: sum(self.used().values()) >= count * BATCH or launch.popen.poll() is not None)
        self.assertIsNone(launch.popen.poll(), launch.output())

    def kill(self, launch, task, last=True):
        pid = task_pids(launch)[task]
        os.kill(pid, signal.SIGKILL)
        if last:
            (self.used_dir / "hold").unlink()
        return pid
