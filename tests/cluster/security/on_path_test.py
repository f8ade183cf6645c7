"""Somebody on the way between two hosts, who changes what passes, and says again what he has heard.

The switch between the hosts (hosts.py) does both, with checksums as they should be: what arrives looks right to the kernel.
"""
import collections
import json
import signal
import socket
import struct
import subprocess
import sys
import unittest

from harness import PREEMPTED, RETRYABLE, ClusterTest, Process, losses, main
from hosts import Network

CONTROL = 5000
REPLAY = """
import json, socket, sys
address, port, texts = json.load(sys.stdin)
for text in texts:
    with socket.create_connection((address, port), 10) as connection:
        connection.settimeout(20)
        answer = b""
        try:
            connection.sendall(bytes.fromhex(text))
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionError:
            pass  # closed, with bytes unread
        print(len(answer))
"""


def parts(frame):
    """The parts of an Ethernet frame: (source port, destination port, sequence number, begin of TCP, begin of what it carries, end), or None."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 6:
        return None
    tcp = 14 + (frame[14] & 15) * 4
    begin, end = tcp + (frame[tcp + 12] >> 4) * 4, 14 + struct.unpack_from("!H", frame, 16)[0]
    return (*struct.unpack_from("!HHI", frame, tcp), tcp, begin, end)


def flipped(frame, tcp, end):
    """With another last byte, and the checksum of that."""
    frame = bytearray(frame)
    frame[end - 1] ^= 1
    frame[tcp + 16:tcp + 18] = b"\0\0"
    text = bytes(frame[26:34]) + struct.pack("!HH", 6, end - tcp) + bytes(frame[tcp:end])
    total = sum(struct.unpack(f"!{(len(text) + 1) // 2}H", text + b"\0" * (len(text) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", frame, tcp + 16, ~total & 0xFFFF)
    return bytes(frame)


class OnPath(Network):
    """Flips a bit of a frame where `flip(control, number)` says so: of the number-th of its kind that carries something."""
    def __init__(self, count):
        self.flip, self.flips = None, 0
        self.numbers = collections.Counter()
        self.streams = collections.defaultdict(dict)  # {(source port, (address, port)): {sequence number: what it carries}}
        super().__init__(count)

    def passes(self, frame):
        found = parts(frame)
        if found is None or found[4] == found[5]:
            return frame
        source, destination, sequence, tcp, begin, end = found
        self.streams[source, (socket.inet_ntoa(frame[30:34]), destination)][sequence] = frame[begin:end]
        control = CONTROL in (source, destination)
        self.numbers[control] += 1
        if self.flip is None or not self.flip(control, self.numbers[control]):
            return frame
        self.flips += 1
        return flipped(frame, tcp, end)


class OnPathTest(ClusterTest):
    LINEAR = dict(max_steps=600, steps_per_epoch=300, summary={"every_steps": 50}, timeouts={"formation": 3, "heartbeat": 5})

    def setUp(self):
        self.network = OnPath(2)
        self.addCleanup(self.network.close)
        super().setUp()

    def process_class(self, name, command, environment, log):
        return Process(name, self.network.command(0 if name == "chief:0" else 1, command), environment, log)

    def begin(self, **keys):
        cluster = {kind: [f"{address}:{CONTROL}"] for kind, address in zip(("chief", "worker"), self.network.addresses)}
        self.model_dir = self.dir / f"model-{len(self.processes)}"
        self.network.flip, self.network.flips = None, 0
        self.network.numbers.clear()
        return self.start_all(cluster, self.job(**{**self.LINEAR, **keys}), [f"model_dir={self.model_dir}"])

    def logs(self, processes):
        return "\n".join(process.output() for process in processes)

    def undisturbed(self, **keys):
        self.finish(self.begin(**keys))
        return losses(self.model_dir)

    def check_as_undisturbed(self, flip, **keys):
        expected = self.undisturbed(**keys)
        processes = self.begin(**keys)
        processes[0].wait_for("epoch 1:")
        self.network.numbers.clear()
        self.network.flip = flip
        self.finish(processes, timeout=90)
        self.assertEqual(losses(self.model_dir), expected)
        self.assertGreater(self.network.flips, 0)
        return self.logs(processes)

    def test_flipped_bits_of_data(self):
        """Each costs a generation, and no step."""
        text = self.check_as_undisturbed(lambda control, number: not control and number in (50, 500))
        self.assertEqual(self.network.flips, 2)
        self.assertIn("generation 3", text)
        self.assertIn("the data was changed on its way", text)

    def test_flipped_bits_of_control(self):
        self.check_as_undisturbed(lambda control, number: control and number < 4, max_steps=3000)
        self.assertEqual(self.network.flips, 3)

    def test_a_link_that_always_flips(self):
        """The job ends, and names it."""
        processes = self.begin()
        processes[0].wait_for("Number of devices")
        self.network.flip = lambda control, number: not control
        self.finish(processes, timeout=90, code=RETRYABLE)
        text = self.logs(processes)
        self.assertRegex(text, "ROOT CAUSE: 3 formations failed; the last one: chief 0 <-> worker 0 .*: the data was changed on its way")

    def replay(self, server, texts):
        """How many bytes each of them was answered, until the connection was closed."""
        client = 1 - self.network.addresses.index(server[0])
        done = subprocess.run(self.network.command(client, [sys.executable, "-c", REPLAY]), input=json.dumps([*server, texts]),
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [int(line) for line in done.stdout.split()]

    def test_bytes_that_are_said_again(self):
        expected = self.undisturbed()
        self.network.streams.clear()
        processes = self.begin(max_steps=10**9)
        processes[0].wait_for("epoch 1:")
        heard = collections.defaultdict(list)
        for (source, destination), pieces in list(self.network.streams.items()):
            text = b"".join(pieces[at] for at in sorted(pieces))
            if text[:2] == b"\x16\x03" and text[5] == 1:  # begins with ClientHello
                heard[destination].append(text[:20_000].hex())
        self.assertIn((self.network.addresses[0], CONTROL), heard)
        self.assertGreater(len(heard), 1)
        attempts = 0
        for server, texts in heard.items():
            for answered in self.replay(server, texts[:3]):
                attempts += 1
                # ServerHello and certificate, sealed with a key that only the first client has.
                self.assertLess(answered, 4000, server)
        processes[0].wait_for("saved step 600")
        processes[0].signal(signal.SIGTERM)
        self.finish(processes, code=PREEMPTED)
        got = losses(self.model_dir)
        self.assertEqual({step: got[step] for step in expected}, expected)
        self.assertIn("before the peer proved its identity", processes[0].output())
        # Each is named, and once.
        lines = [line for line in self.logs(processes).splitlines() if "before the peer proved its identity" in line or "closed a data connection" in line]
        self.assertEqual(len(lines), attempts, lines)


if __name__ == "__main__":
    main()
