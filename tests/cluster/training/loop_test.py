"""Programs that own their loop: their output, the values of replicas of several processes, their end and their continuation."""
import re
import signal
import unittest

from harness import ClusterTest, checkpoints, curve, result, tensors

WORKER = "../tests/loop_worker"


def printed(output):
    """{step: loss} of the lines that an own loop printed."""
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+) loss (\S+)", output, re.MULTILINE)}


class Loops(ClusterTest):
    def start_run(self, devices, job, sets=(), environment=None):
        """One member for each of `devices`."""
        if len(devices) == 1:
            return [self.start(None, None, job, [f"devices={devices[0]}", *sets], environment, WORKER)]
        cluster = self.cluster(len(devices), chief=False)
        return [self.start(cluster, f"worker:{i}", job, [f"devices={device}", *sets], environment, WORKER) for i, device in enumerate(devices)]

    def check_close(self, got, want):
        self.assertEqual(sorted(got), sorted(want))
        for step in want:
            self.assertAlmostEqual(got[step], want[step], delta=1e-5, msg=step)

    def test_an_own_loop_prints_the_losses_of_linear(self):
        arguments = {"program_args": {"kernel_init": 0.7, "bias_init": -0.2}}
        want = self.train(1, self.job(**arguments))
        for devices in ["cpu"], ["cpu", "cpu:2"]:
            model_dir = self.dir / f"own-{len(devices)}"
            processes = self.start_run(devices, self.job(program="own_linear", model_dir=str(model_dir), **arguments))
            self.finish(processes)
            got = printed(processes[0].output())
            self.assertEqual(sorted(got), list(range(1, 21)))
            self.check_close(got, want)
            self.check_close(curve(model_dir), want)

    def test_values_are_those_that_tensorflow_documents(self):
        job = self.job(program="values", max_steps=None, epochs=1, model_dir=None)
        for devices in ["cpu"], ["cpu:2"], ["cpu:4"], ["cpu"] * 2, ["cpu"] * 4, ["cpu:3", "cpu"]:
            with self.subTest(devices=devices):
                processes = self.start_run(devices, job)
                self.finish(processes)
                counts = [int((device + ":1").split(":")[1]) for device in devices]
                n = sum(counts)
                first, second = (n + 1) // 2, n // 2  # replicas that give {'a': 1, 'b': [40, 1]}, and {'a': 3, 'b': [2, 98]}
                sum_a, sum_c = first + 3 * second, (40 * first + 2 * second, first + 98 * second)
                a = [1, 3] if second else [1, 1]
                c = [(40, 1), (2, 98)] if second else [(40, 1)] * 2
                every = {
                    "sum": ([sum_a], list(sum_c)),
                    "mean": ([sum_a / n], [value / n for value in sum_c]),
                    "min": ([min(a)], [min(x) for x in zip(*c)]),
                    "max": ([max(a)], [max(x) for x in zip(*c)]),
                    "gather": ([1 if r % 2 == 0 else 3 for r in range(n)], [v for r in range(n) for v in ((40, 1), (2, 98))[r % 2]]),
                }
                uneven = [v for r in range(n) for v in range(r, r + 1 + r % 2)]
                replica = 0
                for process, count in zip(processes, counts):
                    output = process.output()
                    for r in range(replica, replica + count):
                        for what, (want_a, want_c) in every.items():
                            line = re.search(rf"^{what} {r}/{n} a \[(.*)\] c \[(.*)\]$", output, re.MULTILINE)
                            self.assertIsNotNone(line, f"{what} {r}:\n{output}")
                            self.assertEqual([float(v) for v in line[1].split(", ")], want_a, what)
                            self.assertEqual([float(v) for v in line[2].split(", ")], want_c, what)
                        line = re.search(rf"^uneven {r} \[(.*)\] \[(.*)\] \[(.*)\]$", output, re.MULTILINE)
                        self.assertEqual([float(v) for v in line[1].split(", ")], uneven)
                        self.assertAlmostEqual(float(line[2]), sum(uneven) / len(uneven), places=6)
                        self.assertEqual(float(line[3]), max(uneven))
                        local = re.findall(rf"^local {r}/{n} a \[(.*)\] c", output, re.MULTILINE)
                        self.assertEqual([float(v) for v in local], [1 if o % 2 == 0 else 3 for o in range(replica, replica + count)])
                    replica += count

    STREAM = {"program": "stream", "global_batch_size": 5, "max_steps": None, "epochs": 2, "checkpoint": {"every_steps": 1, "keep": 50},
              "program_args": {"sleep_ms": 5}}
    STEPS = 30  # 5 batches of 3 steps, twice

    def undisturbed(self):
        model_dir = self.dir / "undisturbed"
        processes = self.start_run(["cpu"], self.job(model_dir=str(model_dir), **self.STREAM))
        self.finish(processes)
        self.assertEqual(sorted(printed(processes[0].output())), list(range(1, self.STEPS + 1)))
        return printed(processes[0].output()), tensors(model_dir, self.STEPS)

    def test_a_stream_with_several_steps_a_batch_goes_on_after_all_were_killed(self):
        want, weights = self.undisturbed()
        model_dir = self.dir / "killed"
        job = self.job(model_dir=str(model_dir), **self.STREAM)
        got = {}
        # Both are killed in the middle of a batch's steps; the second start has another number of replicas.
        for devices, until in (["cpu", "cpu"], 8), (["cpu", "cpu:2"], 20), (["cpu:2"], None):
            # The two go no further: all would be done while the kill is on its way.
            processes = self.start_run(devices, job, environment=until and {"MUSTER_TEST_HOLD_AFTER": str(until)})
            if until is None:
                self.finish(processes)
            else:
                processes[0].wait_for(f"step {until} loss")
                for process in processes:
                    process.signal(signal.SIGKILL)
                for process in processes:
                    process.wait(10)
            for step, loss in printed(processes[0].output()).items():
                got[step] = loss
                self.assertAlmostEqual(loss, want[step], delta=1e-5, msg=f"step {step}")
        self.assertEqual(sorted(got), list(range(1, self.STEPS + 1)))
        for name, values in weights.items():
            for a, b in zip(tensors(model_dir, self.STEPS)[name], values):
                self.assertAlmostEqual(float(a), float(b), delta=1e-5, msg=name)

    # ---- On parameter servers

    def run_on_servers(self, job, code=0):
        """One worker, which is the chief too, and one server; the worker's output."""
        cluster = self.cluster(1, chief=False, ps=1)
        worker = self.start(cluster, "worker:0", job, binary=WORKER)
        server = self.start(cluster, "ps:0", job, binary="muster-ps")
        self.finish([worker, server], code=code)
        return worker.output()

    SERVED = {"strategy": "parameter_server", "program": "calls", "global_batch_size": 4, "max_steps": 5}
    REFUSED = {
        "next": "next was called for 2 steps over a batch, but workers of a parameter-server job do not meet: "
                "a lease is one step, so make them within it",
        "next_of": "next was called for a dataset besides the splits, but workers of a parameter-server job do not meet: "
                   "the chief leases examples of the splits alone",
        "step": "step was called without a batch: call next() first",
        "evaluate": "evaluate was called, but workers of a parameter-server job do not meet: "
                    "the chief has them evaluate at the end of each epoch",
        "reduce": "reduce was called, but workers of a parameter-server job do not meet: "
                  "use report() or a metric, which the chief adds up",
        "reduce_axis": "reduce was called, but workers",
        "reduce_sum": "reduce was called, but workers",
        "gather": "gather was called, but workers of a parameter-server job do not meet: "
                  "use report() or a metric, which the chief adds up",
        "finish": "finish was called, but workers of a parameter-server job do not meet: the chief ends the job, as max_steps says",
        "return": "run() returned before next() was false, but workers of a parameter-server job do not meet: "
                  "the chief ends a parameter-server job, so call next() until it does, or set max_steps",
    }

    def test_servers_refuse_by_name_what_needs_all_replicas(self):
        for call, words in self.REFUSED.items():
            with self.subTest(call):
                output = self.run_on_servers(self.job(**self.SERVED, program_args={"call": call}), code=1)
                self.assertIn(words, output.splitlines()[-1])
        output = self.run_on_servers(self.job(**self.SERVED, program_args={"call": "named"}), code=2)
        self.assertIn('the program declares the dataset "more" besides its splits', output.splitlines()[-1])

    def test_servers_find_at_a_pass_what_was_registered_late(self):
        output = self.run_on_servers(self.job(**self.SERVED, program_args={"call": "late"}), code=1)
        self.assertIn('buffer "net.late" was registered or replaced after build()', output.splitlines()[-1])

    def test_servers_refuse_a_batch_of_one_that_is_normalised_in_the_first_step(self):
        """12 examples, 11 in a batch."""
        for section in {}, {"max_staleness": 1}:
            job = self.job(**{**self.SERVED, "global_batch_size": 11}, program_args={"call": "norm"}, parameter_server=section)
            output = self.run_on_servers(job, code=2)
            self.assertIn("the last batch of an epoch, 1 example for 1 replica, leaves a worker a single example, of which", output.splitlines()[-1])
            self.assertNotIn("step 1 loss", output)
        for keys in {"drop_remainder": True}, {"global_batch_size": 4}:
            self.run_on_servers(self.job(**{**self.SERVED, "global_batch_size": 11, **keys}, program_args={"call": "norm"}))

    def test_on_servers_a_loop_is_alone_with_its_batch(self):
        for section in {}, {"max_staleness": 1}:
            with self.subTest(section):
                output = self.run_on_servers(self.job(**self.SERVED, parameter_server=section))
                lines = re.findall(r"^step (\d+) loss \S+ of replica (.*)$", output, re.MULTILINE)
                self.assertEqual(lines, [(str(n), f"0/1 at cpu with [4] examples, 1 local: [{n}]") for n in range(1, 6)])

    def test_a_test_pass_every_few_epochs_and_what_passes_report_on_servers(self):
        """The results are those of one process, with a bound on the staleness and without."""
        keys = {"program": "tested", "global_batch_size": 3, "max_steps": None, "epochs": 5}
        curves = {}
        for name, more in ("alone", {}), ("served", {"strategy": "parameter_server"}), \
                ("bounded", {"strategy": "parameter_server", "parameter_server": {"max_staleness": 1}}):
            model_dir = self.dir / f"tested-{name}"
            job = self.job(**keys, **more, model_dir=str(model_dir))
            if name == "alone":
                self.finish(self.start_run(["cpu"], job))
            else:
                self.run_on_servers(job)
            curves[name] = {(split, tag): curve(model_dir, split, f"epoch_{tag}")
                            for split in ("validation", "test") for tag in ("loss", "worst(loss)", "target")}
            self.assertIn("worst(loss)", result(model_dir)["metrics"]["test"])
        want = curves["alone"]
        # 3 steps an epoch, of 7 examples; after epochs 2 and 4, and at the end.
        self.assertEqual(sorted(want["test", "loss"]), [6, 12, 15])
        self.assertEqual(sorted(want["validation", "loss"]), [3, 6, 9, 12, 15])
        for name in "served", "bounded":
            for key, values in want.items():
                with self.subTest(name, key=key):
                    self.check_close(curves[name][key], values)

    def test_finish_ends_the_job_and_a_restart_says_so(self):
        model_dir = self.dir / "model"
        job = self.job(**{**self.STREAM, "model_dir": str(model_dir), "checkpoint": {"every_steps": 7},
                          "program_args": {"finish_after": 7}})
        self.finish(self.start_run(["cpu", "cpu"], job))
        got = result(model_dir)
        self.assertEqual((got["status"], got["steps"], got["finished"]), ("completed", 7, True))
        self.assertEqual(checkpoints(model_dir), [7])
        again = self.start_run(["cpu", "cpu"], job)
        self.finish(again)
        self.assertIn("was trained to its end before: step 7", again[0].output())
        self.assertEqual(printed(again[0].output()), {})
        # A longer job continues.
        longer = self.start_run(["cpu", "cpu"], job, ["epochs=3", "max_steps=9"])
        self.finish(longer)
        self.assertEqual(sorted(printed(longer[0].output())), [8, 9])
        self.assertNotIn("finished", result(model_dir))


if __name__ == "__main__":
    unittest.main()
