"""Real processes of one cluster on this host: what the cluster tests share.

Every process gets its own TF_CONFIG, a session of its own, and is waited for; nothing outlives a test, but for the folder of one
that failed: it stays, and the ends of the logs in it are printed. Python's standard library and TensorBoard's event protocol only.
"""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("MUSTER_BIN_DIR", SOURCE / "build" / "bin"))
# Exit codes (tests/golden/exit_codes.txt).
PROGRAM, CONFIGURATION, DAMAGED, RETRYABLE, PREEMPTED = 1, 2, 3, 138, 143


kept_ports = []


def free_ports(count):
    """Ports below the ephemeral range, so that no outgoing connection takes one; they are this process's until it ends.

    A socket that is bound and does not listen keeps others from its port, and who sets SO_REUSEADDR, as the product does, may listen
    there all the same: the port is the test's before a task listens there, and while a task that was killed is replaced.
    """
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = []
    while len(ports) < count:
        keeper = socket.socket()
        try:
            keeper.bind(("127.0.0.1", random.randrange(10000, low)))  # without SO_REUSEADDR: nobody has or keeps it
        except OSError:
            keeper.close()
            continue
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept_ports.append(keeper)
        ports.append(keeper.getsockname()[1])
    return ports


def take_port(address):
    """A socket of the test's own that listens where a task of the cluster would."""
    host, port = address.split(":")
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind((host, int(port)))
    taken.listen()
    return taken


def bad(result):
    """How many failures there are so far."""
    return len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)


def inherited(**more):
    """Returns the environment of this process without TF_CONFIG, with `more` added."""
    environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    # Threads that spin while they wait take the cores from the other tests, whose deadlines run.
    environment.setdefault("OMP_WAIT_POLICY", "passive")
    return {**environment, **more}


class Process:
    def __init__(self, name, command, environment, log, directory=None, output=None):
        """`output`: a descriptor that it writes to, not to `log`."""
        self.name, self.log = name, log
        with open(log, "wb") as out:
            self.popen = subprocess.Popen(command, env=environment, stdout=out if output is None else output, stderr=subprocess.STDOUT,
                                          start_new_session=True, cwd=directory)
        self.ended_at = None

    def output(self):
        return self.log.read_text(errors="replace")

    def signal(self, number):
        self.popen.send_signal(number)

    def matches(self, pattern, timeout=30):
        """Until the process has printed what `pattern` matches; the match."""
        deadline = time.monotonic() + timeout
        while (found := re.search(pattern, self.output())) is None:
            # An ended process has written all its output, so the second look is the last one.
            if time.monotonic() > deadline or (self.popen.poll() is not None and not re.search(pattern, self.output())):
                raise AssertionError(f"{self.name} never printed what {pattern!r} matches; it printed:\n{self.output()}")
            time.sleep(0.02)
        return found

    def wait(self, timeout):
        code = self.popen.wait(timeout)
        return code

    def wait_for(self, text, timeout=30):
        """Until the process has printed `text`."""
        deadline = time.monotonic() + timeout
        while text not in self.output():
            if time.monotonic() > deadline or (self.popen.poll() is not None and text not in self.output()):
                raise AssertionError(f"{self.name} never printed {text!r}; it printed:\n{self.output()}")
            time.sleep(0.02)


class ClusterTest(unittest.TestCase):
    maxDiff = None
    process_class = Process
    dir = None

    def run(self, result=None):
        result = self.defaultTestResult() if result is None else result
        before = bad(result)
        super().run(result)
        if self.dir is None:
            return result  # skipped
        if bad(result) > before:
            self.tell_what_is_left()
        else:
            shutil.rmtree(self.dir)
        return result

    def tell_what_is_left(self, lines=60):
        """Prints the output of the processes, because the failure may not be reproducible."""
        parts = [f"\n==== {self.id()} failed; its folder stays: {self.dir}"]
        for process in self.processes:
            log = process.output().splitlines() if process.log.exists() else []
            parts.append(f"---- {process.name}, exit code {process.popen.returncode}, the last {min(lines, len(log))} of {len(log)} lines of {process.log}")
            parts += log[-lines:]
        print("\n".join(parts), file=sys.stderr, flush=True)

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-test-"))
        self.processes = []
        # Flight records that find no chief go there, and with it.
        (self.dir / "tmp").mkdir()
        self.tmpdir, os.environ["TMPDIR"] = os.environ.get("TMPDIR"), str(self.dir / "tmp")

    def tearDown(self):
        for process in self.processes:
            if process.popen.poll() is None:
                process.signal(signal.SIGKILL)
                process.popen.wait()
        if self.tmpdir is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = self.tmpdir

    def job(self, **keys):
        """A job file; what it does not say is as small and quick as can be."""
        job = {"program": "linear", "global_batch_size": 5, "max_steps": 20, "summary": {"every_steps": 1}}
        job.update(keys)
        path = self.dir / f"job-{len(list(self.dir.iterdir()))}.json"
        path.write_text(json.dumps(job))
        return path

    def run_key(self):
        """A key of this test's own."""
        path = self.dir / "run.key"
        if not path.exists():
            subprocess.run([BIN / "muster", "key", "new", path], check=True, stdout=subprocess.DEVNULL)
        return path

    def cluster(self, workers, chief=True, ps=0):
        names = (["chief"] if chief else []) + ["worker"] * workers + ["ps"] * ps
        cluster = {}
        for name, port in zip(names, free_ports(len(names))):
            cluster.setdefault(name, []).append(f"127.0.0.1:{port}")
        return cluster

    def start(self, cluster, task, job, sets=(), environment=None, binary=None, faults=(), **how):
        """Starts one task, "worker:1"; None: without any TF_CONFIG."""
        env = inherited()
        kind = "worker"
        if task is not None:
            kind, index = task.split(":")
            env["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": kind, "index": int(index)}})
            # To NCCL, which refuses two ranks on one GPU of a host, each is a host.
            env.update(NCCL_HOSTID=task, NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
        env.update(environment or {})
        command = [str(BIN / (binary or f"muster-{kind}")), "--job", str(job)]
        for item in sets:
            command += ["--set", item]
        for fault in faults:
            command += ["--fault", fault]
        return self.start_process(task or "local", command, env, **how)

    def start_process(self, name, command, environment=None, **how):
        """Starts any program. `environment` is its whole environment, by default inherited()."""
        process = self.process_class(name, list(map(str, command)), inherited() if environment is None else environment,
                                     self.dir / f"log-{len(self.processes)}", **how)
        self.processes.append(process)
        return process

    def start_launch(self, *arguments, environment=None, **how):
        """Starts `muster launch`. `environment` is added to inherited()."""
        return self.start_process("launch", [BIN / "muster", "launch", *arguments], inherited(**(environment or {})), **how)

    def run_launch(self, *arguments, timeout=120, code=0, **how):
        """Runs `muster launch` until it ends with `code`. Returns its output."""
        process = self.start_launch(*arguments, **how)
        self.finish([process], timeout, code)
        return process.output()

    def start_all(self, cluster, job, sets=(), **how):
        return [self.start(cluster, f"{kind}:{i}", job, sets, **how) for kind, addresses in cluster.items() for i in range(len(addresses))]

    def finish(self, processes, timeout=60, code=0):
        """All end by themselves, with `code`."""
        deadline = time.monotonic() + timeout
        for process in processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.fail(f"{process.name} did not end within {timeout} s; it printed:\n{process.output()}")
        codes = {p.name: p.popen.returncode for p in processes}
        self.assertEqual(codes, {p.name: code for p in processes}, "\n".join(f"--- {p.name}\n{p.output()}" for p in processes))

    def train(self, members, job, sets=(), timeout=60):
        """Runs a job on `members` processes (1: no cluster at all) and returns its losses by step."""
        model_dir = self.dir / f"model-{len(self.processes)}"
        sets = list(sets) + [f"model_dir={model_dir}"]
        if members == 1:
            processes = [self.start(None, None, job, sets)]
        else:
            processes = self.start_all(self.cluster(members - 1), job, sets)
        self.finish(processes, timeout)
        return losses(model_dir)


def ask_to_stop(*processes):
    """SIGTERM to each, until its loop is sure to hear of it: only the next signal is answered after the first one was passed on."""
    for line in "SIGTERM received: ", "SIGTERM received again":
        for process in processes:
            process.signal(signal.SIGTERM)
        for process in processes:
            process.wait_for(line)


def task_pids(launch):
    """{"ps:0": pid} of the tasks of a `muster launch` that live."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            # Processes of others may have names and environments of any bytes.
            with open(f"/proc/{entry}/stat", errors="replace") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            if parent != launch.popen.pid:
                continue
            with open(f"/proc/{entry}/environ", errors="replace") as file:
                config = re.search(r"TF_CONFIG=([^\0]*)", file.read())
        except OSError:
            continue
        if config:
            task = json.loads(config[1])["task"]
            found[f"{task['type']}:{task['index']}"] = int(entry)
    return found


def events(folder):
    """The events of a TensorBoard run folder, in order of time."""
    from tensorboard.compat.proto.event_pb2 import Event
    for file in sorted(folder.glob("events.out.tfevents.*")):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            yield Event.FromString(data[at + 12:at + 12 + length])
            at += 12 + length + 4


def scalars(model_dir, folder="train", tag=None, purged=True):
    """Returns {tag: {step: value}} of `tag`, or of all tags whose values are single numbers. As in TensorBoard, a SessionLog START removes
    the earlier values from its step on. With purged=False it removes nothing, so that a repeated step is an error."""
    from tensorboard.compat.proto.event_pb2 import SessionLog
    from tensorboard.util import tensor_util
    found = {}
    for event in events(model_dir / folder):
        if purged and event.HasField("session_log") and event.session_log.status == SessionLog.START:
            found = {name: {step: value for step, value in points.items() if step < event.step} for name, points in found.items()}
        for value in event.summary.value:
            kind = value.WhichOneof("value")
            if tag not in (None, value.tag) or kind not in ("simple_value", "tensor"):
                continue
            number = value.simple_value if kind == "simple_value" else tensor_util.make_ndarray(value.tensor)
            if kind == "tensor" and (number.shape != () or number.dtype.kind in "OS"):  # images, text
                continue
            points = found.setdefault(value.tag, {})
            assert event.step not in points, f"{folder}: {value.tag} of step {event.step} is there twice"
            points[event.step] = float(number)
    return found


def curve(model_dir, folder="train", tag="loss"):
    """Returns {step: value} of one tag, as TensorBoard shows it."""
    return scalars(model_dir, folder, tag).get(tag, {})


def losses(model_dir):
    """Returns {step: loss}. No step may be recorded twice, not even by a resumed run."""
    return scalars(model_dir, tag="loss", purged=False).get("loss", {})


def write_idx(path, values):
    """Bytes as a file of MNIST's format."""
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape) + values.tobytes())


def checkpoints(model_dir):
    """The steps of the published checkpoints, ascending."""
    return sorted(int(path.name[5:]) for path in (model_dir / "checkpoints").glob("step-*"))


def tensors(model_dir, step, file="model.safetensors"):
    """{name: values} of a checkpoint's float32 tensors."""
    import numpy
    data = (model_dir / "checkpoints" / f"step-{step:08}" / file).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    return {name: numpy.frombuffer(data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]], numpy.float32)
            for name, t in header.items() if name != "__metadata__" and t["dtype"] == "F32"}


def result(model_dir):
    return json.loads((model_dir / "result.json").read_text())


def main():
    """unittest.main with exit code 77, for which ctest says "Skipped", if all tests passed and some were skipped."""
    result = unittest.main(module="__main__", verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.skipped else 0)
