"""The formats that users' scripts read are as published: keys of JSON files, TensorBoard tags, exit codes, flags, variables, lines.

The lists beside this file have these names; docs/compatibility.md describes them for users. A few small jobs are run, once for all tests.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
sys.path.insert(0, str(SOURCE / "tests" / "cluster" / "base"))
from golden import STAYS, Golden, rows  # noqa: E402
from harness import BIN, Process, events, free_ports, inherited, result  # noqa: E402

PATH_KEYS = "from", "to", "problem", "mtu", "bits_per_second", "round_trip_seconds"
LINEAR = {"program": "linear", "global_batch_size": 5, "max_steps": 12, "summary": {"every_steps": 1}}
RATINGS = {"program": "matrix_factorization", "program_args": {"users": 40, "items": 20, "examples": 200, "validation": 30, "width": 4},
           "global_batch_size": 20, "epochs": 2, "summary": {"every_steps": 1, "histograms_every_epochs": 1}}
FASHION = {"program": "fashion_mnist", "program_args": {"train_examples": 256, "validation": 128, "hidden": 8}, "global_batch_size": 128,
           "epochs": 1, "summary": {"every_steps": 1}}
CYCLEGAN = {"program": "cyclegan", "program_args": {"width": 2, "discriminator_width": 2, "blocks": 0, "grid_epochs": 1}, "global_batch_size": 2, "epochs": 1,
            "data": {split: {"format": "npy", "x": "x.npy", "y": "y.npy"} for split in ("train", "test")}, "summary": {"every_steps": 1}}
ROLES = "chief", "worker", "ps", "evaluator"


class Runs:
    """The jobs, each run when it is first asked for, and what they left: {name: folder}; .code and .output by name."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-golden-"))
        self.code, self.output = {}, {}

    def start(self, name, *command, environment=None, folder=None):
        folder = self.dir / (folder or name)
        folder.mkdir(exist_ok=True)
        env = {k: v for k, v in os.environ.items() if k != "TF_CONFIG" and not k.startswith("MUSTER_")}
        return Process(name, [str(BIN / command[0]), *map(str, command[1:])],
                       {**env, "OMP_WAIT_POLICY": "passive", "TMPDIR": str(folder), **(environment or {})}, self.dir / f"{name}.log", folder)

    def run(self, name, *command, environment=None, stop_after=None, timeout=120):
        folder = self.dir / name
        if name in self.code:
            return folder
        process = self.start(name, *command, environment=environment)
        try:
            if stop_after:
                process.wait_for(stop_after, timeout)
                process.signal(signal.SIGTERM)
            self.code[name] = process.wait(timeout)
        finally:
            process.popen.kill()
            process.popen.wait()
        self.output[name] = process.output()
        return folder

    def job(self, name, job):
        (self.dir / name).mkdir(exist_ok=True)
        (self.dir / name / "job.json").write_text(json.dumps({"model_dir": "model_dir", **job}))
        return self.dir / name / "job.json"

    def run_tasks(self, name, job, tasks, *arguments):
        """Runs these tasks of one cluster, each with a termination log of its own, as containers have."""
        (self.dir / name).mkdir(exist_ok=True)
        chief, worker = (f"127.0.0.1:{port}" for port in free_ports(2))
        processes = []
        try:
            for task in tasks:
                config = {"cluster": {"chief": [chief], "worker": [worker]}, "task": {"type": task, "index": 0}}
                log = self.dir / name / f"terminated-{task}"
                log.touch()
                processes.append(self.start(f"{name}-{task}", f"muster-{task}", "--job", job, *arguments, folder=name,
                                            environment={"TF_CONFIG": json.dumps(config), "MUSTER_TERMINATION_LOG": str(log)}))
                if task == "evaluator":
                    processes[-1].wait_for("following the checkpoints", 60)
            codes = [process.wait(120) for process in processes]
        finally:
            for process in processes:
                process.popen.kill()
                process.popen.wait()
        self.code[name] = max(codes)
        self.output[name] = "".join(process.output() for process in processes)
        return self.dir / name

    def completed(self):
        """The evaluator is there before training begins, so that it evaluates the end."""
        if "completed" not in self.code:
            self.run_tasks("completed", self.job("completed", RATINGS), ("chief", "evaluator", "worker"))
        return self.dir / "completed" / "model_dir"

    def servers(self):
        return self.run("servers", "muster", "launch", "--workers", 1, "--ps", 1, "--job", self.job("servers", LINEAR)) / "model_dir"

    def fashion(self):
        return self.run("fashion", "muster-worker", "--job", self.job("fashion", FASHION)) / "model_dir"

    def cyclegan(self):
        job = self.job("cyclegan", CYCLEGAN)
        for name in "xy":
            # 4 pictures, 3 x 24 x 24 bytes, in numpy's format.
            header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 3, 24, 24), }"
            header = f"{header:117}\n".encode()
            pixels = bytes(i * i // 7 % 256 for i in range(4 * 3 * 24 * 24))
            (job.parent / f"{name}.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + pixels)
        return self.run("cyclegan", "muster-worker", "--job", job) / "model_dir"

    def reported(self):
        """A program that reports values of its own, in steps and in passes."""
        job = {"program": "recording", "program_args": {"examples": 8}, "global_batch_size": 4, "epochs": 1, "summary": {"every_steps": 1}}
        return self.run("reported", "../tests/recording_worker", "--job", self.job("reported", job)) / "model_dir"

    def float16(self):
        return self.run("float16", "muster-worker", "--job", self.job("float16", {**LINEAR, "max_steps": 1, "precision": "float16"})) / "model_dir"

    def not_a_number(self):
        """Ended by a callback."""
        job = {**LINEAR, "learning_rate": 1e38, "callbacks": [{"name": "terminate_on_nan"}, {"name": "ema"}]}
        return self.run("not_a_number", "muster-worker", "--job", self.job("not_a_number", job)) / "model_dir"

    def exception(self):
        job = self.job("exception", LINEAR)
        return self.run("exception", "muster", "launch", "--workers", 2, "--job", job, "--fault", "exception@worker:0:step=5") / "model_dir"

    def apart(self):
        if "apart" not in self.code:
            self.run_tasks("apart", self.job("apart", LINEAR), ("chief", "worker"), "--fault", "exception@worker:0:step=5")
        return self.dir / "apart"

    def lost(self):
        return self.run("lost", "muster", "launch", "--workers", 1, "--job", self.job("lost", LINEAR), "--fault", "kill@worker:0:step=5") / "model_dir"

    def unknown_key(self):
        return self.run("unknown_key", "muster-worker", "--job", self.job("unknown_key", {**LINEAR, "epochz": 3})) / "model_dir"

    def terminated(self):
        """Stopped within its first epochs; it would run for hours."""
        job = self.job("terminated", {**LINEAR, "max_steps": None, "epochs": 10**6})
        return self.run("terminated", "muster-worker", "--job", job, stop_after="epoch 1/") / "model_dir"

    def interrupted(self):
        """Asked to stop by SIGINT, twice: it is held in a step, so that it is still there for the second one."""
        if "interrupted" not in self.code:
            process = self.start("interrupted", "muster-worker", "--job", self.job("interrupted", LINEAR), "--fault", "delay=60s@worker:0:step=5")
            try:
                for text in "fault 1: delay", "SIGINT received":
                    process.wait_for(text, 60)
                    process.signal(signal.SIGINT)
                self.code["interrupted"] = process.wait(10)
            finally:
                process.popen.kill()
                process.popen.wait()
            self.output["interrupted"] = process.output()
        return self.dir / "interrupted" / "model_dir"

    def damaged(self):
        """The completed one's checkpoints, all of them truncated, and a start that should continue."""
        model_dir = self.dir / "damaged" / "model_dir"
        if "damaged" not in self.code:
            shutil.copytree(self.completed(), model_dir)
            for path in model_dir.glob("checkpoints/step-*/model.safetensors"):
                path.write_bytes(path.read_bytes()[:-1])
            self.run("damaged", "muster-worker", "--job", model_dir / "job.json", "--set", "epochs=3", "--set", "strategy=one_device")
        return model_dir


RUNS = None


def setUpModule():
    global RUNS
    RUNS = Runs()


def tearDownModule():
    if FAILED:
        print(f"\nthe folder with all runs stays: {RUNS.dir}", file=sys.stderr)
        for name, output in RUNS.output.items():
            print(f"---- {name}, exit code {RUNS.code[name]}, its end:", *output.splitlines()[-15:], sep="\n", file=sys.stderr)
    else:
        shutil.rmtree(RUNS.dir)


FAILED = []


def read(path):
    return json.loads(path.read_text())


def muster(*arguments, environment=None, code=0):
    done = subprocess.run([str(BIN / "muster"), *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          env=inherited(**(environment or {})))
    assert done.returncode == code, done
    return done.stdout


class GoldenTest(unittest.TestCase):
    maxDiff = None

    def run(self, result=None):
        before = len(result.failures) + len(result.errors) if result else 0
        super().run(result)
        if result and len(result.failures) + len(result.errors) > before:
            FAILED.append(self.id())
        return result

    def check(self, golden, documents):
        """Each document has all that the list says, nothing that it does not, and each line is in some document."""
        for document in documents:
            golden.check(document)
        self.assertEqual(golden.complaints, [], "\n".join([""] + golden.complaints))
        self.assertEqual(golden.unseen(), [], f"tests/golden/{golden.file} lists what none of this test's documents has: "
                         f"either it was taken away ({STAYS}), or the test has to look at another document, too")


class Comparing(GoldenTest):
    """That a change is seen, and what is said of it."""

    def complaints(self, change):
        document = read(SOURCE / "tests" / "fixtures" / "1971c1e" / "parameter_server" / "model_dir" / "result.json")
        change(document)
        golden = Golden("result.txt", "result.json")
        golden.check(document)
        return golden.complaints

    def test_what_is_as_it_was_is_fine(self):
        self.assertEqual(self.complaints(lambda document: None), [])
        self.assertEqual(self.complaints(lambda document: document.pop("parameter_server")), [], "it is not there in every job")
        self.assertEqual(self.complaints(lambda document: document.update(wall_seconds=3)), [], "3 is a number")

    def test_what_is_missing_is_named(self):
        for path, change in (("steps", lambda d: d.pop("steps")), ("step_seconds.wait", lambda d: d["step_seconds"].pop("wait")),
                             ("parameter_server.staleness.workers", lambda d: d["parameter_server"]["staleness"].pop("workers")),
                             ("parameter_server.staleness.workers.0.max", lambda d: d["parameter_server"]["staleness"]["workers"]["0"].pop("max"))):
            (complaint,) = self.complaints(change)
            self.assertIn(f"result.json lacks {path} (", complaint)
            self.assertIn("Published names stay", complaint)

    def test_another_type_is_named(self):
        (complaint,) = self.complaints(lambda d: d.update(steps="12"))
        self.assertIn("steps is string, '12'; in tests/golden/result.txt it is integer. Published names stay", complaint)
        self.assertEqual(len(self.complaints(lambda d: d.update(steps=12.5))), 1)
        self.assertEqual(len(self.complaints(lambda d: d.update(steps=True))), 1)

    def test_what_is_new_is_to_be_listed(self):
        (complaint,) = self.complaints(lambda d: d["hardware"].update(gpus=0))
        self.assertIn("result.json has hardware.gpus (integer), which tests/golden/result.txt does not list", complaint)

    def test_a_line_that_nothing_has_is_seen(self):
        golden = Golden("result.txt", "result.json")
        golden.check({"status": "completed"})
        self.assertIn("steps", golden.unseen())


class JsonFiles(GoldenTest):
    def test_result(self):
        completed, servers = result(RUNS.completed()), result(RUNS.servers())
        self.check(Golden("result.txt", "result.json"), [completed, servers, result(RUNS.exception()), result(RUNS.terminated()),
                                                         result(RUNS.float16())])
        # The meaning of the keys.
        want = {"status": "completed", "cause": None, "steps": 20, "epochs": 2, "examples": 400, "world_size": 2, "num_replicas": 2,
                "generations": 1, "checkpoint": "checkpoints/step-00000020"}
        self.assertEqual({key: completed[key] for key in want}, want)
        self.assertEqual(completed["metric_steps"], {"train": 20, "validation": 20, "test": None, "eval": 20})
        self.assertEqual(sorted(completed["metrics"]["validation"]), ["loss", "rmse"])
        reported = json.loads((RUNS.reported() / "result.json").read_text())["metrics"]
        for split in "train", "validation":
            self.assertIn("target", reported[split], "what a program reports")
        self.assertEqual((servers["parameter_server"]["updates"], servers["steps"], servers["world_size"]), (12, 12, 1))
        self.assertEqual((result(RUNS.exception())["status"], result(RUNS.terminated())["status"]), ("failed", "preempted"))

    def test_job(self):
        self.check(Golden("job.txt", "job.json"), [read(path / "job.json") for path in (RUNS.completed(), RUNS.servers(), RUNS.exception())])

    def test_checkpoints(self):
        folders = [path for run in (RUNS.completed(), RUNS.servers(), RUNS.fashion()) for path in run.glob("checkpoints/step-*")]
        manifest, state = Golden("manifest.txt", "manifest.json"), Golden("state.txt", "state.json")
        # LossScaler's numbers are there with float16 alone.
        self.check(manifest, [read(path / "manifest.json") for path in folders])
        self.check(state, [read(path / "state.json") for path in folders] + [read(RUNS.float16() / "checkpoints" / "step-00000001" / "state.json")])
        last = read(RUNS.completed() / "checkpoints" / "step-00000020" / "state.json")
        want = {"format_version": 1, "step": 20, "epoch": 2, "offset": 0, "examples": 400, "epoch_examples": 200, "global_batch_size": 20}
        self.assertEqual({key: last[key] for key in want}, want)
        self.assertEqual(read(RUNS.completed() / "checkpoints" / "step-00000020" / "manifest.json")["format_version"], 1)

    def test_owner(self):
        self.check(Golden("owner.txt", "owner.json"), [read(RUNS.completed() / "owner.json"), read(RUNS.servers() / "owner.json")])
        self.assertIs(read(RUNS.completed() / "owner.json")["left"], True)

    def test_files(self):
        for path, kind, meaning in rows("files.txt", 3):
            found = [p for run in (RUNS.completed(), RUNS.fashion(), RUNS.exception()) for p in run.glob(path.replace("#", "[0-9]"))]
            self.assertTrue(any(p.is_dir() if kind == "folder" else p.is_file() for p in found), f"no {kind} {path} in model_dir. {STAYS}")
        model_dir = RUNS.completed()
        self.assertEqual((model_dir / "checkpoints" / "latest").read_text(), "step-00000020\n")
        self.assertRegex((model_dir / "checkpoints" / "best").read_text(), r'\Astep-000000\d\d\n\{"metric":"loss","value":[0-9.e-]+\}\n\Z')


class Commands(GoldenTest):
    def test_cluster(self):
        def cluster_of(config):
            return json.loads(muster("cluster", "--json", environment={"TF_CONFIG": json.dumps(config)} if config else {}))
        addresses = {"chief": ["a:1"], "worker": ["b:2", "b:3"], "ps": ["c:4"]}
        worker = cluster_of({"cluster": addresses, "task": {"type": "worker", "index": "1"}, "environment": "cloud"})
        alone = cluster_of(None)
        others = [cluster_of({"cluster": addresses, "task": {"type": "ps", "index": 0}}),
                  cluster_of({"cluster": {"worker": {"1": "b:2"}, "ps": ["c:4"]}, "task": {"type": "worker", "index": 1}}),  # Kubeflow's dynamic form
                  cluster_of({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}, "rpc_layer": "grpc+loas"})]
        golden = Golden("cluster.txt", "muster cluster --json")
        golden.seen.add(("warnings", "[]"))  # what is worth one may change
        self.check(golden, [worker, alone, *others])
        self.assertEqual(worker, {"task": "worker:1", "role": "worker", "rank": 2, "world_size": 3, "chief": "chief:0", "cluster": addresses,
                                  "environment": "cloud", "warnings": []})
        self.assertEqual({key: alone[key] for key in ("task", "role", "rank", "world_size")}, {"task": None, "role": "chief", "rank": 0, "world_size": 1})
        self.assertEqual((others[2]["role"], others[2]["chief"]), ("chief", "worker:0"))
        self.assertIsNone(others[0]["rank"])

    def test_checkpoint_inspect(self):
        outcome = [json.loads(muster("checkpoint", "inspect", "--json", *extra, RUNS.completed())) for extra in ([], ["--tensors"])]
        outcome.append(json.loads(muster("checkpoint", "inspect", "--json", RUNS.damaged(), code=3)))
        self.check(Golden("checkpoint_inspect.txt", "muster checkpoint inspect --json"), outcome)
        self.assertEqual([one["step"] for one in outcome[0]["checkpoints"] if one["latest"] and one["whole"]], [20])

    def test_explain(self):
        outcome = json.loads(muster("explain", "--json", RUNS.exception()))
        golden = Golden("explain.txt", "muster explain --json")
        # No generation of this one is missing a record.
        golden.seen.update({("records", "[]", "failure")} if any("failure" in part for part in outcome["records"]) else ())
        self.check(golden, [outcome])
        self.assertEqual((outcome["generation"], sorted(outcome["members"])), ("1.1", ["chief:0", "worker:0", "worker:1"]))

    def test_report(self):
        outcome = json.loads(muster("report", "--json", "--price-per-hour", "2", RUNS.completed(), RUNS.fashion(), RUNS.servers()))
        self.check(Golden("report.txt", "muster report --json"), [outcome])
        self.assertEqual([run["program"] for run in outcome["runs"]], ["matrix_factorization", "fashion_mnist", "linear"])
        self.assertEqual(outcome["runs"][0]["metrics"]["eval"], result(RUNS.completed())["metrics"]["eval"])

    def test_preflight(self):
        job = RUNS.job("preflight", LINEAR)
        outcome = json.loads(muster("preflight", "--json", "--job", job, "--set", f"model_dir={RUNS.dir / 'preflight' / 'model_dir'}"))
        golden = Golden("preflight.txt", "muster preflight --json")
        # One process alone has no path. tests/cluster/launch/preflight_hosts_test.py sees those of three hosts.
        golden.seen.update({("paths", "[]"), *(("paths", "[]", key) for key in PATH_KEYS)})
        self.check(golden, [outcome])
        self.assertEqual(outcome["exit_code"], 0)

    def test_status(self):
        finished = json.loads(muster("status", "--json", RUNS.completed()))
        job = RUNS.job("status", {**RATINGS, "epochs": 10**6, "summary": {"every_steps": 1000}})
        launch = RUNS.start("status", "muster", "launch", "--workers", 1, "--job", job)
        try:
            deadline = time.monotonic() + 60
            running = {}
            while not (running.get("progress") or {}).get("checkpoint"):
                self.assertLess(time.monotonic(), deadline, launch.output())
                time.sleep(0.2)
                done = subprocess.run([BIN / "muster", "status", "--json", job.parent / "model_dir"], capture_output=True, text=True, timeout=60)
                running = json.loads(done.stdout) if done.returncode == 0 else {}
            launch.signal(signal.SIGINT)
            launch.wait(60)
        finally:
            launch.popen.kill()
            launch.popen.wait()
        self.check(Golden("status.txt", "muster status --json"), [finished, running])
        self.assertEqual((finished["verdict"]["status"], finished["verdict"]["exit_code"]), ("completed", 0))
        self.assertEqual([task["task"] for task in running["tasks"]], ["chief:0", "worker:0"])

    def test_jobs_are_accepted(self):
        """Every key and every name that a job file may have, in a few files."""
        for path in sorted((HERE / "jobs").glob("*.json")):
            cluster = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], **({"ps": ["127.0.0.1:3"]} if "ps" in path.stem else {})}
            tasks = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})}
            for job in json.loads(path.read_text()):
                one = RUNS.job("accepted", job)
                done = subprocess.run([BIN / "muster", "preflight", "--job", one, "--timeout", "0.01"], capture_output=True, text=True, timeout=60,
                                      env={**os.environ, **(tasks if "cluster" in path.stem or "ps" in path.stem else {})})
                self.assertNotEqual(done.returncode, 2, f"{path.name}: {job}: {done.stderr}{done.stdout} {STAYS}")


class Tags(GoldenTest):
    @staticmethod
    def kind(value):
        if value.metadata.plugin_data.plugin_name == "text":
            return "text"
        if value.metadata.plugin_data.plugin_name == "images":
            return "image"
        if value.metadata.plugin_data.plugin_name == "hparams":
            return "hparams"
        return "histogram" if value.HasField("histo") else "scalar"

    def test_tags(self):
        found = {}  # (run, tag): kind
        for model_dir in RUNS.completed(), RUNS.servers(), RUNS.fashion(), RUNS.cyclegan(), RUNS.reported(), RUNS.float16(), RUNS.not_a_number():
            for run in "train", "validation", "test", "eval", "system":
                for event in events(model_dir / run):
                    for value in event.summary.value:
                        found[run, value.tag] = self.kind(value)
        missing, listed = [], set()
        for run, tag, kind, _ in rows("tags.txt", 4):
            same = {key for key in found if key[0] == run and re.fullmatch(re.escape(tag).replace(r"\*", ".+"), key[1])}
            listed |= same
            if not any(found[key] == kind for key in same):
                missing.append(f"{run}: no {kind} {tag}")
        self.assertEqual(missing, [], f"tests/golden/tags.txt lists these TensorBoard tags. {STAYS}")
        self.assertEqual(sorted(set(found) - listed), [], "new tags: add them to tests/golden/tags.txt and docs/summaries.md; from then on they stay")


class ExitCodesAndLines(GoldenTest):
    def test_exit_codes(self):
        found = {}
        for code, run, meaning in rows("exit_codes.txt", 3):
            getattr(RUNS, run)()
            found[run] = RUNS.code[run]
            self.assertEqual(found[run], int(code), f"{run}: {meaning}\n{RUNS.output[run]}")

    def test_lines(self):
        # The source of the lines: a program and a run. A task's lines are in model_dir/logs.
        RUNS.exception(), RUNS.lost(), RUNS.unknown_key()
        texts = {"exception worker": (RUNS.exception() / "logs" / "worker-0.log").read_text(),
                 "exception chief": (RUNS.exception() / "logs" / "chief-0.log").read_text(),
                 "exception follower": (RUNS.exception() / "logs" / "worker-1.log").read_text(),
                 "exception launch": RUNS.output["exception"],
                 "exception cause": result(RUNS.exception())["cause"],
                 "apart terminated chief": (RUNS.apart() / "terminated-chief").read_text(),
                 "apart terminated worker": (RUNS.apart() / "terminated-worker").read_text(),
                 "lost chief": (RUNS.lost() / "logs" / "chief-0.log").read_text(),
                 "lost launch": RUNS.output["lost"],
                 "unknown_key worker": RUNS.output["unknown_key"]}
        self.assertEqual({who for who, _ in rows("lines.txt", 2)}, set(texts), "each of them has a line in tests/golden/lines.txt")
        for who, pattern in rows("lines.txt", 2):
            self.assertRegex(texts[who], re.compile(pattern, re.MULTILINE), f"{who}: no such line. {STAYS}")
        self.assertNotIn("ROOT CAUSE", texts["exception follower"])


class Flags(GoldenTest):
    """The flags in --help: `--name`, whether it takes a value, whether it is required, its default."""
    @staticmethod
    def flags(text):
        found = {}
        for line in text.splitlines():
            # The description begins in column 30, or in the next line.
            spec = line[:30] if len(line) > 30 and line[29] == " " != line[30] else line
            match = re.fullmatch(r"  (?:(-\w),)?(--[a-z-]+(?:,--[a-z-]+)*|[a-z]+|[A-Z]+)(?:\{\w+\})?(?: (.*?))?\s*", spec)
            if not match:
                continue
            short, names, rest = match[1], match[2], (match[3] or "").replace("KEY=VALUE", "PAIR")
            if not names.startswith("--") and names.islower():
                found[names] = "command"
                continue
            value = re.match(r"[A-Z]", rest) and not rest.startswith("REQUIRED")
            choices, default = re.search(r"\{([^}]*)\}", rest), re.search(r"=(\S.*)$", rest)
            kind = "argument" if not names.startswith("--") else "value" if value else "flag"
            kind += " required" if "REQUIRED" in rest else ""
            kind += " repeated" if "..." in rest else ""
            kind += f" of {choices[1]}" if choices else ""
            kind += f" default {default[1]}" if default else ""
            for name in names.split(",") + ([short] if short else []):
                found[name] = kind
        return found

    def flags_by_command(self):
        """Yields the flags of each binary, and of each command within it."""
        commands = [f"muster-{role}" for role in ROLES] + ["muster"]
        while commands:
            command = commands.pop(0)
            binary, *names = command.split()
            text = subprocess.run([BIN / binary, *names, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
            flags = self.flags(text)
            commands += [f"{command} {name}" for name, kind in flags.items() if kind == "command"]
            yield command, flags

    def test_flags(self):
        listed = {}
        for command, flag, kind in rows("flags.txt", 3):
            listed.setdefault(command, {})[flag] = kind
        found = dict(self.flags_by_command())
        complaints = []
        for command, flags in listed.items():
            for flag, kind in flags.items():
                got = found.get(command, {}).get(flag)
                if got is None:
                    complaints.append(f"{command} has no {flag} ({kind})")
                elif got != kind and not (kind.endswith(" required") and got == kind.removesuffix(" required")):  # no longer required is fine
                    complaints.append(f"{command} {flag} is \"{got}\", was \"{kind}\"")
        self.assertEqual(complaints, [], f"tests/golden/flags.txt lists these flags. {STAYS}")
        new = [f"{command}  {flag}  {kind}" for command, flags in found.items() for flag, kind in flags.items()
               if flag not in listed.get(command, {})]
        self.assertEqual(new, [], "new flags: add these lines to tests/golden/flags.txt, and docs; from then on they stay")

    def test_versions(self):
        for binary in [*(f"muster-{role}" for role in ROLES), "muster"]:
            self.assertRegex(subprocess.run([BIN / binary, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout,
                             r"^\d+\.\d+\.\d+")

    def test_make_and_bootstrap(self):
        makefile, bootstrap = (SOURCE / "Makefile").read_text(), (SOURCE / "deploy" / "bootstrap").read_text()
        for kind, name, meaning in rows("make.txt", 3):
            pattern = {"target": rf"^{name}:", "variable": rf"\$\({name}\)|^{name} \?=|\$\(if \$\({name}\)", "bootstrap": rf"^\s*{name}\)"}[kind]
            self.assertRegex(bootstrap if kind == "bootstrap" else makefile, re.compile(pattern, re.MULTILINE), f"{kind} {name}: {meaning}. {STAYS}")

    def test_make_alone_lists_the_targets(self):
        printed = subprocess.run(["make"], cwd=SOURCE, capture_output=True, text=True, timeout=60, check=True).stdout
        for kind, name, _ in rows("make.txt", 3):
            if kind == "target":
                self.assertRegex(printed, rf"\bmake {name}(?![\w-])")


class Environment(GoldenTest):
    # Constants beside the call count as names too.
    READS = re.compile(r'getenv\("(\w+)"\)|Variable(?:\[\])? = "(\w+)"|get\("([A-Z_]+)"\)|"(LC_ALL)", "(LC_CTYPE)", "(LANG)"')

    def sources(self):
        for folder in "chief", "common", "deploy", "evaluator", "ps", "worker", "examples":
            for path in (SOURCE / folder).rglob("*"):
                if path.suffix in (".cc", ".h") or path.name == "bootstrap":
                    yield path, path.read_text()

    def test_each_is_listed_and_read(self):
        listed = {name for name, _, _ in rows("environment.txt", 3)}
        text = "\n".join(text for _, text in self.sources())
        # Read by the libraries below.
        below = {"TMPDIR": "temp_directory_path", "OMP_NUM_THREADS": "get_num_threads"}
        for name in sorted(listed):
            self.assertRegex(text, rf"\b{below.get(name, name)}\b", f"nothing reads {name} any more. {STAYS}")
        read = {name for names in self.READS.findall(text) for name in names if name}
        read |= set(re.findall(r"\$\{([A-Z_]+):", (SOURCE / "deploy" / "bootstrap").read_text()))
        self.assertEqual(sorted(read - listed), [], "new variables: add them to tests/golden/environment.txt; from then on they stay")
        self.assertLessEqual({"TF_CONFIG", "MUSTER_RESTARTS", "MUSTER_LOG_LEVEL", "NO_COLOR", "LANG", "MUSTER_CACHE"}, read, "this test finds no names")

    def test_what_they_do(self):
        job = RUNS.job("quiet", {**LINEAR, "max_steps": 2})
        config = {"TF_CONFIG": json.dumps({"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "worker", "index": 0}})}
        self.assertIn('"worker:0"', muster("cluster", "--json", environment=config))
        RUNS.run("quiet", "muster-worker", "--job", job, environment={"MUSTER_LOG_LEVEL": "error"})
        self.assertEqual((RUNS.code["quiet"], RUNS.output["quiet"]), (0, ""))
        # A task that takes a killed one's place leaves the kill out.
        kill = ["muster-worker", "--job", job, "--set", "restore=never", "--fault", "kill@worker:0:step=2"]
        RUNS.run("first", *kill)
        self.assertEqual(RUNS.code["first"], -signal.SIGKILL)
        RUNS.run("second", *kill, environment={"MUSTER_RESTARTS": "1"})
        self.assertEqual(RUNS.code["second"], 0, RUNS.output["second"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
