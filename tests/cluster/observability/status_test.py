"""`muster status` of a running job and of a model_dir, and the chief's status page: real processes, real keys."""
import http.client
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

from browser import CHROMIUM, WHY_NOT, Browser
from harness import BIN, PREEMPTED, RETRYABLE, SOURCE, ClusterTest, free_ports, main
from ports import consecutive_ports


class StatusTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.model_dir = self.dir / "model"

    def endless(self, **keys):
        """A job that trains until it is stopped."""
        keys = {"model_dir": str(self.model_dir), "max_steps": 10_000_000, "epochs": 10_000_000, "summary": {"every_steps": 100_000}, **keys}
        return self.job(**keys)

    def status(self, *arguments, code=0, key=None, environment=None):
        """Its output: stdout if it exits with 0, else stderr."""
        env = {k: v for k, v in os.environ.items() if k != "TF_CONFIG" and not k.startswith("MUSTER_RUN_KEY")}
        env.update({"HOME": str(self.dir), **(environment or {}), **({"MUSTER_RUN_KEY_FILE": str(key)} if key else {})})
        done = subprocess.run([BIN / "muster", "status", *map(str, arguments)], capture_output=True, text=True, timeout=60, env=env)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if code:
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr if code else done.stdout

    def until(self, wanted, *arguments, timeout=30, **how):
        """The state, once `wanted` is true of it."""
        deadline = time.monotonic() + timeout
        while True:
            state = json.loads(self.status(*arguments, "--json", **how))
            if wanted(state):
                return state
            self.assertLess(time.monotonic(), deadline, f"this is the last state: {json.dumps(state, indent=1)}")
            time.sleep(0.1)

    def launch(self, *arguments, **keys):
        launch = self.start_launch("--job", self.endless(**keys), *arguments)
        launch.wait_for("Number of devices")
        return launch

    def stop(self, processes):
        for process in processes:
            process.signal(signal.SIGTERM)
        self.finish(processes, code=PREEMPTED)


def merged(state, patch):
    """The state after a JSON Merge Patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    state = dict(state) if isinstance(state, dict) else {}
    for key, value in patch.items():
        if value is None:
            state.pop(key, None)
        else:
            state[key] = merged(state.get(key), value)
    return state


def trains(state):
    return state["stage"] == "running" and state["progress"]["step"] > 5


class Running(StatusTest):
    def test_a_job_that_loses_a_worker_and_is_stopped(self):
        cluster = self.cluster(2)
        job = self.endless(checkpoint={"every_steps": 200})
        tasks = self.start_all(cluster, job)
        chief = cluster["chief"][0]
        tasks[0].wait_for("Number of devices")
        state = self.until(lambda s: trains(s) and s["progress"]["checkpoint"], chief)
        self.assertEqual([t["task"] for t in state["tasks"]], ["chief:0", "worker:0", "worker:1"])
        self.assertEqual({t["connected"] for t in state["tasks"]}, {True})
        progress = state["progress"]
        self.assertEqual((progress["program"], progress["strategy"], progress["total_steps"]), ("linear", "multi_worker_mirrored", 10_000_000))
        self.assertGreater(progress["examples_per_second"], 0)
        self.assertGreater(progress["metrics"]["loss"], 0)
        self.assertEqual(progress["checkpoint_step"] % 200, 0)
        self.assertEqual(sum(e["kind"] == "joined" for e in state["events"]), 3)
        watch = self.start_process("watch", [BIN / "muster", "status", "--watch", chief])
        watch.wait_for("running")

        lost = tasks.pop()
        lost.signal(signal.SIGKILL)
        lost.wait(5)
        state = self.until(lambda s: any(e["kind"] == "lost" for e in s["events"]), chief)
        self.assertIn({"kind": "lost", "task": "worker:1"}, [{"kind": e["kind"], "task": e["task"]} for e in state["events"]])
        tasks.append(self.start(cluster, "worker:1", job))
        self.until(lambda s: trains(s) and all(t["connected"] for t in s["tasks"]), chief)
        text = self.status(chief)
        self.assertRegex(text, r"\Alinear, multi_worker_mirrored, run \w+: running, generation 1\.2, running for \d+:\d\d\n")
        self.assertRegex(text, r"\nstep [\d,]+ of 10,000,000 \(\d+%\), epoch [\d,]+ of 10000000")
        self.assertRegex(text, r"\ncheckpoint: step [\d,]+, \d+:\d\d ago, ")
        self.assertRegex(text, r"\nworker 1 +\w+ .* [\d,]+ ")
        self.assertRegex(text, r"\nlast fault: .*worker 1 .*lost: .*\(step [\d,]+\)")

        self.stop(tasks)
        self.assertEqual(watch.wait(20), 0, watch.output())
        self.assertRegex(watch.output(), r": stopped(,|\n)")
        self.assertNotIn("\x1b", watch.output())
        self.assertRegex(self.status(self.model_dir), r"\Alinear, multi_worker_mirrored, run \w+: stopped, running for ")
        self.assertIn("cannot be reached: the connection is refused", self.status(chief, code=RETRYABLE))

    def test_the_address_comes_from_the_cluster(self):
        cluster = self.cluster(1)
        tasks = self.start_all(cluster, self.endless(model_dir=""))
        file = self.dir / "cluster.json"
        file.write_text(json.dumps(cluster))
        tasks[0].wait_for("Number of devices")
        self.until(trains, "--cluster", file)
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
        self.assertIn("worker 0", self.status(environment={"TF_CONFIG": config}))
        self.stop(tasks)
        self.assertNotIn("refused", tasks[0].output(), "nothing is wrong with who asks")

    def test_parameter_servers(self):
        cluster = self.cluster(2, ps=1)
        tasks = self.start_all(cluster, self.endless())
        tasks[0].wait_for(" joined")
        state = self.until(lambda s: s["progress"]["step"] > 5, cluster["chief"][0])
        self.assertEqual(sorted(t["task"] for t in state["tasks"]), ["ps:0", "worker:0", "worker:1"])
        self.assertEqual(state["progress"]["strategy"], "parameter_server")
        self.assertGreater(state["progress"]["metrics"]["loss"], 0)
        self.stop(tasks)

    def test_a_straggler_is_named(self):
        launch = self.launch("--workers", "2", "--fault", "slow=50ms@worker:1:step=5")
        state = self.until(lambda s: any(task["straggler"] for task in s["tasks"]), self.model_dir)
        self.assertEqual([task["task"] for task in state["tasks"] if task["straggler"]], ["worker:1"])
        self.assertIn({"kind": "straggler", "task": "worker:1"}, [{"kind": e["kind"], "task": e["task"]} for e in state["events"]])
        text = self.status(self.model_dir)
        self.assertRegex(text, r"\nworker 1 \* ")
        self.assertRegex(text, r"\n\* worker 1 is a straggler: it needs \d+ ms of a step before it waits for others, and they need \d+ ms \(median\); they wait for \d+ % of its time\n")
        for task in state["tasks"]:
            self.assertGreater(task["stats"]["rss_bytes"], 1_000_000)
            self.assertGreater(task["stats"]["steps"], 0)
        launch.signal(signal.SIGINT)
        launch.wait(30)

    def test_the_chief_asks_for_the_run_key(self):
        cluster = self.cluster(1)
        tasks = self.start_all(cluster, self.endless(security={"key_file": str(self.run_key())}))
        tasks[0].wait_for("Number of devices")
        chief = cluster["chief"][0]
        self.until(trains, chief, key=self.run_key())
        self.until(trains, chief, "--key-file", self.run_key())
        self.assertIn("requires an identity: name its run key with --key-file", self.status(chief, code=2))
        other = self.dir / "other.key"
        subprocess.run([BIN / "muster", "key", "new", other], check=True, stdout=subprocess.DEVNULL)
        self.assertIn(f"the chief at {chief} has another run key (Muster run authority", self.status(chief, code=2, key=other))
        # job.json in the folder names the key.
        self.assertIn("running", self.status(self.model_dir))
        self.stop(tasks)

    def test_certificates(self):
        certificates = self.dir / "certificates"
        cluster = self.cluster(1)
        (self.dir / "cluster.json").write_text(json.dumps(cluster))
        subprocess.run([BIN / "muster", "key", "certificates", self.dir / "cluster.json", "--output", certificates], check=True, stdout=subprocess.DEVNULL)
        tls = {"certificate": f"{certificates}/{{type}}-{{index}}.pem", "key": f"{certificates}/{{type}}-{{index}}.key", "authority": f"{certificates}/authority.pem"}
        job = self.endless(tls=tls)
        tasks = self.start_all(cluster, job)
        tasks[0].wait_for("Number of devices")
        self.until(trains, cluster["chief"][0], "--job", job)
        self.assertIn("requires an identity", self.status(cluster["chief"][0], code=2))
        self.stop(tasks)

    def test_the_user_of_a_launch_needs_no_key(self):
        launch = self.launch("--workers", "1")
        state = self.until(trains, self.model_dir)
        address = json.loads((self.model_dir / "status.json").read_text())["address"]
        self.assertIn("requires an identity", self.status(address, code=2))
        self.assertEqual(len(state["tasks"]), 2)
        launch.signal(signal.SIGINT)
        launch.wait(30)


class Folders(StatusTest):
    def test_a_finished_run(self):
        self.train(2, self.job())
        text = self.status(self.dir / "model-0")
        self.assertRegex(text, r"\Alinear, multi_worker_mirrored, run \w+: completed, running for ")
        self.assertRegex(text, r"\nstep 20, epoch \d+")
        self.assertRegex(text, r"\n2 members, 2 replicas, 1 generation; chief on host ")
        self.assertRegex(text, r"\ncheckpoint: step 20, ")

    def test_a_run_that_was_killed(self):
        cluster = self.cluster(1)
        tasks = self.start_all(cluster, self.endless(summary={"every_steps": 10}, checkpoint={"every_steps": 50}))
        tasks[0].wait_for("Number of devices")
        self.until(lambda s: trains(s) and s["progress"]["checkpoint"], self.model_dir)
        for task in tasks:
            task.signal(signal.SIGKILL)
            task.wait(5)
        done = subprocess.run([BIN / "muster", "status", self.model_dir], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, RETRYABLE, done.stderr)
        self.assertRegex(done.stderr, r"\Amuster status: the chief at 127\.0\.0\.1:\d+ cannot be reached: the connection is refused\n\Z")
        self.assertRegex(done.stdout, r"\nstep [1-9][\d,]*, epoch ")
        self.assertIn("has no result, and its chief is not reached", done.stdout)

    def test_a_run_that_never_began(self):
        cluster = self.cluster(1)
        chief = self.start(cluster, "chief:0", self.endless())
        deadline = time.monotonic() + 30
        while not (self.model_dir / "status.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        live = self.until(lambda s: s["stage"] == "joining", self.model_dir)
        self.assertIn("\nno steps yet", self.status(self.model_dir))
        chief.signal(signal.SIGKILL)
        chief.wait(5)

        def ask(*flags):
            done = subprocess.run([BIN / "muster", "status", self.model_dir, *flags], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, RETRYABLE, done.stdout)
            return done

        lines = ask().stdout.splitlines()
        self.assertEqual(lines, [f"linear, multi_worker_mirrored, run {live['run_id']}: not begun", "no steps yet", "checkpoint: none",
                                 f"The run in {self.model_dir} has not begun: its chief was started, and the other tasks never joined it. Start all tasks again."])
        state = json.loads(ask("--json").stdout)
        self.assertEqual((state["stage"], state["progress"]["step"], state["verdict"]), ("not begun", 0, None))
        (self.model_dir / "status.json").unlink()
        done = ask()
        self.assertEqual(done.stdout.splitlines(), lines)
        self.assertEqual(done.stderr, f"muster status: no process runs the job of {self.model_dir}, and it has no result\n")

    def test_another_job_at_the_address_that_a_killed_chief_left(self):
        cluster = self.cluster(1)
        tasks = self.start_all(cluster, self.endless())
        tasks[0].wait_for("Number of devices")
        first = self.until(trains, self.model_dir)
        for task in tasks:
            task.signal(signal.SIGKILL)
            task.wait(5)
        other = self.dir / "other"
        tasks = self.start_all(cluster, self.endless(model_dir=str(other)))
        tasks[0].wait_for("Number of devices")
        second = self.until(trains, cluster["chief"][0])
        done = subprocess.run([BIN / "muster", "status", self.model_dir], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, RETRYABLE, done.stdout)
        self.assertEqual(done.stderr, f"muster status: the chief of run {first['run_id']} cannot be reached: another job, of run {second['run_id']}, "
                                      f"answers at {cluster['chief'][0]}\n")
        self.assertIn(f"run {first['run_id']}: ", done.stdout)
        self.assertIn("its chief is not reached", done.stdout)
        self.assertEqual(self.until(trains, other)["run_id"], second["run_id"])
        self.stop(tasks)

    def test_a_run_in_one_process(self):
        task = self.start(None, None, self.endless())
        task.wait_for("Number of devices")
        text = self.status(self.model_dir)
        self.assertIn("The run trains in one process, which has no port", text)
        self.stop([task])

    def test_what_is_neither_a_run_nor_an_address(self):
        self.assertIn("is not a model_dir", self.status(self.dir, code=2))
        self.assertIn("is neither a folder here nor the address of a chief (host:port)", self.status(self.dir / "nowhere", code=2))
        self.assertIn("no chief and no run is named: give the chief's address", self.status(code=2))
        self.assertIn("cannot be reached", self.status("127.0.0.1:1", code=RETRYABLE))


class Page(StatusTest):
    def setUp(self):
        super().setUp()
        self.port, = free_ports(1)

    def start_page(self, sets=(), **keys):
        cluster = self.cluster(1)
        tasks = self.start_all(cluster, self.endless(**keys), [f"status.port={self.port}", *sets])
        tasks[0].wait_for(f"status page: http://127.0.0.1:{self.port}/")
        tasks[0].wait_for("Number of devices")
        return tasks

    def get(self, path="/", token=None, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=20)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse()

    def messages(self, token=None):
        """The messages of the page, as a browser gets them."""
        response = self.get("/events", token)
        self.assertEqual(response.status, 200)
        self.assertIn("text/event-stream", response.getheader("Content-Type"))
        data = []
        while line := response.readline().decode():
            if line.startswith("data:"):
                data.append(line[5:].strip())
            elif line == "\n" and data:
                yield json.loads("".join(data))
                data = []

    def test_it_is_live_and_shows_the_end(self):
        tasks = self.start_page()
        response = self.get()
        self.assertEqual(response.status, 200)
        policy = response.getheader("Content-Security-Policy")
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        # The token is in the address.
        self.assertEqual([response.getheader("Referrer-Policy"), response.getheader("Cache-Control")], ["no-referrer", "no-store"])
        page = response.read().decode()
        self.assertNotRegex(page, r"(src|href)=\"(?!data:|status\.json)")
        self.assertNotIn("innerHTML", page)
        self.assertEqual(self.get("/status.json").status, 200)
        self.assertEqual(self.get("/nothing").status, 404)
        stream = self.messages()
        first = next(stream)
        state = first.get("state") or first["patch"]
        self.assertEqual({task["task"] for task in state["tasks"].values()}, {"chief:0", "worker:0"})
        while not next(stream).get("points", {}).get("points"):
            pass
        for task in tasks:
            task.signal(signal.SIGTERM)
        verdicts = [message["patch"]["verdict"] for message in stream if message.get("patch", {}).get("verdict")]
        self.assertEqual([verdict["status"] for verdict in verdicts], ["preempted"])
        self.finish(tasks, code=PREEMPTED)

    def test_a_process_that_trains_alone_shows_its_end(self):
        task = self.start(None, None, self.endless(), [f"status.port={self.port}"])
        task.wait_for("Number of devices")
        stream = self.messages()
        first = next(stream)
        self.assertEqual((first.get("state") or first["patch"])["stage"], "running")
        task.signal(signal.SIGTERM)
        verdicts = [message["patch"]["verdict"] for message in stream if message.get("patch", {}).get("verdict")]
        self.assertEqual([verdict["status"] for verdict in verdicts], ["preempted"])
        self.finish([task], code=PREEMPTED)

    def test_it_needs_the_token_of_the_run_key(self):
        tasks = self.start_page(security={"key_file": str(self.run_key())})
        token = subprocess.run([BIN / "muster", "key", "token", "--key-file", self.run_key()], check=True, capture_output=True, text=True).stdout.strip()
        for path in "/", "/status.json", "/events":
            self.assertEqual(self.get(path).status, 401, path)
            self.assertEqual(self.get(path, "0" * len(token)).status, 401, path)
        self.assertEqual(self.get(f"/?token={token[:-1]}0" if token[-1] != "0" else f"/?token={token[:-1]}1").status, 401)
        self.assertEqual(self.get(f"/?token={token}").status, 200)
        self.assertEqual(self.get("/status.json", token).status, 200)
        self.assertIn("state", json.dumps(next(self.messages(token))))
        for task in tasks:
            self.assertNotIn(token, task.output())
        self.stop(tasks)

    def test_a_launch_prints_its_address(self):
        launch = self.launch("--workers", "1", "--status-port", self.port)
        token = launch.matches(rf"status page: http://127\.0\.0\.1:{self.port}/\?token=([0-9a-f]{{32,}})\n")[1]
        self.assertEqual(self.get().status, 401)
        self.assertEqual(self.get(f"/?token={token}").status, 200)
        for log in (self.model_dir / "logs").iterdir():
            self.assertNotIn(token, log.read_text())
        launch.signal(signal.SIGINT)
        launch.wait(30)

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            cluster = self.cluster(1)
            chief = self.start(cluster, "chief:0", self.endless(), [f"status.port={port}", "timeouts.bind=4"])
            while not (self.model_dir / "owner.json").exists():
                self.assertIsNone(chief.popen.poll(), chief.output())
                time.sleep(0.05)
            time.sleep(1)
            # No member may join a chief that cannot stay.
            self.assertIn("the connection is refused", self.status(cluster["chief"][0], code=RETRYABLE))
            self.assertIsNone(chief.popen.poll(), chief.output())
            self.assertEqual(chief.wait(30), 2, chief.output())
            self.assertRegex(chief.output(), rf"status\.port: .*{port}")

    def test_a_launch_ends_at_once_if_the_port_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            launch = self.start_launch("--workers", 2, "--job", self.endless(), "--set", f"status.port={port}", "--set", "timeouts.bind=3")
            start = time.monotonic()
            self.assertEqual(launch.wait(30), 2, launch.output())
            self.assertLess(time.monotonic() - start, 15)
            self.assertRegex(launch.output(), rf"status\.port: .*{port}")

    def test_on_the_loopback_the_page_needs_the_token_and_the_numbers_do_not(self):
        first = consecutive_ports(2)
        launch = self.launch("--workers", "1", "--status-port", self.port, "--set", f"status.metrics_port={first}")
        token = launch.matches(r"\?token=([0-9a-f]{32,})\n")[1]
        for path in "/", "/status.json", "/events":
            self.assertEqual(self.get(path).status, 401, path)
        self.assertEqual(self.get("/status.json", token).status, 200)
        for port in first, first + 1:
            numbers = self.get("/metrics", port=port)
            self.assertEqual(numbers.status, 200)
            # No value of a label is of the job or the host, but the names of tasks and datasets.
            values = set(re.findall(r'="([^"]*)"', numbers.read().decode()))
            self.assertFalse(values & {str(self.model_dir), socket.gethostname(), "linear"}, values)
        launch.signal(signal.SIGINT)
        launch.wait(30)

    def test_a_straggler_is_named_within_ten_steps_by_log_status_page_and_metric(self):
        """A step is that which the chief has reached. Before, all tasks take 200 ms for one: what a busy host adds makes no straggler of any. From then on
        a step takes more than a second, so that a late heartbeat, or a late look, costs few steps."""
        slow_from, first = 15, consecutive_ports(3)
        launch = self.launch("--workers", "2", "--status-port", self.port, "--set", f"status.metrics_port={first}",
                             "--fault", "slow=200ms@*:step=1", "--fault", f"slow=1s@worker:1:step={slow_from}")
        token = launch.matches(r"\?token=([0-9a-f]{32,})\n")[1]
        stream = self.messages(token)
        message = next(stream)

        def number(match):
            return match and int(match[1].replace(",", ""))

        def log():
            return number(re.search(r"worker 1 is a straggler at step (\d+): ", launch.output()))

        def status():
            text = self.status(self.model_dir)
            return "\n* worker 1 is a straggler: " in text and number(re.search(r"\nstep ([\d,]+) of ", text))

        def page():
            state = json.loads(self.get("/status.json", token).read())
            return any(task["straggler"] for task in state["tasks"] if task["task"] == "worker:1") and state["progress"]["step"]

        def metric():
            text = self.get("/metrics", port=first).read().decode()
            return '\nmuster_straggler{task="chief:0",member="worker:1"} 1\n' in text and number(re.search(r'\nmuster_step\{task="chief:0"\} (\d+)\n', text))

        views, named = (log, status, page, metric), {}
        deadline = time.monotonic() + 120
        while len(named) < len(views):
            for view in views:
                if view.__name__ not in named and (step := view()):
                    named[view.__name__] = step
            self.assertLess(time.monotonic(), deadline, f"it is named by {named} alone; the log: {launch.output()}")
        state = {}
        while not any(notice.startswith("worker 1 is a straggler: ") for notice in state.get("stragglers", ())):
            state = merged(message.get("state", state), message.get("patch", {}))
            self.assertLess(time.monotonic(), deadline, "the page's events never name it")
            message = next(stream)
        named["events"] = state["progress"]["step"]
        for view, step in named.items():
            self.assertTrue(slow_from <= step <= slow_from + 10, f"{view} names it at step {step}: {named}")
        launch.signal(signal.SIGINT)
        launch.wait(30)

    @unittest.skipUnless(CHROMIUM, WHY_NOT)
    def test_a_browser_shows_it(self):
        # The folder's name is shown too, and is text.
        self.model_dir = self.dir / "<img src=x onerror=document.title=1>"
        tasks = self.start_page(checkpoint={"every_steps": 100})
        self.until(lambda s: trains(s) and s["progress"]["checkpoint"], self.model_dir)
        with Browser(f"http://127.0.0.1:{self.port}/") as page:
            page.until("document.getElementById('stage').textContent == 'running' && points.length > 2")
            self.assertEqual(page.evaluate("document.querySelector('h1').textContent"), "linear")
            self.assertEqual(page.evaluate("[...document.querySelectorAll('tbody th')].map(cell => cell.textContent)"), ["chief 0", "worker 0"])
            step = page.evaluate("state.progress.step")
            page.until(f"state.progress.step > {step}")
            labels = page.evaluate("[...document.querySelectorAll('svg[role=img]')].map(curve => curve.getAttribute('aria-label'))")
            self.assertEqual(len(labels), 3)
            for label in labels:
                self.assertRegex(label, r" from step [\d,]+ to [\d,]+: first .*, lowest .*, highest .*, last ")
            self.assertRegex(page.evaluate("document.querySelector('polyline').getAttribute('points')"), r"\A[\d., -]{20,}\Z")
            self.assertIn("worker 0 joined from host ", page.evaluate("document.getElementById('events').textContent"))
            self.assertIn("onerror=document.title=1", page.evaluate("document.getElementById('run').textContent"))
            self.assertEqual(page.evaluate("document.querySelectorAll('img').length"), 0)
            for task in tasks:
                task.signal(signal.SIGTERM)
            page.until("document.getElementById('stage').textContent == 'preempted'")
            self.assertEqual(page.complaints, [])
        self.finish(tasks, code=PREEMPTED)


class Many(unittest.TestCase):
    """The page alone, with a made-up job of 64 tasks."""

    @classmethod
    def setUpClass(cls):
        if not CHROMIUM:
            raise unittest.SkipTest(WHY_NOT)
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeChief)
        cls.server.daemon_threads = True
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.url = f"http://127.0.0.1:{cls.server.server_address[1]}/"

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()

    def test_wide_and_light(self):
        with Browser(self.url, width=1200) as page:
            page.until("document.querySelectorAll('tbody tr').length == 64")
            page.until("state.uptime_seconds == 11")  # a patch
            self.assertEqual(page.evaluate("document.querySelectorAll('tr.slow').length"), 1)
            self.assertEqual(page.evaluate("document.querySelector('#notices').textContent"), "worker 1 is slow")
            self.assertEqual(page.evaluate("[...document.querySelector('tbody tr:nth-child(3)').children].map(cell => cell.textContent).join('|')"),
                             "worker 1 (slow)|forward|120|1,234|2%|50%|1.5|75%|4.10 GB|1|node-2")
            self.assertTrue(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
            # All is in its row: no cell is cut or wraps.
            self.assertTrue(page.evaluate("[...document.querySelectorAll('tbody tr')].every(row => row.offsetHeight < 40)"))
            self.assertGreater(page.evaluate(CONTRAST), 4.5)
            self.assertEqual(page.complaints, [])

    def test_narrow_and_dark(self):
        with Browser(self.url, dark=True, width=390, height=844) as page:
            page.until("document.querySelectorAll('tbody tr').length == 64")
            self.assertTrue(page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than a phone")
            self.assertRegex(page.evaluate("getComputedStyle(document.body).backgroundColor"), r"rgb\(\d\d, \d\d, \d\d\)")
            self.assertGreater(page.evaluate(CONTRAST), 4.5)
            # Each number has its name beside it.
            self.assertEqual(page.evaluate("document.querySelector('tbody td:nth-child(4)').dataset.name"), "examples/s")
            self.assertIn("examples/s", page.evaluate("getComputedStyle(document.querySelector('tbody td:nth-child(4)'), '::before').content"))
            # A number that is not there any more leaves its place.
            self.assertEqual(page.evaluate("take({patch: {progress: {metrics: {loss: null}}}}), document.querySelector('[data-name=loss]')"), None)

    def test_the_events_of_a_chief_that_was_started_again(self):
        with Browser(self.url) as page:
            page.until("document.querySelectorAll('#events li').length == 100")
            FakeChief.started_again.set()
            page.until("state.uptime_seconds == 1")
            self.assertEqual(page.evaluate("document.getElementById('events').textContent"), "0:01worker 5 joined")
            FakeChief.started_again.clear()

    def test_it_tries_again_after_a_refusal_and_says_why(self):
        FakeChief.refusals = 2  # of the stream, and of the question why
        with Browser(self.url + "?token=1234") as page:
            page.until("document.getElementById('link').textContent == 'The chief refuses: 16 clients watch already. Trying again in 10 seconds.'")
            self.assertEqual(page.evaluate("location.href"), self.url, "the token stays in nobody's history")
            page.until("document.querySelectorAll('tbody tr').length == 64")
            self.assertEqual(page.evaluate("document.getElementById('link').textContent"), "")


# The least contrast of the text with what is behind it, as WCAG 2.1 defines it.
CONTRAST = """(() => {
  const light = color => {
    const [r, g, b] = color.match(/[\\d.]+/g).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    const color = getComputedStyle(node).backgroundColor;
    return color == "rgba(0, 0, 0, 0)" ? behind(node.parentElement) : color;
  };
  return Math.min(...[...document.querySelectorAll("body *")].filter(n => n.childElementCount == 0 && n.textContent && n.checkVisibility() && !["SCRIPT", "CAPTION"].includes(n.tagName))
    .map(n => [light(getComputedStyle(n).color), light(behind(n))]).map(([a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)));
})()"""


class FakeChief(http.server.BaseHTTPRequestHandler):
    started_again = threading.Event()
    refusals = 0

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/events" and FakeChief.refusals:
            FakeChief.refusals -= 1
            self.send_response(503)
            self.end_headers()
            self.wfile.write(b"16 clients watch already\n")
            return
        self.send_response(200)
        if self.path != "/events":
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write((SOURCE / "chief" / "status" / "page.html").read_bytes())
            return
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        stats = {"examples_per_second": 1234, "input_share": 0.02, "wait_share": 0.5, "cpu_cores": 1.5, "rss_bytes": 4.1e9, "restarts": 1,
                 "gpus": [{"utilization": 0.75}]}
        tasks = {str(i): {"task": f"worker:{i - 1}" if i else "chief:0", "joined": True, "connected": True, "phase": "forward", "phase_age_seconds": 0,
                          "step": 120, "host": f"node-{i}", "straggler": i == 2, "stats": stats} for i in range(64)}
        state = {"stage": "running", "uptime_seconds": 10, "tasks": tasks, "stragglers": ["worker 1 is slow"],
                 "progress": {"program": "linear", "step": 120, "total_steps": 1000, "epoch": 1, "metrics": {"loss": 0.5}}}
        points = [[step, 1 / step, 1000 + step, 0.01] for step in range(1, 121)]
        events = [{"number": i, "at": i, "kind": "lost", "step": i, "text": f"worker {i} was lost: its process is gone"} for i in range(1, 101)]
        for message in {"state": state, "points": {"replaces": True, "points": points}, "events": events}, {"patch": {"uptime_seconds": 11}}:
            self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())
            self.wfile.flush()
        if FakeChief.started_again.wait(60):
            again = {"state": {**state, "uptime_seconds": 1}, "points": {"replaces": True, "points": []},
                     "events": [{"number": 5, "at": 1, "kind": "joined", "text": "worker 5 joined"}]}
            self.wfile.write(f"data: {json.dumps(again)}\n\n".encode())
            self.wfile.flush()
            time.sleep(60)


if __name__ == "__main__":
    main()
