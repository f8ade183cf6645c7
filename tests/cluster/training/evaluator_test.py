"""The evaluator in real processes: its numbers are validation's, it never disturbs training, and it ends with the job.

gated_role.cc is chief, worker and evaluator of a small job. Its training and its evaluation wait at gates, files that a test
makes, so that what happens in which order is decided here and not by the machine's load.
"""
import itertools
import os
import signal
import time
import unittest

from harness import BIN, CONFIGURATION, PREEMPTED, RETRYABLE, ClusterTest, ask_to_stop, result, scalars, task_pids

ROLE = "../tests/gated_role"
STEPS_PER_EPOCH = 5  # 60 examples by 12
NOT_BY_SILENCE = {"heartbeat": 600}  # a death is seen at once, however slow the machine


def curves(model_dir, run):
    """Returns {tag: {step: value}} of a run folder. No step may be recorded twice."""
    return scalars(model_dir, run, purged=False)


class Evaluator(ClusterTest):
    def setUp(self):
        super().setUp()
        self.model_dir = self.dir / "model"

    def job(self, epochs=4, gates=None, **keys):
        gates = {str(step): str(self.gate(name)) for step, name in (gates or {}).items()}
        return super().job(**{"program": "gated", "program_args": {"gates": gates}, "global_batch_size": 12, "max_steps": None,
                              "epochs": epochs, "model_dir": str(self.model_dir), **keys})

    def gate(self, name):
        return self.dir / f"gate-{name}"

    def open(self, name):
        self.gate(name).touch()

    def reached(self, name, timeout=30):
        reached, deadline = self.dir / f"gate-{name}.reached", time.monotonic() + timeout
        while not reached.exists():
            self.assertLess(time.monotonic(), deadline, f"nobody reached the gate {name}:\n" + self.outputs())
            time.sleep(0.02)

    def outputs(self):
        return "\n".join(f"--- {p.name}\n{p.output()}" for p in self.processes)

    def members(self, cluster, job, sets=()):
        return [self.start(cluster, f"{kind}:{i}", job, sets, binary=ROLE)
                for kind, addresses in cluster.items() if kind != "evaluator" for i in range(len(addresses))]

    def evaluator(self, cluster, job, sets=(), **environment):
        return self.start(cluster, "evaluator:0", job, sets, environment, binary=ROLE)

    # ---- what it tells

    def test_its_numbers_are_those_of_validation_and_mark_the_best(self):
        for workers in 0, 1, 2:
            with self.subTest(workers=workers):
                self.model_dir = self.dir / f"model-{workers}"
                cluster = self.cluster(workers)
                # The second epoch waits until the first one's checkpoint is evaluated, so that there is more than the last.
                job = self.job(gates={STEPS_PER_EPOCH + 1: f"first-{workers}"}, checkpoint={"best": "absolute_error"})
                processes = self.members(cluster, job)
                # However many examples it takes at once.
                evaluator = self.evaluator(cluster, job, ["evaluate.batch_size=7"] if workers == 2 else ())
                evaluator.wait_for("step-00000005: ")
                processes[0].wait_for("step-00000005 was evaluated")
                self.open(f"first-{workers}")
                self.finish(processes + [evaluator])
                evaluated, validated = curves(self.model_dir, "eval"), curves(self.model_dir, "validation")
                self.assertEqual(set(evaluated), {"epoch_loss", "epoch_absolute_error"})
                for tag, points in evaluated.items():
                    self.assertIn(5, points)
                    self.assertIn(20, points, "the final checkpoint is always evaluated")
                    for step, value in points.items():
                        self.assertAlmostEqual(value, validated[tag][step], places=6)
                got = result(self.model_dir)
                for name in "loss", "absolute_error":
                    self.assertAlmostEqual(got["metrics"]["eval"][name], got["metrics"]["validation"][name], places=6)
                errors = evaluated["epoch_absolute_error"]
                best = min(errors, key=errors.get)
                self.assertEqual(got["best_checkpoint"], f"checkpoints/step-{best:08}")

    def test_without_one_the_best_validation_is_saved_whatever_the_intervals_say(self):
        servers = {"strategy": "parameter_server", "parameter_server": {"max_staleness": 1}}
        for name, keys in ("alone", {}), ("members", {}), ("servers", servers):
            for rate, improves in (0.02, True), (1.5, False):
                with self.subTest(name, rate=rate):
                    self.model_dir = self.dir / f"model-{name}-{rate}"
                    job = self.job(checkpoint={"every_steps": 1000, "keep": 10}, optimizer="sgd", learning_rate=rate, **keys)
                    if name == "servers":
                        cluster = self.cluster(1, chief=False, ps=1)
                        processes = [self.start(cluster, "worker:0", job, binary=ROLE), self.start(cluster, "ps:0", job, binary="muster-ps")]
                    else:
                        processes = self.members(self.cluster(1 if name == "members" else 0), job)
                    self.finish(processes)
                    losses = curves(self.model_dir, "validation")["epoch_loss"]
                    best = min(losses, key=losses.get)
                    self.assertEqual(sorted(losses), [5, 10, 15, 20])
                    self.assertEqual(best == 20, improves, losses)
                    better = [step for step in losses if all(losses[step] < losses[before] for before in losses if before < step)]
                    saved = sorted(int(p.name.split("-")[1]) for p in (self.model_dir / "checkpoints").glob("step-*"))
                    self.assertEqual(saved, sorted({*better, 20}), "those that were better than all before, and the last")
                    self.assertEqual(result(self.model_dir)["best_checkpoint"], f"checkpoints/step-{best:08}")

    def test_falling_behind_it_takes_the_newest_and_the_final_one(self):
        cluster = self.cluster(1)
        job = self.job(gates={2: "start", 13: "late"}, checkpoint={"every_steps": 2, "keep": 2})
        processes = self.members(cluster, job)
        evaluator = self.evaluator(cluster, job, GATED_EVALUATE=str(self.gate("evaluate")))
        evaluator.wait_for("following the checkpoints")
        self.open("start")
        self.reached("evaluate")  # with the first checkpoint in hand
        in_hand = sorted(p.name for p in (self.model_dir / "checkpoints").glob("step-*"))
        self.reached("late")  # checkpoints up to step 12 are there, or on their way
        self.open("late")
        processes[0].wait_for("waits for evaluator 0 to evaluate step-")
        self.open("evaluate")
        self.finish(processes + [evaluator])
        steps = sorted(curves(self.model_dir, "eval")["epoch_loss"])
        self.assertEqual(len(steps), 2, steps)
        self.assertEqual(steps[-1], 20)
        self.assertLess(steps[0], 20)
        self.assertIn(f"step-{steps[0]:08}", in_hand)

    def test_a_checkpoint_in_hand_is_not_deleted(self):
        cluster = self.cluster(0)
        job = self.job(gates={3: "start"}, checkpoint={"every_steps": 2, "keep": 1})
        chief, = self.members(cluster, job)
        evaluator = self.evaluator(cluster, job, GATED_EVALUATE=str(self.gate("evaluate")))
        self.reached("evaluate")
        self.open("start")
        chief.wait_for("waits for evaluator 0")
        kept = sorted(p.name for p in (self.model_dir / "checkpoints").glob("step-*"))
        self.assertIn("step-00000002", kept)
        self.open("evaluate")
        self.finish([chief, evaluator])
        self.assertEqual(sorted(curves(self.model_dir, "eval")["epoch_loss"]), [2, 20])

    def test_without_access_to_model_dir_it_fetches(self):
        # The path leads somewhere else in every process: to its own working directory.
        cluster = self.cluster(1)
        self.model_dir = "/proc/self/cwd/model"
        job = self.job(gates={2: "start"})
        here = os.getcwd()
        try:
            os.chdir(self.dir)
            processes = self.members(cluster, job)
            elsewhere = self.dir / "elsewhere"
            elsewhere.mkdir()
            os.chdir(elsewhere)
            private = self.dir / "private"
            private.mkdir()
            evaluator = self.evaluator(cluster, job, TMPDIR=str(private))
        finally:
            os.chdir(here)
        evaluator.wait_for("following the checkpoints")
        self.open("start")
        self.finish(processes + [evaluator])
        self.assertIn("fetched from the chief", evaluator.output())
        self.assertEqual(list(elsewhere.iterdir()), [])
        self.assertEqual(list(private.iterdir()), [], "what was fetched is removed")
        model_dir = self.dir / "model"
        validated = curves(model_dir, "validation")
        for tag, points in curves(model_dir, "eval").items():
            self.assertIn(20, points)
            for step, value in points.items():
                self.assertAlmostEqual(value, validated[tag][step], places=6)

    # ---- what does not disturb training

    def test_never_started_it_is_not_waited_for(self):
        cluster = {**self.cluster(1), "evaluator": ["127.0.0.1:1"]}
        self.finish(self.members(cluster, self.job()))
        self.assertFalse((self.model_dir / "eval").exists())

    def in_the_middle(self, **keys):
        """A job of two members at step 8, the evaluator at work on the checkpoint of step 5."""
        self.cluster_spec = self.cluster(1)
        self.job_file = self.job(gates={8: "middle"}, **keys)
        processes = self.members(self.cluster_spec, self.job_file)
        evaluator = self.evaluator(self.cluster_spec, self.job_file, GATED_EVALUATE=str(self.gate("evaluate")))
        self.reached("evaluate")
        self.reached("middle")
        return processes, evaluator

    def test_killed_in_the_middle(self):
        processes, evaluator = self.in_the_middle(timeouts=NOT_BY_SILENCE)
        evaluator.signal(signal.SIGKILL)
        evaluator.wait(5)
        processes[0].wait_for("is lost, and the job continues without it")
        self.open("middle")
        self.finish(processes)
        self.assertEqual(result(self.model_dir)["status"], "completed")

    def test_killed_while_the_chief_waits_for_it(self):
        processes, evaluator = self.in_the_middle(timeouts=NOT_BY_SILENCE)
        self.open("middle")
        processes[0].wait_for("waits for evaluator 0")
        evaluator.signal(signal.SIGKILL)
        evaluator.wait(5)
        self.finish(processes)

    def test_frozen_while_the_chief_waits_for_it(self):
        processes, evaluator = self.in_the_middle(timeouts={"heartbeat": 2, "join": 3})
        self.open("middle")
        processes[0].wait_for("waits for evaluator 0")
        evaluator.signal(signal.SIGSTOP)
        self.finish(processes)
        self.assertIn("no heartbeat for", processes[0].output())
        evaluator.signal(signal.SIGCONT)  # finds no chief any more
        self.open("evaluate")
        self.finish([evaluator], code=RETRYABLE)

    def test_too_slow_for_timeouts_evaluate(self):
        processes, evaluator = self.in_the_middle(timeouts={"evaluate": 1})
        self.open("middle")
        self.finish(processes)
        self.assertIn("did not evaluate the final checkpoint within 1 s (timeouts.evaluate)", processes[0].output())
        self.finish([evaluator])  # its program does not come back: it ends with the job's code all the same

    def test_killed_and_started_again_it_goes_on_with_the_newest(self):
        processes, evaluator = self.in_the_middle()
        evaluator.signal(signal.SIGKILL)
        evaluator.wait(5)
        again = self.evaluator(self.cluster_spec, self.job_file)
        processes[0].wait_for("step-00000005 was evaluated")
        self.open("middle")
        self.finish(processes + [again])
        self.assertIn(20, curves(self.model_dir, "eval")["epoch_loss"])

    def failing(self, **environment):
        cluster = self.cluster(1)
        job = self.job(gates={8: "middle"})
        processes = self.members(cluster, job)
        evaluator = self.evaluator(cluster, job, **environment)
        self.finish([evaluator], code=RETRYABLE)
        processes[0].wait_for("evaluator 0 on host")
        self.open("middle")
        self.finish(processes)
        return evaluator.output(), processes[0].output()

    def test_its_own_failure_is_138_and_named(self):
        own, chief = self.failing(GATED_EVALUATE_THEN="throw")
        self.assertRegex(own, r"ROOT CAUSE: evaluator 0 on host \S+ \(step 5, evaluate\): eval_step failed: no more luck")
        self.assertRegex(chief, r"evaluator 0 on host \S+ left, and the job continues without it: eval_step failed: no more luck")
        self.assertNotIn("ROOT CAUSE", chief)

    def test_a_program_that_it_cannot_build_is_138_and_named(self):
        own, chief = self.failing(GATED_BUILD="throw")
        self.assertRegex(own, r"ROOT CAUSE: evaluator 0 on host \S+: .*no such data here")
        self.assertIn("no such data here", chief)

    def test_sigterm_ends_it_alone(self):
        processes, evaluator = self.in_the_middle()
        evaluator.signal(signal.SIGTERM)
        self.finish([evaluator], code=PREEMPTED)  # in the middle of a pass that does not come back
        processes[0].wait_for("asked to stop")
        self.open("middle")
        self.finish(processes)

    # ---- how it ends with the job

    def test_a_stopped_job_ends_it_without_a_final_evaluation(self):
        processes, evaluator = self.in_the_middle()
        ask_to_stop(processes[0])
        self.open("middle")
        self.finish(processes + [evaluator], code=PREEMPTED)
        self.assertNotIn("waits for evaluator", processes[0].output())
        self.assertFalse((self.model_dir / "eval").exists())

    def test_a_failed_job_ends_it_with_the_reason(self):
        processes, evaluator = self.in_the_middle(timeouts={"rejoin": 1})
        processes[1].signal(signal.SIGKILL)
        self.finish([processes[0], evaluator], code=RETRYABLE)
        self.assertIn("stopped because of worker 0", evaluator.output())
        self.assertNotIn("ROOT CAUSE", evaluator.output())

    def test_any_start_order(self):
        for number, order in enumerate(itertools.permutations(("chief:0", "worker:0", "evaluator:0"))):
            with self.subTest(order):
                self.model_dir = self.dir / f"model-{number}"
                cluster, job, processes = self.cluster(1), self.job(gates={2: f"start-{number}"}), {}
                for task in order:
                    processes[task] = self.start(cluster, task, job, binary=ROLE)
                    if task != "evaluator:0":  # which logs nothing before it has reached the chief
                        processes[task].wait_for("data connections use")
                processes["evaluator:0"].wait_for("following the checkpoints")
                self.open(f"start-{number}")
                self.finish(processes.values())
                self.assertIn(20, curves(self.model_dir, "eval")["epoch_loss"])

    # ---- what is refused

    def refused(self, cluster, task, binary, words):
        process = self.start(cluster, task, self.job(), binary=binary)
        self.finish([process], code=CONFIGURATION)
        self.assertIn(words, process.output())
        self.assertIn("ROOT CAUSE", process.output())

    def test_wrong_binaries_tasks_and_clusters(self):
        cluster = self.cluster(1)
        self.refused(cluster, "worker:0", "muster-evaluator", "start muster-worker for this task")
        self.refused(cluster, "evaluator:0", "muster-worker", "start muster-evaluator for this task")
        self.refused(cluster, "evaluator:1", ROLE, "a cluster has one evaluator")
        self.refused({}, "evaluator:0", ROLE, "cluster is missing or empty")
        chief = self.start(cluster, "chief:0", self.job(), binary=ROLE)
        chief.wait_for("joined")
        other = {**cluster, "worker": ["127.0.0.1:1"]}
        self.refused(other, "evaluator:0", ROLE, "another cluster than the chief")

    def test_a_second_evaluator_waits_for_its_place_and_gives_up(self):
        processes, evaluator = self.in_the_middle()
        second = self.evaluator(self.cluster_spec, self.job_file, sets=["timeouts.join=1"])
        self.finish([second], code=RETRYABLE)
        self.assertIn("another process is evaluator 0 already", second.output())
        self.open("middle")
        self.open("evaluate")
        self.finish(processes + [evaluator])

    # ---- muster launch

    def test_launched_and_killed(self):
        binaries = self.dir / "bin"
        binaries.mkdir()
        for role in "chief", "worker", "evaluator":
            (binaries / f"muster-{role}").symlink_to(BIN / ROLE)
        job = self.job(gates={8: "middle"})
        launch = self.start_launch("--workers", 1, "--evaluator", "--bin-dir", binaries, "--job", job,
                                   environment={"GATED_EVALUATE": str(self.gate("evaluate"))})
        self.reached("evaluate")
        self.reached("middle")
        os.kill(task_pids(launch)["evaluator:0"], signal.SIGKILL)
        self.open("middle")
        self.finish([launch])
        self.assertIn("evaluator 0 was killed by SIGKILL: the job continues without it", launch.output())
        self.assertIn("is lost, and the job continues without it", (self.model_dir / "logs" / "chief-0.log").read_text())
        self.assertTrue((self.model_dir / "logs" / "evaluator-0.log").exists())
        self.assertRegex(launch.output(), r"muster: checkpoint \S+/checkpoints/step-00000020")


if __name__ == "__main__":
    unittest.main(verbosity=2)
