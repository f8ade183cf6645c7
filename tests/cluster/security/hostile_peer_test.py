"""Strangers at the ports of a running job: they cost a bounded amount, and the job has the result that it would have had."""
import contextlib
import os
import pathlib
import resource
import signal
import socket
import threading
import time
import unittest

import grpc
from harness import ClusterTest, losses

IDLE = 10_000
PROTOCOL = 2
GZIP = grpc.Compression.Gzip
undisturbed = {}  # losses


def varint(number):
    text = b""
    while number > 127:
        text += bytes([number & 127 | 128])
        number >>= 7
    return text + bytes([number])


def field(number, value):
    """A field of a protobuf message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def hello(**fields):
    numbers = {"protocol": 1, "task": 2, "incarnation": 3, "cluster_digest": 5, "cluster": 6, "job": 7, "num_replicas": 9}
    return field(1, b"".join(field(numbers[name], value) for name, value in fields.items()))


def channel(address, compression=None):
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", 64 << 20), ("grpc.enable_http_proxy", 0)]
    return grpc.insecure_channel(address, options=options, compression=compression)


def session(stranger, messages):
    """How a session that says these messages ends; None: it did not within its deadline."""
    call = stranger.stream_stream("/muster.proto.Coordinator/Session")(messages, timeout=10)
    try:
        for _ in call:
            pass
    except grpc.RpcError as error:
        return error
    return call


class HostilePeer(ClusterTest):
    LINEAR = dict(strategy="parameter_server", max_steps=2000, summary={"every_steps": 100}, timeouts={"join": 120})

    def begin(self, workers=1, ps=1, **keys):
        """A chief and servers; workers come later."""
        self.at = self.cluster(workers, ps=ps)
        self.model_dir = self.dir / f"model-{len(self.processes)}"
        self.kept = self.job(**{**self.LINEAR, "model_dir": str(self.model_dir), **keys})
        chief = self.start(self.at, "chief:0", self.kept)
        servers = [self.start(self.at, f"ps:{i}", self.kept) for i in range(ps)]
        for process in servers:
            process.wait_for("this server listens on")
        self.wait_for_port(self.at["chief"][0])
        return [chief, *servers]

    def wait_for_port(self, address):
        host, port = address.split(":")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                return
            time.sleep(0.05)
        self.fail(f"nobody listens on {address}")

    def finish_with(self, processes, timeout=120):
        worker = self.start(self.at, "worker:0", self.kept)
        self.finish([*processes, worker], timeout)
        return losses(self.model_dir)

    def expected(self):
        """The losses of the undisturbed job. It runs once for all tests of this file."""
        if not undisturbed:
            undisturbed.update(self.finish_with(self.begin()))
            self.assertTrue(undisturbed)
        return undisturbed

    def ports(self):
        return [*self.at["chief"], *self.at["ps"]]

    def test_idle_connections(self):
        expected = self.expected()
        processes = self.begin()
        with self.idle_connections() as held:
            self.assertEqual(self.finish_with(processes), expected)
        print(f"{held} idle connections")
        for process in processes:
            self.assertIn(" in favor of a newer one: there are 256 without a call", process.output())

    def test_messages(self):
        expected = self.expected()
        processes = self.begin()
        for address in self.ports():
            with channel(address, GZIP) as stranger:
                bomb = field(5, b"\0" * (15 << 20))
                for method in "Coordinator/ReportFailure", "ParameterServer/Create":
                    with self.assertRaises(grpc.RpcError) as refused:
                        stranger.unary_unary(f"/muster.proto.{method}")(bomb, timeout=10)
                    self.assertIn(refused.exception.code(), (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL), refused.exception)
            with channel(address) as stranger:
                for size in (16 << 20) - 100, 17 << 20:
                    with self.assertRaises(grpc.RpcError) as refused:
                        stranger.unary_unary("/muster.proto.ParameterServer/Beat")(field(2, b"\0" * size), timeout=10)
                    codes = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED  # the chief serves no parameters
                    self.assertIn(refused.exception.code(), codes, refused.exception)
        with channel(self.at["chief"][0]) as stranger:
            # A stranger that claims to be an awaited task, with another cluster, may end the job. Only identity prevents that.
            for key in "job", "cluster":
                deep = hello(protocol=PROTOCOL, task=b"worker:9", incarnation=5, cluster_digest=b"0", **{key: b"[" * 100_000})
                self.assertEqual(session(stranger, iter([deep])).code(), grpc.StatusCode.OK)
            forged = hello(protocol=PROTOCOL, task=b"worker:9\x1b[2J\nROOT CAUSE", incarnation=5, num_replicas=1 << 30)
            call = session(stranger, iter([forged]))
            self.assertEqual(call.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertEqual(self.finish_with(processes), expected)
        self.assertNotIn("\x1b", processes[0].output())

    def test_sessions_without_hello_and_a_silent_fill(self):
        expected = self.expected()
        processes = self.begin()
        stop = threading.Event()

        with channel(self.at["chief"][0]) as chief, channel(self.at["ps"][0]) as ps:
            calls = [chief.stream_stream("/muster.proto.Coordinator/Session")(silence_of(stop), timeout=60) for _ in range(60)]
            fills = [ps.stream_unary("/muster.proto.ParameterServer/Fill").future(silence_of(stop), timeout=60) for _ in range(60)]
            try:
                found = self.finish_with(processes)
            finally:
                stop.set()
            codes = {call.code() for call in calls} | {fill.code() for fill in fills}
        self.assertEqual(found, expected)
        print("they ended with", codes)

    def test_few_descriptors(self):
        """The job finishes, or ends with a sentence that names the limit."""
        for limit in 64, 128:
            with self.subTest(limit=limit):
                with Bounded(f"nofile={limit}:{limit}"):
                    processes = self.begin()
                held = []
                with contextlib.ExitStack() as stack:
                    for i in range(200):
                        host, port = self.ports()[i % 2].split(":")
                        held.append(stack.enter_context(socket.create_connection((host, int(port)), 10)))
                    worker = self.start(self.at, "worker:0", self.kept)
                    for process in [*processes, worker]:
                        process.wait(120)
                codes = {p.name: p.popen.returncode for p in [*processes, worker]}
                print("RLIMIT_NOFILE", limit, codes)
                if set(codes.values()) != {0}:
                    self.assertIn("may open", "".join(p.output() for p in processes), codes)

    def test_little_memory(self):
        """With an address space of 700 MB, as large as LibTorch needs it."""
        expected = self.expected()
        with Bounded(f"data={700 << 20}"):
            processes = self.begin()
        with self.flooded():
            self.assertEqual(self.finish_with(processes), expected)

    def test_a_small_memory_cgroup(self):
        """Idle connections, floods and bombs, and 256 MiB for the chief and the server each."""
        expected = self.expected()
        with MemoryGroups(256 << 20) as groups:
            processes = self.begin()
            with contextlib.ExitStack() as stack:
                stack.enter_context(self.idle_connections())
                stack.enter_context(self.flooded())
                stack.enter_context(self.flooded(GZIP))
                worker = self.start(self.at, "worker:0", self.kept)  # in a group of its own, too
                self.finish([*processes, worker], 120)
            print("most megabytes", groups.most())
        self.assertEqual(losses(self.model_dir), expected)

    @contextlib.contextmanager
    def idle_connections(self):
        """Opens as many as the limit allows, up to IDLE, half of them at each port."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        count = min(IDLE, hard - 200)
        try:
            with contextlib.ExitStack() as stack:
                for i in range(count):
                    host, port = self.ports()[i % 2].split(":")
                    stack.enter_context(socket.create_connection((host, int(port)), 10))
                yield count
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    @contextlib.contextmanager
    def flooded(self, compression=None):
        """Meanwhile strangers send the largest messages that gRPC takes, eight at a time to each port."""
        stop = threading.Event()

        def flood(address):
            with channel(address, compression) as stranger:
                while not stop.is_set():
                    calls = [stranger.unary_unary("/muster.proto.ParameterServer/Beat").future(field(2, b"\0" * (15 << 20)), timeout=5) for _ in range(8)]
                    for call in calls:
                        call.exception()

        threads = [threading.Thread(target=flood, args=[address]) for address in self.ports()]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def silence_of(stop):
    """Messages of a stream that says nothing."""
    while not stop.wait(0.2):
        pass
    return
    yield


class Bounded:
    """Processes that are started meanwhile have that limit: "nofile=64"."""

    def __init__(self, limit):
        self.limit = limit

    def __enter__(self):
        limit, before = self.limit, ClusterTest.process_class

        class Limited(before):
            def __init__(self, name, command, *rest, **how):
                super().__init__(name, ["prlimit", f"--{limit}", *command], *rest, **how)

        self.before, ClusterTest.process_class = before, Limited

    def __exit__(self, *_):
        ClusterTest.process_class = self.before


class MemoryGroups:
    """Processes that are started meanwhile are in a memory cgroup of their own, with that limit. Skips the test where none can be made."""

    VERSION_1, VERSION_2 = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")

    def __init__(self, limit):
        self.limit, self.folders = limit, []
        if (self.VERSION_1 / "memory.limit_in_bytes").exists():
            self.root, self.limit_file, self.most_file = self.VERSION_1, "memory.limit_in_bytes", "memory.max_usage_in_bytes"
        else:
            self.root, self.limit_file, self.most_file = self.VERSION_2, "memory.max", "memory.peak"

    def make(self):
        folder = self.root / f"muster-test-{os.getpid()}-{len(self.folders)}"
        try:
            folder.mkdir()
            self.folders.append(folder)
            (folder / self.limit_file).write_text(str(self.limit))
        except OSError as error:
            raise unittest.SkipTest(f"no memory cgroup can be made here: {error}")
        return folder

    def most(self):
        """The megabytes that each has used at most, where the kernel says so."""
        files = [folder / self.most_file for folder in self.folders]
        return [int(file.read_text()) >> 20 for file in files if file.exists()]

    def __enter__(self):
        groups, before = self, ClusterTest.process_class

        class Limited(before):
            def __init__(self, name, command, *rest, **how):
                script = f'echo $$ > {groups.make()}/cgroup.procs && exec "$@"'
                super().__init__(name, ["sh", "-c", script, "sh", *command], *rest, **how)

        self.before, ClusterTest.process_class = before, Limited
        try:
            self.make()
        except unittest.SkipTest:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        ClusterTest.process_class = self.before
        for folder in self.folders:
            for pid in (folder / "cgroup.procs").read_text().split():  # of a test that failed
                os.kill(int(pid), signal.SIGKILL)
            deadline = time.monotonic() + 10
            while True:
                try:
                    folder.rmdir()
                    break
                except OSError:  # the last process has not left yet
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)


if __name__ == "__main__":
    unittest.main(verbosity=2)
