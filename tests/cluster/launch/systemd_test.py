"""deploy/systemd: the unit says what it must, systemd accepts it, and its command line and restart rules run a job.

There is no service manager here: `Manager` does what systemd.service(5) says of the keys that the unit uses.
"""
import json
import os
import re
import shutil
import signal
import socket
import time
import unittest

from harness import BIN, PREEMPTED, SOURCE, curve, free_ports, losses, result
from launch_case import LaunchTest

UNIT = SOURCE / "deploy" / "systemd" / "muster@.service"
RUN_KEY = SOURCE / "deploy" / "systemd" / "run-key.conf"  # a drop-in
INSTALLED = "/usr/bin/muster"


def parse(text):
    """{section: {key: [values]}}"""
    unit, section = {}, None
    for line in text.splitlines():
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            section = unit.setdefault(line.strip("[]"), {})
        else:
            key, value = line.split("=", 1)
            section.setdefault(key, []).append(value)
    return unit


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(min|s|h)?", text).groups()
    return int(number) * {"min": 60, "h": 3600}.get(unit, 1)


SERVICE = parse(UNIT.read_text())["Service"]
KEY = parse(RUN_KEY.read_text())["Service"]


def one(key):
    (value,) = SERVICE[key]
    return value


def codes(key):
    return {int(code) for code in one(key).split()}


def restarts(status):
    """Whether a unit with these keys is started again: `status` as subprocess tells it."""
    code = status if status >= 0 else None
    if code in codes("RestartPreventExitStatus"):
        return False
    if code in codes("RestartForceExitStatus"):
        return True
    # on-failure: any code but 0 and SuccessExitStatus, and any signal but those that ask to stop.
    clean = code == 0 or code in codes("SuccessExitStatus") or -status in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)
    return one("Restart") == "on-failure" and not clean


class Unit(unittest.TestCase):
    def published(self):
        lines = (SOURCE / "tests" / "golden" / "exit_codes.txt").read_text().splitlines()
        return {int(line.split()[0]) for line in lines if line and line[0] != "#"}

    def test_the_restart_rules_are_those_of_the_exit_codes(self):
        published = self.published()
        self.assertIn(138, published)
        # Below 128 permanent, from 128 on retryable.
        self.assertEqual({code: restarts(code) for code in published}, {code: code >= 128 for code in published})
        # systemd's own: no such program, no such user, no such credential.
        self.assertEqual([code for code in (127, 203, 217, 243) if restarts(code)], [])
        self.assertTrue(restarts(-signal.SIGKILL))
        self.assertTrue(restarts(-signal.SIGSEGV))
        # A stopped task has not failed.
        self.assertEqual(codes("SuccessExitStatus"), {143})

    def test_the_stop_may_take_as_long_as_a_save(self):
        (minutes,) = re.findall(r"minutes\((\d+)\),\s+// save$", (SOURCE / "common" / "job" / "timeouts.h").read_text(), re.MULTILINE)
        self.assertGreater(seconds(one("TimeoutStopSec")), 60 * int(minutes))
        self.assertEqual(one("KillMode"), "mixed")  # SIGTERM to the task alone

    def test_the_key_is_a_credential_and_never_in_the_unit(self):
        self.assertEqual(KEY, {"LoadCredential": ["run.key:/etc/%p/run.key"], "Environment": ["MUSTER_RUN_KEY_FILE=%d/run.key"]})
        self.assertNotIn("key", one("ExecStart"))
        # Without the drop-in there is none: systemd starts no task whose credential is missing.
        self.assertEqual({"LoadCredential", "Environment"} & set(SERVICE), set())

    def timeouts(self, *keys):
        text = (SOURCE / "docs" / "job_file.md").read_text()
        return (float(re.search(rf"`timeouts.{key}` \| `([\d.]+)`", text)[1]) for key in keys)

    def test_a_task_that_waits_for_nobody_ends(self):
        unit = parse(UNIT.read_text())["Unit"]
        (interval,), (burst,) = unit["StartLimitIntervalSec"], unit["StartLimitBurst"]
        (join,) = self.timeouts("join")
        # The slowest failure that comes again and again: the chief does not come.
        slowest = int(burst) * (seconds(one("RestartSec")) + join)
        self.assertLess(slowest, 0.8 * seconds(interval))
        self.assertGreater(slowest, 6 * 3600)  # a night without the chief's host

    def test_it_starts_after_the_file_systems_of_other_hosts(self):
        unit = parse(UNIT.read_text())["Unit"]
        self.assertEqual(unit["After"], ["network-online.target remote-fs.target"])
        self.assertEqual(unit["Wants"], ["network-online.target"])
        # The model_dir of the page's example is there, and may be written.
        self.assertEqual(unit["RequiresMountsFor"], ["/srv/%p"])
        self.assertEqual(one("ReadWritePaths"), "-/srv/%p")
        page = (SOURCE / "docs" / "systemd.md").read_text()
        (model_dir,) = re.findall(r'"model_dir": "(\S+)"', (SOURCE / "examples" / "fashion_mnist.json").read_text())
        self.assertIn(f"sed 's|{model_dir}|/srv/muster/", page)

    def test_the_page_of_its_documentation_is_installed(self):
        (page,) = parse(UNIT.read_text())["Unit"]["Documentation"]
        folder, name = page.rsplit("/", 1)
        self.assertEqual(folder, "file:/usr/share/doc/muster")
        self.assertTrue((SOURCE / "docs" / name).exists())
        self.assertIn("${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/muster", (SOURCE / "deploy" / "CMakeLists.txt").read_text())

    def test_the_watchdog_is_slower_than_the_job(self):
        # A frozen process is lost to its job before systemd ends it, and others wait for it longer than that.
        heartbeat, rejoin = self.timeouts("heartbeat", "rejoin")
        self.assertLess(heartbeat, seconds(one("WatchdogSec")))
        self.assertLess(seconds(one("WatchdogSec")), rejoin)

    def test_gpus_stay_visible(self):
        # Each of these implies a list of allowed devices, or none.
        self.assertEqual({"PrivateDevices", "ProtectClock", "DeviceAllow", "DevicePolicy", "MemoryDenyWriteExecute"} & set(SERVICE), set())


class Manager(LaunchTest):
    """Starts tasks by the unit's command line, waits for READY=1, and starts them again by the unit's rules."""

    def setUp(self):
        super().setUp()
        self.etc = self.dir / "etc" / "muster"
        self.etc.mkdir(parents=True)
        self.key = self.run_key()
        self.starts = {}

    def configure(self, cluster, job):
        (self.etc / "cluster.json").write_text(json.dumps(cluster))
        shutil.copy(job, self.etc / "job.json")

    def specified(self, text, instance):
        for what, by in ("%i", instance), ("%p", "muster"), ("%d", str(self.key.parent)):
            text = text.replace(what, by)
        return text.replace("/etc/muster", str(self.etc)).replace(INSTALLED, str(BIN / "muster"))

    def start_unit(self, instance, *more, environment=None):
        """`more` arguments stand for keys of job.json that differ by task."""
        notify = self.dir / f"notify-{len(self.processes)}"
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        manager.bind(str(notify))
        name, value = self.specified(KEY["Environment"][0], instance).split("=", 1)
        env = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG", "MUSTER_RUN_KEY_FILE")}
        env.update({name: value, "NOTIFY_SOCKET": str(notify), "OMP_WAIT_POLICY": "passive", **(environment or {})})
        process = self.start_process(instance, [*self.specified(one("ExecStart"), instance).split(), *more], env)
        self.addCleanup(manager.close)
        process.manager = manager
        self.starts[instance] = self.starts.get(instance, 0) + 1
        return process

    def ready(self, process, timeout=30):
        process.manager.settimeout(timeout)
        self.assertEqual(process.manager.recv(100), b"READY=1")

    def run_units(self, instances, *more):
        """Until none is started again. {instance: its last exit status}"""
        running = {instance: self.start_unit(instance, *more) for instance in instances}
        ended = {}
        deadline = time.monotonic() + 90
        while running:
            self.assertLess(time.monotonic(), deadline, running)
            for instance, process in list(running.items()):
                if process.popen.poll() is None:
                    continue
                if restarts(process.popen.returncode) and self.starts[instance] < 5:
                    running[instance] = self.start_unit(instance)
                else:
                    ended[instance] = running.pop(instance).popen.returncode
            time.sleep(0.05)
        return ended

    def test_trains_what_launch_trains_and_survives_a_killed_worker(self):
        job = self.job(max_steps=300, model_dir=str(self.dir / "model"))
        launched = self.dir / "launched"
        self.run_launch("--workers", 2, "--job", job, "--set", f"model_dir={launched}")
        self.configure(self.cluster(2), job)
        ended = self.run_units(["chief:0", "worker:0", "worker:1"], "--fault", "kill@worker:1:step=100")
        self.assertEqual(ended, {"chief:0": 0, "worker:0": 0, "worker:1": 0})
        self.assertEqual(self.starts, {"chief:0": 1, "worker:0": 1, "worker:1": 2})
        self.assertEqual(curve(self.dir / "model"), losses(launched))

    def test_tasks_are_ready_when_they_listen(self):
        cluster = {**self.cluster(1, ps=1), "evaluator": [f"127.0.0.1:{free_ports(1)[0]}"]}
        self.configure(cluster, self.job(strategy="parameter_server", max_steps=50, model_dir=str(self.dir / "model")))
        started = {}
        for instance in "ps:0", "chief:0":  # before any other task has started
            started[instance] = self.start_unit(instance)
            self.ready(started[instance])
            kind, index = instance.split(":")
            host, port = cluster[kind][int(index)].split(":")
            socket.create_connection((host, int(port)), 5).close()
        for instance in "worker:0", "evaluator:0":
            started[instance] = self.start_unit(instance)
            self.ready(started[instance])
        self.finish(list(started.values()))
        # A finished run: each start succeeds, and ends.
        again = self.start_unit("chief:0")
        self.ready(again)
        self.finish([again])

    def test_a_frozen_task_is_silent_and_may_be_replaced(self):
        job = self.long_job(model_dir=str(self.dir / "model"))
        self.configure(self.cluster(1), job)
        chief = self.start_unit("chief:0")
        worker = self.start_unit("worker:0", environment={"WATCHDOG_USEC": "400000"})
        self.ready(worker)
        worker.manager.settimeout(5)
        self.assertEqual({worker.manager.recv(100) for _ in range(4)}, {b"WATCHDOG=1"})
        chief.wait_for("saved step 200:")
        worker.signal(signal.SIGSTOP)
        time.sleep(0.1)
        worker.manager.setblocking(False)
        try:
            while worker.manager.recv(100):
                pass
        except BlockingIOError:
            pass
        worker.manager.settimeout(1)
        with self.assertRaises(TimeoutError):
            worker.manager.recv(100)
        worker.signal(signal.Signals[one("WatchdogSignal")])
        self.assertEqual(worker.wait(10), -signal.SIGKILL)  # SIGABRT would wait until it is continued
        self.assertTrue(restarts(-signal.SIGKILL))
        saved = chief.output().count("saved step")
        worker = self.start_unit("worker:0")
        deadline = time.monotonic() + 60
        while chief.output().count("saved step") == saved:
            self.assertLess(time.monotonic(), deadline, chief.output())
            time.sleep(0.05)
        chief.signal(signal.SIGTERM)
        self.finish([chief, worker], code=PREEMPTED)
        self.assertEqual(result(self.dir / "model")["generations"], 2)

    def test_a_mistake_fails_the_start_and_is_not_repeated(self):
        self.configure(self.cluster(1), self.job(max_steps="many", model_dir=str(self.dir / "model")))
        self.assertEqual(self.run_units(["worker:0"]), {"worker:0": 2})
        (process,) = self.processes
        process.manager.setblocking(False)
        with self.assertRaises(BlockingIOError):  # never ready
            process.manager.recv(100)
        for instance, sentence in (("worker:7", "task.index is 7"), ("trainer:0", '--task is "trainer:0", which is not a task')):
            with self.subTest(instance=instance):
                self.assertEqual(self.run_units([instance]), {instance: 2})
                self.assertIn(sentence, self.processes[-1].output())

    def test_a_stopped_job_saves_and_goes_on_where_it_is_started_again(self):
        self.configure(self.cluster(1), self.long_job(model_dir=str(self.dir / "model")))
        tasks = [self.start_unit(instance) for instance in ("chief:0", "worker:0")]
        tasks[0].wait_for("saved step 200:")
        tasks[1].signal(signal.SIGTERM)  # the host of one of them shuts down
        self.finish(tasks, code=PREEMPTED)
        steps = result(self.dir / "model")["steps"]
        self.assertEqual([restarts(task.popen.returncode) for task in tasks], [True, True])
        more = ("--set", f"max_steps={steps + 10}")
        self.finish([self.start_unit(instance, *more) for instance in ("chief:0", "worker:0")])
        self.assertEqual(result(self.dir / "model")["steps"], steps + 10)


if __name__ == "__main__":
    unittest.main(verbosity=2)
