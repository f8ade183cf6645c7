"""`muster trace`: the spans of all tasks of a running job in the same steps, on one clock; a task that does not answer is named."""
import collections
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

import trace_check
from harness import BIN, CONFIGURATION, PREEMPTED, RETRYABLE, ClusterTest, Process, main
from trace_check import overlap

LONG = {"max_steps": 10_000_000, "epochs": 1_000_000, "summary": {"every_steps": 100000}}
# Seconds by which the clock of the second process differs.
SHIFT = 5000
# Runs a command like a process of another host on the same network: with shared memory of its own, and with another clock.
APART = ["unshare", "--mount", "--ipc", "--time", "--monotonic", str(SHIFT), "--fork", "--kill-child",
         "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]


def may_be_apart():
    return shutil.which("unshare") is not None and subprocess.run(APART + ["true"], capture_output=True).returncode == 0


class TraceTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.model_dir = self.dir / "model"
        self.output = self.dir / "trace.json"

    def trace(self, target, *arguments, code=0, environment=None):
        """Runs the command; its output and errors, and what is in its file if it wrote one."""
        self.output.unlink(missing_ok=True)
        done = subprocess.run([BIN / "muster", "trace", str(target), "-o", self.output, *arguments], capture_output=True, text=True, timeout=90,
                              env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.said = done.stdout + done.stderr
        return trace_check.read(self.output) if code == 0 else None

    def running(self, cluster, job, **how):
        """Starts all tasks; they have made steps when it returns."""
        processes = [self.start(cluster, f"{kind}:{i}", job, **how) for kind, addresses in cluster.items() for i in range(len(addresses))]
        if "ps" in cluster:
            processes[0].wait_for("saved step", timeout=60)
            return processes
        for process in processes:
            process.wait_for("Number of devices", timeout=60)
        return processes

    def spans(self, trace, category, task=None):
        names = [pid for pid, name in trace["processes"].items() if task is None or name.startswith(task)]
        return [span for span in trace["spans"] if span["cat"] == category and span["pid"] in names]


class Trace(TraceTest):
    def test_two_processes_on_one_host(self):
        cluster = self.cluster(1)
        self.running(cluster, self.job(**LONG, model_dir=str(self.model_dir)))
        trace = self.trace(cluster["chief"][0], "--steps", "5")
        self.assertRegex(self.said, r"trace.json: steps \d+ to \d+ of chief 0, worker 0\. Open it in Perfetto")
        self.assertEqual([re.match(r"\w+ \d", name)[0] for name in trace["processes"].values()], ["chief 0", "worker 0"])
        tasks = trace["other"]["tasks"]
        self.assertEqual(tasks[0]["last_step"] - tasks[0]["first_step"], 4)
        for task in tasks:
            self.assertEqual((task["first_step"], task["last_step"], task["lost_spans"]), (tasks[0]["first_step"], tasks[0]["last_step"], 0))
            self.assertEqual((task["clock"]["shared"], task["clock"]["offset_us"]), (True, 0))
        steps = set(range(tasks[0]["first_step"], tasks[0]["last_step"] + 1))
        for task in "chief 0", "worker 0":
            for category in "step", "input", "train_step", "forward", "backward", "wait for reductions", "update", "reduce bucket":
                self.assertEqual({span["args"]["step"] for span in self.spans(trace, category, task)} & steps, steps, f"{category} of {task}")
        self.check_nested(trace)
        self.check_collectives(trace)
        # An epoch has 200 steps, and ends with a save.
        longer = self.trace(cluster["chief"][0], "--steps", "400")
        for category in "snapshot", "save":
            self.assertTrue(self.spans(longer, category, "chief 0"), category)
            self.assertFalse(self.spans(longer, category, "worker 0"), category)
        # The chief has kept it, and the run is not over: who asks in model_dir gets a new one.
        first_kept, kept = sorted((self.model_dir / "trace").iterdir())
        self.assertEqual(kept.read_bytes(), self.output.read_bytes())
        again = self.trace(self.model_dir, "--steps", "2")
        first = again["other"]["tasks"][0]
        self.assertEqual(first["last_step"] - first["first_step"], 1)
        self.assertGreater(first["first_step"], tasks[0]["last_step"])
        self.assertEqual(sorted(path.name for path in (self.model_dir / "trace").iterdir()),
                         [first_kept.name, kept.name, f"step-{first['first_step']:08}.json"])

    def check_nested(self, trace):
        """Each span of a step lies in a step's span of the same thread; backward in the program's."""
        outer = {"train_step": "step", "forward": "train_step", "backward": "train_step", "update": "step", "wait for reductions": "step"}
        for span in trace["spans"]:
            if span["cat"] not in outer:
                continue
            around = [s for s in trace["spans"] if s["cat"] == outer[span["cat"]] and (s["pid"], s["tid"]) == (span["pid"], span["tid"])
                      and s["ts"] <= span["ts"] + 0.002 and span["ts"] + span["dur"] <= s["ts"] + s["dur"] + 0.002]
            self.assertEqual(len(around), 1, f"{span} lies in {around}")

    def check_collectives(self, trace, slack=0.0):
        """An operation ends at nobody before all have begun it: clocks that disagree would show it ended before."""
        by_number = collections.defaultdict(list)
        for span in trace["spans"]:
            if "sequence" in span["args"]:
                by_number[span["args"]["sequence"]].append(span)
        shared = [spans for spans in by_number.values() if len(spans) == len(trace["processes"])]
        self.assertGreaterEqual(len(shared), 3)
        for spans in shared:
            self.assertGreater(overlap(spans[0], spans[1]), -slack, spans)
            self.assertEqual(spans[0]["name"], spans[1]["name"])

    @unittest.skipUnless(may_be_apart(), "namespaces for mounts, IPC and time are not permitted here")
    def test_two_hosts_with_other_clocks_show_the_overlap_of_reductions_with_backward(self):
        self.process_class = lambda name, command, *rest, **how: Process(name, APART + command if name == "worker:0" else command, *rest, **how)
        cluster = self.cluster(1)
        # Several buckets, and a backward pass that takes a while after the first of them.
        self.running(cluster, self.job(**LONG, program="fashion_mnist", program_args={"train_examples": 2000, "validation": 100},
                                       global_batch_size=128, collective={"bucket_bytes": 65536, "first_bucket_bytes": 1024},
                                       model_dir=str(self.model_dir)),
                     environment={"OMP_NUM_THREADS": "1"})
        overlapping = 0
        for _ in range(5):
            trace = self.trace(self.model_dir, "--steps", "5")
            clock = trace["other"]["tasks"][1]["clock"]
            self.assertEqual(clock["shared"], False)
            self.assertAlmostEqual(clock["offset_us"] / 1e6, -SHIFT, delta=0.1)
            self.assertLess(clock["error_us"], 100_000)
            self.check_nested(trace)
            self.check_collectives(trace, slack=2 * clock["error_us"])
            self.assertGreater(len({span["name"] for span in self.spans(trace, "reduce bucket")}), 2, "several buckets")
            for backward in self.spans(trace, "backward"):
                overlapping += sum(overlap(backward, bucket) > 0 for bucket in self.spans(trace, "reduce bucket") if bucket["pid"] == backward["pid"])
            if overlapping:
                break
        self.assertGreater(overlapping, 0, "no reduction runs while the backward pass does")

    def test_a_frozen_member_is_named(self):
        cluster = self.cluster(2)
        job = self.job(**LONG, model_dir=str(self.model_dir), timeouts={"heartbeat": 60})
        _, _, frozen = self.running(cluster, job)
        self.trace(cluster["chief"][0], "--steps", "1")
        frozen.signal(signal.SIGSTOP)
        started = time.monotonic()
        self.trace(cluster["chief"][0], "--timeout", "4", code=RETRYABLE)
        self.assertLess(time.monotonic() - started, 20)
        self.assertIn("left out: worker 1: it did not answer within 2 s", self.said)
        for other in "chief 0", "worker 0":  # They wait for it in the same step.
            self.assertIn(f"left out: {other}: it began none of the steps within 4 s", self.said)
        frozen.signal(signal.SIGCONT)
        self.trace(cluster["chief"][0], "--steps", "3")
        self.assertNotIn("left out", self.said)

    def test_a_chief_that_replaces_a_lost_one_is_asked(self):
        cluster = self.cluster(1)
        job = self.job(**LONG, model_dir=str(self.model_dir))
        chief, worker = self.running(cluster, job)
        self.trace(cluster["chief"][0], "--steps", "1")
        chief.signal(signal.SIGKILL)
        chief.wait(5)
        self.start(cluster, "chief:0", job).wait_for("Number of devices", timeout=60)
        for _ in range(10):  # The worker calls the new chief within two seconds.
            trace = self.trace(self.model_dir, "--steps", "3")
            if len(trace["processes"]) == 2:
                break
        self.assertNotIn("left out", self.said)
        self.check_collectives(trace)

    def test_a_finished_run_gives_its_last_trace(self):
        cluster = self.cluster(1)
        processes = self.running(cluster, self.job(**LONG, model_dir=str(self.model_dir)))
        self.trace(cluster["chief"][0], "--steps", "2")
        kept = self.output.read_bytes()
        processes[0].signal(signal.SIGTERM)
        self.finish(processes, code=PREEMPTED)
        self.trace(self.model_dir)
        self.assertIn("the run has ended: this is its last trace", self.said)
        self.assertEqual(self.output.read_bytes(), kept)
        self.trace(cluster["chief"][0], "--timeout", "1", code=RETRYABLE)
        self.assertIn("cannot reach the chief at", self.said)

    def test_a_run_that_has_not_ended_gives_no_old_trace(self):
        cluster = self.cluster(1)
        chief, worker = self.running(cluster, self.job(**LONG, model_dir=str(self.model_dir), timeouts={"heartbeat": 60}))
        self.trace(cluster["chief"][0], "--steps", "2")
        chief.signal(signal.SIGSTOP)
        self.trace(self.model_dir, code=RETRYABLE)
        self.assertIn("no chief accepted the request within 5 s, and the run in", self.said)
        self.assertFalse(self.output.exists())
        self.assertEqual(len(list((self.model_dir / "trace").iterdir())), 1, "the request is gone")
        # Neither of two requests while it is stopped replaces the other.
        both = [subprocess.Popen([BIN / "muster", "trace", self.model_dir, "-o", self.dir / f"{i}.json"], stderr=subprocess.PIPE, text=True)
                for i in range(2)]
        said = [process.communicate(timeout=30)[1] for process in both]
        self.assertEqual([process.returncode for process in both], [RETRYABLE] * 2, said)
        self.assertEqual([sum(text in one for one in said) for text in ("another request is pending in", "no chief accepted the request")], [1, 1], said)
        self.assertEqual(len(list((self.model_dir / "trace").iterdir())), 1, "the requests are gone")
        chief.signal(signal.SIGCONT)
        # Meanwhile the worker stands still, so the first of two requests takes until its limit.
        worker.signal(signal.SIGSTOP)
        first = subprocess.Popen([BIN / "muster", "trace", self.model_dir, "-o", self.dir / "first.json", "--timeout", "8"],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        time.sleep(3)
        self.trace(self.model_dir, code=RETRYABLE)
        self.assertIn("another trace is being recorded", self.said)
        worker.signal(signal.SIGCONT)
        self.assertEqual(first.wait(30), 0, first.stdout.read())
        first.stdout.close()

    def test_nothing_to_trace(self):
        self.trace(self.dir / "nowhere", code=CONFIGURATION)
        self.assertIn("is neither a folder nor an address HOST:PORT", self.said)
        self.trace(self.dir, code=CONFIGURATION)
        self.assertIn("no run has begun there, and", self.said)
        self.train(1, self.job())
        model_dir = next(self.dir.glob("model-*"))
        self.trace(model_dir, code=CONFIGURATION)
        self.assertIn("the run has ended, and", self.said)
        self.assertIn("has no trace: request one while the job runs", self.said)

    def test_with_parameter_servers(self):
        cluster = self.cluster(2, ps=2)
        self.running(cluster, self.job(**LONG, strategy="parameter_server", model_dir=str(self.model_dir)))
        trace = self.trace(cluster["chief"][0], "--steps", "4")
        self.assertEqual(sorted(re.match(r"\w+ \d", name)[0] for name in trace["processes"].values()), ["ps 0", "ps 1", "worker 0", "worker 1"])
        for task in "worker 0", "worker 1":
            for category in "step", "input", "forward", "backward", "push and pull chunk":
                self.assertTrue(self.spans(trace, category, task), f"{category} of {task}")
            inputs, steps = ({span["args"]["step"] for span in self.spans(trace, category, task)} for category in ("input", "step"))
            self.assertEqual((len(steps), inputs & steps), (4, steps), "a step begins with its input")
        self.assertTrue(self.spans(trace, "update chunk"))

    def test_the_run_key_is_asked_for(self):
        key = str(self.run_key())
        cluster = self.cluster(1)
        job = self.job(**LONG, security={"key_file": key})
        self.running(cluster, job)
        address = cluster["chief"][0]
        self.trace(address, code=CONFIGURATION)
        self.assertIn("requires an identity: name its run key with --key-file", self.said)
        self.trace(address, "--steps", "2", "--key-file", key)
        self.trace(address, "--steps", "2", "--job", str(job))


if __name__ == "__main__":
    main()
