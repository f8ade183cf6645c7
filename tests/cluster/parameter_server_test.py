"""Parameter servers: what is promised while nothing happens, and when a process of each role is killed or frozen.

Real processes under `muster launch`. counting_role is a program each of whose batches takes exactly 1 from every element of every
parameter, so a checkpoint tells how many updates it holds, and whether one of them is there in part.
"""
import collections
import json
import os
import re
import signal
import unittest

import numpy

from harness import BIN, ClusterTest, Process, checkpoints, curve, losses, result, task_pids, tensors
from hosts import Network
from linear_test import recurrence
from recording import wait_until

EXAMPLES, BATCH = 64, 4


class ParameterServerTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.model_dir = self.dir / "model"
        self.used_dir = self.dir / "used"
        self.used_dir.mkdir()

    def launch(self, job, workers=2, ps=2, restart="on-failure", options=(), bin_dir=None):
        command = [str(BIN / "muster"), "launch", "--workers", str(workers), "--ps", str(ps), "--restart", restart, "--job", str(job), *options]
        if bin_dir is not None:
            command += ["--bin-dir", str(bin_dir)]
        environment = {**os.environ, "MUSTER_TEST_DIR": str(self.used_dir), "OMP_WAIT_POLICY": "passive"}
        process = Process("launch", command, environment, self.dir / f"log-{len(self.processes)}")
        self.processes.append(process)
        return process

    def ps_job(self, **keys):
        section = keys.pop("parameter_server", {})
        return self.job(**{"strategy": "parameter_server", "model_dir": str(self.model_dir), "parameter_server": section, **keys})


class Undisturbed(ParameterServerTest):
    LINEAR = {"max_steps": 60, "epochs": 2, "program_args": {"kernel_init": 0.7, "bias_init": -0.2}}

    def check_linear(self, steps=60):
        ones = numpy.ones(1000)
        want = recurrence(0.7, -0.2, ones, ones, steps)
        got = losses(self.model_dir)
        self.assertEqual(sorted(got), list(range(1, steps + 1)))
        self.assertLessEqual(max(abs(got[i + 1] - w) for i, w in enumerate(want)), 1e-6)

    def test_one_worker_is_the_recurrence(self):
        for ps in 1, 2:
            with self.subTest(ps=ps):
                self.model_dir = self.dir / f"model-{ps}"
                self.finish([self.launch(self.ps_job(**self.LINEAR), workers=1, ps=ps)])
                self.check_linear()
                self.assertEqual(result(self.model_dir)["status"], "completed")

    def test_without_a_chief_worker_0_is_one(self):
        self.finish([self.launch(self.ps_job(**self.LINEAR), workers=1, ps=1, options=["--no-chief"])])
        self.check_linear()

    def test_synchronous_steps_are_refused_and_a_run_that_has_them_goes_on_under_that_strategy(self):
        keys = {**self.LINEAR, "checkpoint": {"every_steps": 10}}
        self.finish([self.launch(self.ps_job(**{**keys, "max_steps": 20}), workers=1, ps=2)])
        # As a version recorded it that had such steps.
        recorded = json.loads((self.model_dir / "job.json").read_text())
        recorded["parameter_server"]["max_staleness"] = 0
        (self.model_dir / "job.json").write_text(json.dumps(recorded))
        job = self.ps_job(parameter_server={"max_staleness": 0}, **keys)
        refused = self.launch(job, workers=2, ps=2)
        self.finish([refused], code=2)
        self.assertIn('parameter_server.max_staleness is 0, which is synchronous training: set strategy to "multi_worker_mirrored"', refused.output())
        self.finish([self.launch(job, workers=2, ps=0, options=["--set", "strategy=multi_worker_mirrored"])])
        self.check_linear()

    def test_goes_on_with_another_number_of_servers_and_synchronously(self):
        keys = {**self.LINEAR, "checkpoint": {"every_steps": 10}}
        self.finish([self.launch(self.ps_job(**{**keys, "max_steps": 20}), workers=1, ps=2)])
        self.finish([self.launch(self.ps_job(**{**keys, "max_steps": 40}), workers=1, ps=3)])
        self.finish([self.launch(self.job(**{**keys, "model_dir": str(self.model_dir), "max_steps": 60}), workers=1, ps=0)])
        self.check_linear()


class CountingTest(ParameterServerTest):
    EPOCHS = 6

    def start_counting(self, ps=2, workers=2, section=None, restart="on-failure", held=False, **keys):
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
        return self.launch(self.ps_job(parameter_server={"chunk_bytes": 65536, **(section or {})}, **keys), workers, ps, restart, bin_dir=bin_dir)

    def used(self):
        """How often each example was used."""
        times = collections.Counter()
        for file in self.used_dir.glob("used-*"):
            for line in file.read_text().splitlines():
                times.update(map(int, line.split()))
        return times

    def updates(self, step):
        """What the checkpoint's elements tell of the number of updates: {count: elements}."""
        counts = collections.Counter()
        for values in tensors(self.model_dir, step).values():
            counts.update((-values).tolist())
        return {int(count): n for count, n in counts.items()}

    def row_updates(self, step):
        """What the table tells of each example: {times that it was used: examples}."""
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


class Counting(CountingTest):
    def test_each_example_once_and_every_update_whole(self):
        self.finish([self.start_counting()])
        self.check_exact()

    def test_with_backups(self):
        self.finish([self.start_counting(section={"copies": 2})])
        self.check_exact()

    def test_validation_sees_whole_updates_only(self):
        self.finish([self.start_counting(workers=3)])
        seen = curve(self.model_dir, "validation", "epoch_loss")
        self.assertEqual(len(seen), self.EPOCHS)
        self.assertEqual(set(seen.values()), {0.0})

    # ---- Deaths

    def check_after(self, launch, exact_updates):
        """Training went on: every example of every epoch was used at least once; what was accepted is in the final checkpoint."""
        self.finish([launch], 90)
        self.assertNotIn("ROOT CAUSE", launch.output())
        got = result(self.model_dir)
        self.assertEqual(got["status"], "completed")
        servers = got["parameter_server"]
        used = self.used()
        self.assertEqual(sorted(used), list(range(EXAMPLES)))
        updates = self.updates(self.steps)
        if exact_updates:
            self.assertGreaterEqual(min(self.row_updates(self.steps)), self.epochs)
            # Every accepted update is there, once. What a killed worker pushed but did not report is repeated, and counted: a
            # push that was in all servers is twice in every element, a torn one in those of the servers that had it.
            repeated = servers["repeated_examples"] // BATCH
            self.assertGreaterEqual(min(updates), self.steps, updates)
            self.assertLessEqual(min(updates), self.steps + repeated, updates)
            self.assertLessEqual(max(updates), self.steps + servers["torn_pushes"] + repeated, updates)
            self.assertEqual(servers["lost_updates"], 0)
        return got

    def test_a_worker_is_killed(self):
        launch = self.start_counting(held=True)
        self.wait_steps(launch, 10)
        before = self.kill(launch, "worker:1")
        wait_until("a successor", lambda: task_pids(launch).get("worker:1", before) != before)
        got = self.check_after(launch, exact_updates=True)
        self.assertLessEqual(got["parameter_server"]["repeated_examples"], 2 * BATCH)

    def test_a_worker_is_killed_between_its_push_and_its_report(self):
        launch = self.start_counting(held=True)
        self.wait_steps(launch, 10)
        (self.used_dir / "die").touch()
        wait_until("a death", lambda: not (self.used_dir / "die").exists())
        (self.used_dir / "hold").unlink()
        servers = self.check_after(launch, exact_updates=True)["parameter_server"]
        # What it had pushed, and perhaps what it had loaded ahead; on a busy machine the batch before was not reported yet either.
        self.assertIn(servers["repeated_examples"], (BATCH, 2 * BATCH, 3 * BATCH))
        ((updates, _),) = self.updates(self.steps).items()
        twice = updates - self.steps
        self.assertIn(twice, (1, 2))
        self.assertLessEqual(twice * BATCH, servers["repeated_examples"])
        self.assertEqual(self.row_updates(self.steps), {self.epochs: EXAMPLES - twice * BATCH, self.epochs + 1: twice * BATCH})

    def test_a_worker_is_killed_and_nobody_takes_its_place(self):
        launch = self.start_counting(restart="never", held=True)
        self.wait_steps(launch, 10)
        self.kill(launch, "worker:1")
        wait_until("the end", lambda: launch.popen.poll() is not None, 90)
        self.assertEqual(result(self.model_dir)["status"], "completed", launch.output())

    def test_the_chief_is_killed(self):
        launch = self.start_counting(held=True)
        self.wait_steps(launch, 30)
        before = self.kill(launch, "chief:0")
        wait_until("a successor", lambda: task_pids(launch).get("chief:0", before) != before)
        self.check_after(launch, exact_updates=True)
        self.assertEqual(sorted(curve(self.model_dir)), list(range(1, self.steps + 1)))

    def test_a_server_with_a_backup_is_killed(self):
        launch = self.start_counting(section={"copies": 2}, held=True)
        self.wait_steps(launch, 20)
        before = self.kill(launch, "ps:0")
        wait_until("a successor", lambda: task_pids(launch).get("ps:0", before) != before)
        got = self.check_after(launch, exact_updates=True)
        # Nobody was lost but a server: nothing is repeated, nothing torn.
        self.check_nothing_lost()
        self.assertEqual(got["parameter_server"]["torn_pushes"], 0)
        self.assertEqual(got["parameter_server"]["repeated_examples"], 0)

    def test_each_server_in_turn(self):
        launch = self.start_counting(section={"copies": 2}, epochs=12, held=True)
        self.wait_steps(launch, 20)
        self.kill(launch, "ps:0", last=False)
        wait_until("ps 0 is the backup of both", lambda: len(re.findall("ps 0 is backup of shard . again", launch.output())) == 2, 60)
        self.kill(launch, "ps:1")
        self.check_after(launch, exact_updates=True)
        self.check_nothing_lost()

    def test_a_server_without_a_backup_is_killed(self):
        launch = self.start_counting(held=True)
        wait_until("a checkpoint", lambda: checkpoints(self.model_dir) or launch.popen.poll() is not None)
        self.wait_steps(launch, min(sum(self.used().values()) // BATCH + 8, 40))
        self.kill(launch, "ps:1")
        got = self.check_after(launch, exact_updates=False)
        # One server's part went back to the checkpoint, the other's did not.
        lost = self.check_lost()
        self.assertEqual(max(self.updates(self.steps)), self.steps)
        self.assertEqual(got["parameter_server"]["torn_pushes"], 0)
        told = sum(map(int, re.findall(r"shard 1 is restored as it was after step \d+: (\d+) updates of it are lost", launch.output())))
        late = len(re.findall("was told after a shard that had it went back", launch.output()))
        self.assertEqual(told + late, lost, launch.output())

    def test_servers_without_a_backup_are_killed_again_and_again(self):
        launch = self.start_counting(epochs=16, held=True)
        for loss, task in enumerate(["ps:0", "ps:1", "ps:1", "ps:0"]):
            self.wait_steps(launch, 27 * (loss + 1))
            self.kill(launch, task, last=loss == 3)
            wait_until("it is restored", lambda: launch.output().count("is restored as it was") > loss or launch.popen.poll() is not None, 30)
        self.check_after(launch, exact_updates=False)
        self.assertGreater(self.check_lost(), 0)

    def freeze_a_server(self, copies, heartbeat):
        """Without a supervisor: ps 0 sleeps until the others know that it is lost, and wakes."""
        cluster = self.cluster(2, ps=2)
        self.epochs = 20
        self.steps = self.epochs * EXAMPLES // BATCH
        keys = {"program": "counting", "program_args": {"examples": EXAMPLES, "sleep_ms": 30}, "global_batch_size": 2 * BATCH,
                "epochs": self.epochs, "max_steps": None, "timeouts": {"heartbeat": heartbeat}, "checkpoint": {"every_steps": 24}}
        job = self.ps_job(parameter_server={"copies": copies, "chunk_bytes": 65536}, **keys)
        environment = {"MUSTER_TEST_DIR": str(self.used_dir)}
        (self.dir / "bin").mkdir()
        os.symlink((BIN / "../tests/counting_role").resolve(), self.dir / "bin" / "muster-chief")
        chief = self.start(cluster, "chief:0", job, environment=environment, binary=self.dir / "bin" / "muster-chief")
        workers = [self.start(cluster, f"worker:{i}", job, environment=environment, binary="../tests/counting_role") for i in range(2)]
        servers = [self.start(cluster, f"ps:{i}", job) for i in range(2)]
        self.wait_steps(chief, 40)
        servers[0].signal(signal.SIGSTOP)
        if copies == 2:
            # Pushes wait until the backup has taken over, and go on.
            at = sum(self.used().values())
            wait_until("training goes on", lambda: sum(self.used().values()) > at + 20 * BATCH, 30)
        else:
            chief.wait_for("it waits for ps 0 to come back")
        # It comes back as a server without state, which the others bring up to date, or the chief restores.
        servers[0].signal(signal.SIGCONT)
        self.finish([chief, *workers, *servers], 90)
        self.assertEqual(result(self.model_dir)["parameter_server"]["updates"], self.steps)

    def test_a_frozen_server_wakes_after_it_was_replaced(self):
        """The backup has taken over, and what the frozen one does then changes nothing."""
        self.freeze_a_server(copies=2, heartbeat=2)
        self.check_nothing_lost()

    def test_a_frozen_server_without_a_backup_wakes(self):
        """What it held is restored, and what is lost is counted: it brings nothing of its own."""
        self.freeze_a_server(copies=1, heartbeat=2)
        self.check_lost()


class Hosts(CountingTest):
    """Chief and workers on one host, each ps on one of its own."""
    def setUp(self):
        super().setUp()
        self.network = Network(3)
        self.addCleanup(self.network.close)

    def process_class(self, name, command, environment, log):
        host = int(name.split(":")[1]) + 1 if name.startswith("ps") else 0
        return Process(name, self.network.command(host, command), environment, log)

    def test_a_link_between_two_servers_is_cut_and_healed(self):
        """Each is the other's backup; the chief hears of both. Training goes on without backups, and with them again."""
        chief, first, second = self.network.addresses
        cluster = {"chief": [f"{chief}:5000"], "worker": [f"{chief}:5001", f"{chief}:5002"], "ps": [f"{first}:5000", f"{second}:5000"]}
        self.epochs = 24
        self.steps = self.epochs * EXAMPLES // BATCH
        job = self.ps_job(parameter_server={"copies": 2, "chunk_bytes": 65536}, program="counting",
                          program_args={"examples": EXAMPLES, "sleep_ms": 30, "rows": 100}, global_batch_size=2 * BATCH, epochs=self.epochs,
                          max_steps=None, timeouts={"heartbeat": 4}, checkpoint={"every_steps": 24})
        environment = {"MUSTER_TEST_DIR": str(self.used_dir)}
        (self.dir / "bin").mkdir()
        os.symlink((BIN / "../tests/counting_role").resolve(), self.dir / "bin" / "muster-chief")
        leader = self.start(cluster, "chief:0", job, environment=environment, binary=self.dir / "bin" / "muster-chief")
        others = [self.start(cluster, f"worker:{i}", job, environment=environment, binary="../tests/counting_role") for i in range(2)]
        others += [self.start(cluster, f"ps:{i}", job) for i in range(2)]
        self.wait_steps(leader, 40)
        self.network.set_cut(self.network.between(1, 2))
        leader.wait_for("until it is up to date again")
        at = sum(self.used().values())
        wait_until("training goes on", lambda: sum(self.used().values()) > at + 20 * BATCH, 30)
        self.network.set_cut(self.network.between(1, 2), False)
        for shard in 0, 1:
            leader.wait_for(f"is backup of shard {shard} again")
        self.finish([leader, *others], 180)
        self.check_exact()
        self.assertNotIn("lost", leader.output())


if __name__ == "__main__":
    unittest.main(verbosity=2)
