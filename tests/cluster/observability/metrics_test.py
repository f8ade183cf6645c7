"""/metrics of real processes, as Prometheus' own parser and promtool read it, and stragglers."""
import glob
import os
import re
import signal
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

import harness
from harness import BIN, PREEMPTED, SOURCE, ClusterTest, events
from ports import consecutive_ports

# Pure Python, of the test tools; TensorBoard is in the other environment.
sys.path += glob.glob(f"{os.environ.get('MUSTER_TOOLS_VENV', '')}/lib/python3*/site-packages")
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402
sys.path.append(str(SOURCE / "tests" / "interop"))
import promtool  # noqa: E402

PHASES = {"starting", "forming", "data", "forward", "reduce", "update", "evaluate", "save", "ending"}


def golden():
    """{name: (type, labels)}"""
    lines = [line.split() for line in (SOURCE / "tests" / "golden" / "metrics.txt").read_text().splitlines() if line and line[0] != "#"]
    return {name: (kind, {"task", *labels}) for name, kind, *labels in lines}


def get(port, path="/metrics", token=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.read().decode()


def samples(port, **how):
    """{(name, (("label", "value"), ...)): value}, without the label `task`."""
    found = {}
    for family in text_string_to_metric_families(get(port, **how)):
        for sample in family.samples:
            labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "task"))
            assert (sample.name, labels) not in found, f"{sample.name} is there twice"
            found[sample.name, labels] = sample.value
    return found


def moved(found):
    """The transports by which bytes were sent."""
    return {dict(labels)["transport"] for (name, labels), value in found.items() if name == "muster_transport_sent_bytes_total" and value > 0}


class MetricsTest(ClusterTest):
    def until(self, port, wanted, timeout=60, **how):
        """The samples, once `wanted` is true of them."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                found = samples(port, **how)
                if wanted(found):
                    return found
            except (urllib.error.URLError, ConnectionError):
                found = None
            if time.monotonic() > deadline:
                self.fail(f"port {port} never had it; last: {found}")
            time.sleep(0.1)

    def launch(self, first, job, *arguments):
        """`muster launch` with metrics from port `first` on."""
        return self.start_launch("--job", job, "--set", f"status.metrics_port={first}", *arguments)

    def stop(self, process):
        process.signal(signal.SIGINT)
        self.assertEqual(process.wait(60), PREEMPTED, process.output())

    def long_job(self, **keys):
        return self.job(**{"max_steps": 10_000_000, "summary": {"every_steps": 1000}, **keys})


class Synchronous(MetricsTest):
    def test_each_task_serves(self):
        first = consecutive_ports(3)
        model_dir = self.dir / "model"
        job = self.long_job(model_dir=str(model_dir), checkpoint={"every_steps": 200}, collective={"backend": "tcp"})
        launched = self.launch(first, job, "--workers", 2)
        tasks = {"chief:0": first, "worker:0": first + 1, "worker:1": first + 2}
        known = golden()
        for task, port in tasks.items():
            before = self.until(port, lambda found: found.get(("muster_steps_total", ()), 0) > 5)
            after = self.until(port, lambda found: found["muster_steps_total", ()] > before["muster_steps_total", ()])
            for family in text_string_to_metric_families(get(port)):
                self.assertTrue(family.documentation, family.name)
                for sample in family.samples:
                    kind, labels = known[sample.name]
                    self.assertEqual((family.type, set(sample.labels)), (kind, labels), sample.name)
                    self.assertEqual(sample.labels["task"], task)
            self.assertEqual({dict(labels)["phase"] for name, labels in after if name == "muster_phase_seconds_total"}, PHASES)
            for name, labels in before:
                if known[name][0] == "counter":
                    self.assertGreaterEqual(after[name, labels], before[name, labels], name)
            self.assertGreater(after["muster_step", ()], after["muster_steps_total", ()] - 1)
            self.assertGreater(after["muster_examples_total", ()], after["muster_steps_total", ()] - 1)
            for name in "muster_sent_bytes_total", "muster_received_bytes_total", "process_cpu_seconds_total":
                self.assertGreater(after[name, ()], 0, name)
            self.assertEqual(moved(after), {"tcp"})
            self.assertGreater(after["process_resident_memory_bytes", ()], 10 << 20)
            self.assertEqual((after["muster_generations_total", ()], after["muster_restarts_total", ()]), (1, 0))
            train = (("dataset", "train"),)
            self.assertLessEqual(after["muster_input_queue_batches", train], after["muster_input_queue_capacity_batches", train])
            self.assertAlmostEqual(after["process_start_time_seconds", ()], time.time(), delta=120)
        # The chief alone saves, and knows of the members' pace.
        self.until(first, lambda found: found["muster_checkpoints_total", ()] > 0)
        self.assertEqual({dict(labels)["member"] for name, labels in samples(first) if name == "muster_straggler"}, set(tasks))
        self.assertNotIn("muster_straggler", {name for name, _ in samples(first + 1)})
        with self.assertRaises(urllib.error.HTTPError) as refused:
            get(first, "/")
        self.assertEqual(refused.exception.code, 404)
        refused.exception.close()
        self.stop(launched)
        # One curve for each task; no GPU is here.
        tags = {value.tag for event in events(model_dir / "system") for value in event.summary.value}
        each = {f"{what}/{task}" for what in ("cpu_cores", "rss_bytes") for task in ("chief_0", "worker_0", "worker_1")}
        pace = {f"{what}/{task}" for what in ("steps_per_second", "input_share", "wait_share") for task in ("chief_0", "worker_0", "worker_1")}
        self.assertTrue(each <= tags <= each | pace, tags)

    def test_a_straggler_is_named_within_ten_steps(self):
        first, slow_from = consecutive_ports(3), 100
        job = self.long_job()
        launched = self.launch(first, job, "--workers", 2, "--fault", f"slow=300ms@worker:1:step={slow_from}")
        line = launched.matches(r"worker 1 is a straggler at step (\d+): it needs (\d+) ms of a step before it waits for others, "
                                r"and they need (\d+) ms \(median\); they wait for (\d+) % of its time", 60)
        self.assertLessEqual(int(line[1]), slow_from + 10)
        self.assertGreaterEqual(int(line[2]), 300)
        self.assertGreaterEqual(int(line[4]), 80)
        found = self.until(first, lambda found: found["muster_straggler", (("member", "worker:1"),)] == 1)
        self.assertEqual(found["muster_straggler", (("member", "worker:0"),)], 0)
        self.assertEqual(found["muster_straggler", (("member", "chief:0"),)], 0)
        self.assertGreater(samples(first + 2)["muster_local_step_seconds", ()], 0.3)
        self.assertLess(samples(first + 1)["muster_local_step_seconds", ()], 0.3)
        self.assertIn("shared_memory", moved(samples(first + 1)), "members of one host")
        time.sleep(3)
        self.assertEqual(launched.output().count("is a straggler"), 1, "it is named once")
        self.stop(launched)

    def test_the_input_queue_is_full_while_steps_are_slow(self):
        first, train = consecutive_ports(2), (("dataset", "train"),)
        job = self.long_job(data={"threads": 1, "prefetch": 3})
        launched = self.launch(first, job, "--workers", 1, "--fault", "slow=500ms@worker:0:step=20")
        for port in first, first + 1:
            found = self.until(port, lambda found: found.get(("muster_step", ()), 0) > 20 and found["muster_input_queue_batches", train] == 3)
            self.assertEqual(found["muster_input_queue_capacity_batches", train], 3)
        self.stop(launched)

    def test_a_process_alone_serves(self):
        first = consecutive_ports(1)
        alone = self.start(None, None, self.long_job(), [f"status.metrics_port={first}"])
        found = self.until(first, lambda found: found.get(("muster_steps_total", ()), 0) > 5)
        self.assertEqual(found["muster_phase_seconds_total", (("phase", "save"),)], 0)
        alone.signal(signal.SIGTERM)
        self.assertEqual(alone.wait(60), PREEMPTED, alone.output())


class ParameterServers(MetricsTest):
    def test_each_task_serves(self):
        first = consecutive_ports(5)
        job = self.long_job(strategy="parameter_server", model_dir=str(self.dir / "model"))
        launched = self.launch(first, job, "--workers", 2, "--ps", 1, "--evaluator")
        for port in first + 1, first + 2:
            found = self.until(port, lambda found: found.get(("muster_steps_total", ()), 0) > 5)
            self.assertGreater(found["muster_examples_total", ()], 5)
            self.assertIn(("muster_staleness_updates", ()), found)
            self.assertGreaterEqual(found["muster_in_flight_chunks", ()], 0)
            self.assertEqual(found["muster_input_queue_capacity_batches", (("dataset", "train"),)], 1)
            self.assertEqual(moved(found), {"tcp", "shared_memory"})
        ps = self.until(first + 3, lambda found: found["muster_steps_total", ()] > 5)
        self.assertFalse({name for name, _ in ps} & {"muster_staleness_updates", "muster_in_flight_chunks", "muster_input_queue_batches"})
        self.assertEqual(moved(ps), {"tcp", "shared_memory"})
        losses = {f"muster_{what}_total" for what in ("refused_pushes", "torn_pushes", "lost_updates")}
        self.assertFalse({name for name, _ in ps} & losses)
        chief = self.until(first, lambda found: ("muster_torn_pushes_total", ()) in found)
        self.assertEqual({chief[name, ()] for name in losses}, {0})
        # The chief directs, and the evaluator evaluates: "no steps" is no alarm there.
        for port in first, first + 4:
            found = self.until(port, lambda found: found["muster_cpu_cores", ()] >= 0)
            self.assertFalse({("muster_steps_total", ()), ("muster_staleness_updates", ())} & set(found))
        self.stop(launched)


    def test_what_is_lost_of_pushes_is_counted(self):
        first = consecutive_ports(4)
        job = self.long_job(strategy="parameter_server", model_dir=str(self.dir / "model"), checkpoint={"every_steps": 200})
        launched = self.launch(first, job, "--workers", 2, "--ps", 1, "--restart", "on-failure", "--fault", "kill@worker:1:step=100:phase=reduce",
                               "--fault", "kill@ps:0:step=1000")
        self.until(first, lambda found: found.get(("muster_torn_pushes_total", ()), 0) >= 1 and found["muster_lost_updates_total", ()] >= 1)
        self.stop(launched)


@unittest.skipIf(promtool.PROMTOOL is None, promtool.WHY_NOT)
class Promtool(MetricsTest):
    def accepts(self, *ports):
        for port in ports:
            text = get(port)
            self.assertEqual(promtool.complaints("check", "metrics", text=text), "", text)

    def test_it_accepts_each_task(self):
        first, model_dir = consecutive_ports(5), str(self.dir / "model")
        launched = self.launch(first, self.long_job(strategy="parameter_server", model_dir=model_dir), "--workers", 2, "--ps", 1, "--evaluator")
        self.until(first + 1, lambda found: found.get(("muster_steps_total", ()), 0) > 5)
        self.until(first + 4, lambda found: found["muster_cpu_cores", ()] >= 0)
        self.accepts(*range(first, first + 5))
        self.stop(launched)
        first = consecutive_ports(2)
        launched = self.launch(first, self.long_job(), "--workers", 1)
        self.until(first, lambda found: found.get(("muster_steps_total", ()), 0) > 5)
        self.accepts(first, first + 1)
        self.stop(launched)

    def test_it_sees_what_it_looks_for(self):
        for text in "muster_step{ 1\n", "# TYPE muster_steps counter\nmuster_steps 1\n":
            self.assertNotEqual(promtool.complaints("check", "metrics", text=text), "", text)


class Refusals(MetricsTest):
    def refusal(self, *sets):
        done = self.start(self.cluster(1), "worker:0", self.long_job(), sets)
        self.assertEqual(done.wait(60), 2, done.output())
        return done.output()

    def test_bad_ports_and_addresses(self):
        self.assertIn("status.metrics_port is 65535, and this is task 2 of its host, for which it would be 65536: choose a lower one",
                      self.refusal("status.metrics_port=65535"))
        self.assertIn("status.address is 'here': it must be an IP address", self.refusal("status.metrics_port=9400", "status.address=here"))
        (port,) = harness.free_ports(1)
        taken = harness.take_port(f"127.0.0.1:{port}")
        self.addCleanup(taken.close)
        self.assertRegex(self.refusal(f"status.metrics_port={port - 1}", "timeouts.bind=0.1"),
                         rf"cannot listen on 127.0.0.1:{port}: Address already in use; choose another")

    def test_beyond_loopback_a_token_is_needed(self):
        first = consecutive_ports(1)
        key = self.run_key()
        sets = [f"status.metrics_port={first}", "status.address=0.0.0.0", f"security.key_file={key}"]
        chief = self.start(self.cluster(0), "chief:0", self.long_job(), sets)
        chief.wait_for(f":{first}/metrics")
        token = subprocess.run([BIN / "muster", "key", "token", "--key-file", key], check=True, capture_output=True, text=True).stdout.strip()
        self.assertTrue(re.fullmatch(r"[0-9a-f]{64}", token), token)
        self.assertIn(("muster_cpu_cores", ()), samples(first, token=token))
        for wrong in None, token[:-1] + ("0" if token[-1] != "0" else "1"):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                get(first, token=wrong)
            self.assertEqual(refused.exception.code, 401)
            self.assertIn("`muster key token`", refused.exception.read().decode())
        chief.signal(signal.SIGTERM)
        self.assertEqual(chief.wait(60), PREEMPTED, chief.output())


class Dashboard(unittest.TestCase):
    def test_every_metric_of_it_exists(self):
        text = (SOURCE / "deploy" / "grafana" / "muster.json").read_text()
        named = set(re.findall(r"\b(?:muster|process)_[a-z_]+", text))
        self.assertGreater(len(named), 20)
        self.assertEqual(named - set(golden()), set())
        self.assertEqual(set(golden()) - named, set(), "a metric that nobody looks at")

    def test_the_page_describes_every_metric(self):
        page = (SOURCE / "docs" / "metrics.md").read_text()
        self.assertEqual([name for name in golden() if f"`{name}`" not in page], [])


if __name__ == "__main__":
    harness.main()
