"""Real processes: buffers of each replica's own across stops and losses, weights to begin with, what is frozen, and equal bits."""
import json
import shutil
import signal
import struct
import unittest

import numpy
from safetensors.numpy import load_file, save_file

from harness import CONFIGURATION, DAMAGED, PREEMPTED, PROGRAM, ClusterTest, ask_to_stop, checkpoints
from recording import wait_until

WORKER = "../tests/buffers_worker"
STEPS, BATCH = 12, 6


class Buffers(ClusterTest):
    def setUp(self):
        super().setUp()
        self.model_dir = self.dir / "model"

    def run_job(self, **keys):
        job = {"program": "buffers", "global_batch_size": BATCH, "max_steps": STEPS, "model_dir": str(self.model_dir),
               "checkpoint": {"every_steps": 3, "keep": 20}, "timeouts": {"rejoin": 60}}
        job.update(keys)
        return self.job(**job)

    def start_run(self, members, job, directory, sets=()):
        self.where = self.dir / directory
        self.where.mkdir(exist_ok=True)
        self.environment = {"MUSTER_TEST_DIR": str(self.where)}
        self.members = self.cluster(members, chief=False)
        if members == 1:
            return [self.start(None, None, job, sets, self.environment, WORKER)]
        return [self.start(self.members, f"worker:{i}", job, sets, self.environment, WORKER) for i in range(members)]

    def file(self, step, name="model.safetensors"):
        return load_file(self.model_dir / "checkpoints" / f"step-{step:08}" / name)

    def queues(self):
        """The queues in the folder: {replica: {pid: {step: [seen, queue...]}}}."""
        found = {}
        for path in self.where.glob("queue-*"):
            _, pid, replica = path.name.split("-")
            lines = [line.split() for line in path.read_text().splitlines()]
            found.setdefault(int(replica), {})[int(pid)] = {int(step): [float(v) for v in rest] for step, *rest in lines}
        return found

    def ended(self, members, directory, **keys):
        """Trains it in one go; the final model, slots and buffers."""
        self.finish(self.start_run(members, self.run_job(**keys), directory))
        return {name: self.file(STEPS, name) for name in
                ("model.safetensors", "optimizer.safetensors", "replica_buffers.safetensors")
                if (self.model_dir / "checkpoints" / f"step-{STEPS:08}" / name).exists()}

    def check_equal(self, got, want):
        self.assertEqual(got.keys(), want.keys())
        for file in want:
            self.assertEqual(got[file].keys(), want[file].keys())
            for name, value in want[file].items():
                self.assertEqual(got[file][name].tobytes(), value.tobytes(), f"{file} {name}")

    def test_a_stop_and_a_start_give_every_replica_its_own_back(self):
        for members in (2, 3):
            with self.subTest(members=members):
                want = self.ended(members, f"undisturbed-{members}", program_args={"frozen_until": 8})
                self.assertEqual(want["replica_buffers.safetensors"]["queue"].shape, (members, 4))
                self.assertEqual(want["replica_buffers.safetensors"]["seen"].tolist(), [72 // members] * members)
                shutil.rmtree(self.model_dir)
                job = self.run_job(program_args={"frozen_until": 8})
                (self.dir / f"first-{members}").mkdir()
                hold = self.dir / f"first-{members}" / "hold-6"
                hold.write_text("")
                processes = self.start_run(members, job, f"first-{members}")
                wait_until("step 6", lambda: any(6 in steps for of in self.queues().values() for steps in of.values())
                           or any(5 in steps for of in self.queues().values() for steps in of.values()))
                ask_to_stop(processes[0])
                hold.unlink()
                self.finish(processes, code=PREEMPTED)
                self.finish(self.start_run(members, job, f"second-{members}"))
                got = {name: self.file(STEPS, name) for name in want}
                self.check_equal(got, want)
                shutil.rmtree(self.model_dir)

    def test_a_replaced_process_goes_on_with_what_the_checkpoint_holds(self):
        where = self.dir / "run"
        where.mkdir()
        (where / "hold-8").write_text("")
        job = self.run_job(checkpoint={"every_steps": 6, "keep": 20})
        processes = self.start_run(2, job, "run")
        wait_until("step 6 saved", lambda: 6 in checkpoints(self.model_dir))
        wait_until("both at step 7", lambda: all(any(7 in s for s in self.queues().get(r, {}).values()) for r in (0, 1)))
        processes[1].signal(signal.SIGKILL)
        processes[1].wait(10)
        (where / "hold-8").unlink()  # worker 0 leaves its step, and learns of the loss in the reduction
        again = self.start(self.members, "worker:1", job, (), self.environment, WORKER)
        self.finish([processes[0], again])
        saved = self.file(6, "replica_buffers.safetensors")
        begun = self.queues()[1][again.popen.pid]
        first = begun[min(begun)]
        self.assertIn(min(begun), (7, 8))
        self.assertEqual(first[0], saved["seen"][1], "what the checkpoint of step 6 holds of replica 1")
        numpy.testing.assert_allclose(first[1:], saved["queue"][1], rtol=1e-6)
        (mine,) = self.queues()[0].values()
        self.assertGreaterEqual(mine[8][0], saved["seen"][0] + 3, "who lives keeps its own")

    def test_two_runs_are_bit_equal(self):
        for members in (1, 2):
            want = self.ended(members, f"one-{members}", deterministic=True)
            shutil.rmtree(self.model_dir)
            self.check_equal(self.ended(members, f"two-{members}", deterministic=True), want)
            shutil.rmtree(self.model_dir)

    # ---- Weights to begin with

    def weights(self, dtype="float32", **more):
        """Beside the job files; the chief alone reads it."""
        tensors = {"model.weight": numpy.array([0.5, -1.0, 2.0]), "model.bias": numpy.array([0.25])}
        if dtype == "bfloat16":  # numpy has none
            import torch
            from safetensors import torch as files
            return files.save_file({name: torch.tensor(value, dtype=torch.bfloat16) for name, value in tensors.items()},
                                   self.dir / "weights.safetensors")
        tensors = {name: value.astype(dtype) for name, value in tensors.items()}
        save_file({**tensors, **more}, self.dir / "weights.safetensors")

    LOAD = {"net": {"path": "weights.safetensors", "prefix": "model."}}

    def check_loaded(self, first):
        """`first`: the parameters after one step of adam with rate 0.02."""
        numpy.testing.assert_allclose(numpy.abs(first["weight"] - [0.5, -1.0, 2.0]), 0.02, atol=2e-4)

    def test_every_member_begins_with_what_the_chief_read(self):
        for dtype in ("float16", "bfloat16", "float32"):
            self.weights(dtype)
            keys = {"load": self.LOAD, "program_args": {"server": True}, "checkpoint": {"every_steps": 1, "keep": 20}}
            processes = self.start_run(2, self.run_job(**keys), f"load-{dtype}")
            self.finish(processes)
            self.assertIn('model "net" takes 2 tensors from', processes[0].output())
            self.assertNotIn('model "net" takes 2 tensors from', processes[1].output())
            self.check_loaded(self.file(1))
            # It continues from its own checkpoint, and no longer needs the file.
            (self.dir / "weights.safetensors").unlink()
            again = self.start_run(2, self.run_job(**{**keys, "max_steps": STEPS + 1}), f"again-{dtype}")
            self.finish(again)
            self.assertIn(f"going on after step {STEPS}", again[0].output())
            shutil.rmtree(self.model_dir)

    def test_a_checkpoint_of_its_own_is_such_a_file(self):
        self.ended(1, "first", program_args={"server": True})
        source = self.dir / "first-model"
        self.model_dir.rename(source)
        load = {"net": str(source / "checkpoints" / f"step-{STEPS:08}")}
        self.finish(self.start_run(1, self.run_job(load=load, program_args={"server": True},
                                                   checkpoint={"every_steps": 1, "keep": 20}), "second"))
        want = load_file(source / "checkpoints" / f"step-{STEPS:08}" / "model.safetensors")
        numpy.testing.assert_allclose(numpy.abs(self.file(1)["weight"] - want["weight"]), 0.02, atol=2e-4)

    def test_parameter_servers_begin_with_them_too(self):
        self.weights()
        job = self.run_job(load=self.LOAD, program_args={"server": True}, strategy="parameter_server",
                           checkpoint={"every_steps": 1, "keep": 20}, max_steps=3)
        environment = {"MUSTER_TEST_DIR": str(self.dir)}
        cluster = self.cluster(1, chief=False, ps=1)
        worker = self.start(cluster, "worker:0", job, (), environment, WORKER)
        server = self.start(cluster, "ps:0", job, binary="muster-ps")
        self.finish([worker, server])
        self.assertIn('model "net" takes 2 tensors from', worker.output())
        self.check_loaded(self.file(1))

    def tables(self):
        """{pid: {step: [table...]}} of programs without a queue."""
        found = {}
        for path in self.where.glob("step-*"):
            lines = [line.split() for line in path.read_text().splitlines()]
            found[int(path.name.split("-")[1])] = {int(step): [int(v) for v in rest] for step, *rest in lines}
        return found

    def start_served(self, workers, job, directory="run"):
        self.where = self.dir / directory
        self.where.mkdir(exist_ok=True)
        self.environment = {"MUSTER_TEST_DIR": str(self.where)}
        self.members = self.cluster(workers, chief=False, ps=1)
        processes = [self.start(self.members, f"worker:{i}", job, (), self.environment, WORKER) for i in range(workers)]
        return processes, self.start(self.members, "ps:0", job, binary="muster-ps")

    def test_integers_that_were_loaded_reach_every_worker_of_servers(self):
        self.weights(**{"model.table": numpy.array([3, -1, 2]), "model.on": numpy.array(True)})
        for name, section in ("asynchronous", {}), ("bounded", {"max_staleness": 1}):
            with self.subTest(name):
                job = self.run_job(load=self.LOAD, program_args={"server": True, "table": True, "sleep_ms": 20}, strategy="parameter_server",
                                   parameter_server=section, max_steps=200)
                workers, server = self.start_served(2, job, name)
                self.finish([*workers, server])
                seen = self.tables()
                self.assertEqual(sorted(seen), sorted(worker.popen.pid for worker in workers), "both made steps")
                for steps in seen.values():
                    self.assertEqual(set(map(tuple, steps.values())), {(3, -1, 2)})
                saved = self.file(200)
                self.assertEqual(saved["table"].tolist(), [3, -1, 2])
                self.assertTrue(saved["on"])
                # With a table of zeros, or switched off, no step moves the weights.
                self.assertGreater(abs(saved["weight"] - [0.5, -1.0, 2.0]).min(), 0.02)
                shutil.rmtree(self.model_dir)

    # ---- A chief that is replaced before anything was saved

    def test_a_replaced_chief_does_without_the_file_where_others_hold_the_run(self):
        self.weights()
        keys = {"load": self.LOAD, "program_args": {"server": True}, "checkpoint": {"every_steps": 100}}
        want = self.ended(2, "undisturbed", **keys)
        shutil.rmtree(self.model_dir)
        job = self.run_job(**keys)
        (self.dir / "run").mkdir()
        hold = self.dir / "run" / "hold-6"
        hold.write_text("")
        chief, worker = self.start_run(2, job, "run")
        wait_until("both at step 5", lambda: len(self.tables()) == 2 and all(5 in steps for steps in self.tables().values()))
        chief.signal(signal.SIGKILL)
        chief.wait(10)
        (self.dir / "weights.safetensors").unlink()
        again = self.start(self.members, "worker:0", job, (), self.environment, WORKER)
        hold.unlink()
        self.finish([again, worker])
        self.assertIn("weights.safetensors': ", again.output())
        self.assertIn("because other processes hold the state of the run", again.output())
        self.assertNotIn(1, self.tables()[again.popen.pid], "no step is made again")
        for name, value in want["model.safetensors"].items():
            numpy.testing.assert_allclose(self.file(STEPS)[name], value, rtol=1e-6, err_msg=name)

    def test_a_replaced_chief_without_the_file_of_a_run_that_did_not_begin_says_so(self):
        keys = {"load": self.LOAD, "program_args": {"server": True}}

        def ends(processes):
            self.finish(processes, code=CONFIGURATION)
            self.assertIn("load.net: cannot read '", processes[0].output().splitlines()[-1])

        with self.subTest("members"):
            ends(self.start_run(2, self.run_job(**keys), "missing"))
        shutil.rmtree(self.model_dir)
        with self.subTest("servers"):
            ends(self.start_served(2, self.run_job(**keys, strategy="parameter_server"), "missing-served")[0])

    def test_servers_hold_the_run_of_a_chief_that_is_replaced_without_the_file(self):
        self.weights(**{"model.table": numpy.array([3, -1, 2]), "model.on": numpy.array(True)})
        job = self.run_job(load=self.LOAD, program_args={"server": True, "table": True, "sleep_ms": 20}, strategy="parameter_server",
                           checkpoint={"every_steps": 1000}, max_steps=200)
        hold = self.dir / "run" / "hold-76"  # the first of an epoch, which does not end without it
        hold.parent.mkdir()
        hold.write_text("")
        (chief, worker), server = self.start_served(2, job)
        wait_until("40 steps", lambda: sum(map(len, self.tables().values())) >= 40)
        chief.signal(signal.SIGKILL)
        chief.wait(10)
        hold.unlink()
        (self.dir / "weights.safetensors").unlink()
        again = self.start(self.members, "worker:0", job, (), self.environment, WORKER)
        self.finish([again, worker, server])
        self.assertIn("because the servers hold the state of the run", again.output())
        self.assertEqual(set(map(tuple, self.tables()[again.popen.pid].values())), {(3, -1, 2)}, "integers are in the chief's record")
        self.assertEqual(self.file(200)["table"].tolist(), [3, -1, 2])
        self.assertGreater(abs(self.file(200)["weight"] - [0.5, -1.0, 2.0]).min(), 0.02)

    # ---- Buffers of each replica's own where members come and go

    def wait_at(self, step, *replicas):
        wait_until(f"replicas {replicas} at step {step}",
                   lambda: all(any(step in steps for steps in self.queues().get(r, {}).values()) for r in replicas))

    def test_a_replaced_chief_takes_its_own_from_the_checkpoint_and_the_others_keep_theirs(self):
        where = self.dir / "run"
        where.mkdir()
        (where / "hold-8").write_text("")
        job = self.run_job(checkpoint={"every_steps": 6, "keep": 20})
        chief, worker = self.start_run(2, job, "run")
        wait_until("step 6 saved", lambda: 6 in checkpoints(self.model_dir))
        self.wait_at(7, 0, 1)
        chief.signal(signal.SIGKILL)
        chief.wait(10)
        (where / "hold-8").unlink()
        again = self.start(self.members, "worker:0", job, (), self.environment, WORKER)
        self.finish([again, worker])
        saved = self.file(6, "replica_buffers.safetensors")
        begun = self.queues()[0][again.popen.pid]
        self.assertIn(min(begun), (7, 8))
        self.assertEqual(begun[min(begun)][0], saved["seen"][0], "what the checkpoint of step 6 holds of replica 0")
        numpy.testing.assert_allclose(begun[min(begun)][1:], saved["queue"][0], rtol=1e-6)
        (kept,) = self.queues()[1].values()
        # 3 examples a step, for every lost member: step 8 begins with the examples of 7 steps.
        self.assertEqual([kept[step][0] for step in range(7, STEPS + 1)], [3 * (step - 1) for step in range(7, STEPS + 1)])
        final = self.file(STEPS, "replica_buffers.safetensors")
        self.assertEqual(final["seen"][1], 3 * STEPS)
        self.assertEqual(final["seen"][0], saved["seen"][0] + 3 * (STEPS - min(begun) + 1))

    def test_members_that_leave_take_theirs_along_and_an_added_one_takes_a_saved_one(self):
        where = self.dir / "run"
        where.mkdir()
        for step in 4, 10:
            (where / f"hold-{step}").write_text("")
        job = self.run_job(elastic={"min_workers": 2, "grace": 300}, checkpoint={"every_steps": 8, "keep": 20}, max_steps=15)
        *others, leaver = self.start_run(3, job, "run")
        self.wait_at(3, 0, 1, 2)
        leaver.signal(signal.SIGTERM)
        others[0].wait_for("worker 2 leaves")
        (where / "hold-4").unlink()
        self.finish([leaver], code=PREEMPTED)
        self.wait_at(9, 0, 1)
        wait_until("step 8 saved", lambda: 8 in checkpoints(self.model_dir))
        shrunk = self.file(8, "replica_buffers.safetensors")
        self.assertEqual(shrunk["queue"].shape, (2, 4), "two replicas at step 8")
        added = self.start(self.members, "worker:2", job, (), self.environment, WORKER)
        others[0].wait_for("a new generation includes worker 2")
        (where / "hold-10").unlink()
        self.finish([*others, added])
        begun = self.queues()[2][added.popen.pid]
        # It is replica 2 of 3, and two were saved.
        self.assertEqual(begun[min(begun)][0], shrunk["seen"][0])
        numpy.testing.assert_allclose(begun[min(begun)][1:], shrunk["queue"][0], rtol=1e-6)
        for replica in 0, 1:
            (own,) = self.queues()[replica].values()
            self.assertEqual(sorted(own), list(range(1, 16)), "in one process throughout")
            of_three = min(step for step in own if own[step][0] != 2 * (step - 1)) - 2  # steps before it left
            again = min(begun)  # the first step of three members again
            want = [2 * min(step - 1, of_three) + 3 * max(0, min(step, again) - 1 - of_three) + 2 * max(0, step - again)
                    for step in range(1, 16)]
            self.assertEqual([own[step][0] for step in range(1, 16)], want)
        self.assertEqual(self.file(15, "replica_buffers.safetensors")["queue"].shape, (3, 4))

    def test_servers_refuse_buffers_of_each_replica(self):
        cluster = self.cluster(1, chief=False, ps=1)
        job = self.run_job(strategy="parameter_server")
        worker = self.start(cluster, "worker:0", job, (), {"MUSTER_TEST_DIR": str(self.dir)}, WORKER)
        server = self.start(cluster, "ps:0", job, binary="muster-ps")
        self.finish([worker, server], code=PROGRAM)
        self.assertIn('buffer "net.queue" is declared kPerReplica, which parameter servers cannot save', worker.output())

    def test_what_cannot_be_loaded_ends_the_start(self):
        self.weights(extra=numpy.zeros(1, numpy.float32))
        cases = [({"net": "none.safetensors"}, CONFIGURATION, "none.safetensors"),
                 ({"net": "weights.safetensors"}, CONFIGURATION, "none of the tensors of "),
                 ({"net": {"path": "weights.safetensors", "rename": {"^model[.]": ""}}}, CONFIGURATION, "which the model has not"),
                 ({"nett": "weights.safetensors"}, CONFIGURATION, 'did you mean "net"')]
        for load, code, text in cases:
            (process,) = self.start_run(1, self.run_job(load=load), "refused")
            self.finish([process], code=code)
            self.assertIn(text, process.output().splitlines()[-1])
        data = bytearray((self.dir / "weights.safetensors").read_bytes())
        struct.pack_into("<Q", data, 0, 1 << 40)
        (self.dir / "weights.safetensors").write_bytes(data)
        (process,) = self.start_run(1, self.run_job(load={"net": "weights.safetensors"}), "damaged")
        self.finish([process], code=DAMAGED)
        self.assertIn("weights.safetensors: its header is said to have", process.output())


if __name__ == "__main__":
    unittest.main()
