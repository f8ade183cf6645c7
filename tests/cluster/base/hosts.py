"""Several hosts on this one: a network namespace for each member, and a switch between them that delays, loses and drops.

The switch is a thread of the test that forwards Ethernet frames between TAP devices, one in each namespace: the treatment of a
frame depends on its sender and receiver, and needs no optional part of the kernel. Needs root (or CAP_NET_ADMIN and CAP_SYS_ADMIN)
and iproute2.
"""
import fcntl
import heapq
import os
import pathlib
import random
import select
import shutil
import struct
import subprocess
import tempfile
import threading
import time
import unittest

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
PREFIX = "muster-test"


def run(*command):
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)


def require():
    """Skips the test where namespaces are not permitted, with the reason."""
    if shutil.which("ip") is None:
        raise unittest.SkipTest("no `ip` here (package iproute2)")
    if not os.path.exists("/dev/net/tun"):
        raise unittest.SkipTest("no /dev/net/tun here")
    name = f"{PREFIX}-{os.getpid()}-try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode != 0:
        raise unittest.SkipTest(f"network namespaces are not permitted here: {tried.stderr.strip()}")
    entered = subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    if entered.returncode != 0:  # within chroot, whose root is no mount point
        raise unittest.SkipTest(f"network namespaces cannot be entered here: {entered.stderr.strip()}")


def remove_leftovers():
    """Removes the namespaces of tests that were killed. The name of a namespace has the test's pid."""
    for name in os.listdir("/var/run/netns") if os.path.isdir("/var/run/netns") else []:
        parts = name.split("-")
        if name.startswith(PREFIX + "-") and not os.path.exists(f"/proc/{parts[2]}"):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)


class Link:
    """From one host to another, one way."""
    def __init__(self):
        self.delay, self.loss, self.cut = 0.0, 0.0, False


class Network:
    def __init__(self, count, seed=1):
        require()
        remove_leftovers()
        self.names = [f"{PREFIX}-{os.getpid()}-{i}" for i in range(count)]
        self.addresses = [f"10.77.0.{i + 1}" for i in range(count)]
        self.links = {(a, b): Link() for a in range(count) for b in range(count) if a != b}
        self.random = random.Random(seed)
        self.taps, self.forwarded = [], 0
        key, self.key = tempfile.mkstemp(prefix="muster-test-", suffix=".key")  # 0600
        os.write(key, f"{os.urandom(32).hex()}\n".encode())
        os.close(key)
        self.wake_read, self.wake_write = os.pipe()
        self.thread = threading.Thread(target=self._forward, daemon=True)
        try:
            for i, name in enumerate(self.names):
                self._add(i, name)
        except BaseException:
            self._remove()
            raise
        self.thread.start()

    def _add(self, index, name):
        run("ip", "netns", "add", name)
        folder = pathlib.Path("/etc/netns") / name  # mounted over /etc by `ip netns exec`
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts").write_text("127.0.0.1 localhost\n")
        (folder / "resolv.conf").write_text("")
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.taps.append(tap)
        device = f"mt{os.getpid()}.{index}"
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
        run("ip", "link", "set", device, "netns", name)
        run("ip", "-n", name, "link", "set", device, "name", "eth0", "address", f"02:4d:00:00:00:{index:02x}")
        run("ip", "-n", name, "addr", "add", f"{self.addresses[index]}/24", "dev", "eth0")
        for device in "lo", "eth0":
            run("ip", "-n", name, "link", "set", device, "up")

    # ---- what happens to frames ----

    def each_way(self, a, b):
        return self.links[a, b], self.links[b, a]

    def shape(self, delay=0.0, loss=0.0):
        """Sets delay and loss of all links."""
        for link in self.links.values():
            link.delay, link.loss = delay, loss

    def set_cut(self, pairs, cut=True):
        for pair in pairs:
            self.links[pair].cut = cut

    def from_host(self, a):
        return [pair for pair in self.links if pair[0] == a]

    def to_host(self, a):
        return [pair for pair in self.links if pair[1] == a]

    def between(self, a, b):
        return [(a, b), (b, a)]

    def link_down(self, a):
        run("ip", "-n", self.names[a], "link", "set", "eth0", "down")

    def link_up(self, a):
        run("ip", "-n", self.names[a], "link", "set", "eth0", "up")

    def set_hosts(self, index, entries):
        """Rewrites /etc/hosts of one host, also under processes that run: {name: address}."""
        text = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in entries.items())
        with open(f"/etc/netns/{self.names[index]}/hosts", "r+") as file:
            file.truncate(0)
            file.write(text)

    def command(self, index, command):
        return ["ip", "netns", "exec", self.names[index], "env", f"MUSTER_RUN_KEY_FILE={self.key}", *command]

    # ---- the switch ----

    def passes(self, frame):
        """The frame as the switch forwards it. Called on the switch's thread."""
        return frame

    def _receivers(self, sender, frame):
        if frame[0] & 1:  # broadcast, multicast
            return [i for i in range(len(self.taps)) if i != sender]
        receiver = frame[5]
        return [receiver] if frame[:5] == b"\x02\x4d\0\0\0" and receiver < len(self.taps) and receiver != sender else []

    def _forward(self):
        poll = select.poll()
        for fd in [self.wake_read, *self.taps]:
            poll.register(fd, select.POLLIN)
        index = {fd: i for i, fd in enumerate(self.taps)}
        queue, number = [], 0
        while True:
            wait = None if not queue else max(0, (queue[0][0] - time.monotonic()) * 1000)
            for fd, _ in poll.poll(wait):
                if fd == self.wake_read:
                    return
                for _ in range(64):
                    try:
                        frame = os.read(fd, 65536)
                    except OSError:  # nothing more, or the device is down
                        break
                    frame = self.passes(frame)
                    for receiver in self._receivers(index[fd], frame):
                        link = self.links[index[fd], receiver]
                        if link.cut or (link.loss and self.random.random() < link.loss):
                            continue
                        number += 1
                        heapq.heappush(queue, (time.monotonic() + link.delay, number, receiver, frame))
            while queue and queue[0][0] <= time.monotonic():
                _, _, receiver, frame = heapq.heappop(queue)
                try:
                    os.write(self.taps[receiver], frame)
                    self.forwarded += 1
                except OSError:  # a host that is down, or takes no more
                    pass

    def close(self):
        os.write(self.wake_write, b"x")
        self.thread.join()
        self._remove()

    def _remove(self):
        pathlib.Path(self.key).unlink(missing_ok=True)
        for fd in [*self.taps, self.wake_read, self.wake_write]:
            os.close(fd)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)
