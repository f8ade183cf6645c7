"""Hosts for `muster launch --hosts` on this one: an sshd for each, with keys, configuration and port of the test's own.

A host is an alias of the client's configuration. What runs behind an sshd has the test's mark in its environment, so a test can find
it, and see that nothing of it is left.
"""
import contextlib
import getpass
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from harness import free_ports

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:" + os.environ.get("PATH", ""))
MARK = "MUSTER_TEST_MARK"


def require():
    """Skips the test where there is no sshd, with the reason."""
    if SSHD is None or shutil.which("ssh") is None:
        raise unittest.SkipTest("no sshd here (packages openssh-server, openssh-client)")


def processes():
    """{pid: (parent, environment)} of all processes that this one may look into."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
            if stat[0] != "Z":
                found[int(entry.name)] = (int(stat[1]), (entry / "environ").read_bytes())
        except OSError:
            continue
    return found


class Hosts:
    """h1, h2, ..., or NAME1, ...; `prefixes`: for each the words before its sshd, and the address on which it listens."""

    def __init__(self, folder, count, prefixes=None, alias="h"):
        require()
        self.dir, self.count = folder, count
        self.prefixes = prefixes or [([], "127.0.0.1")] * count
        self.ports = free_ports(count)
        self.daemons = [None] * count
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", 0o755, exist_ok=True)  # sshd demands it of root
        for name in ["user", "stranger", *(f"host{i + 1}" for i in range(count))]:
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True, stdin=subprocess.DEVNULL)
        shutil.copy(folder / "user.pub", folder / "authorized")
        known, config = [], []
        for i in range(count):
            address = self.prefixes[i][1]
            known.append(f"[{address}]:{self.ports[i]} {(folder / f'host{i + 1}.pub').read_text()}")
            config.append(f"Host {alias}{i + 1}\n  HostName {address}\n  Port {self.ports[i]}\n")
        (folder / "known").write_text("".join(known))
        (folder / "config").write_text("".join(config) + f"Host *\n  User {getpass.getuser()}\n  IdentityFile {folder / 'user'}\n"
                                       f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder / 'known'}\n  StrictHostKeyChecking yes\n"
                                       # The default of OpenSSH 9 takes a third of a second of processor time on each side.
                                       f"  KexAlgorithms curve25519-sha256\n")
        self.ssh = f"ssh -F {folder / 'config'}"
        for i in range(count):
            self.start(i)

    def cache(self, index):
        return self.dir / f"cache{index + 1}"

    def start(self, index):
        """Starts sshd like its service."""
        prefix, address = self.prefixes[index]
        path = self.dir / f"sshd{index + 1}"
        path.write_text(f"ListenAddress {address}\nPort {self.ports[index]}\nHostKey {self.dir / f'host{index + 1}'}\nPidFile none\n"
                        f"UsePAM no\nStrictModes no\nAuthorizedKeysFile {self.dir / 'authorized'}\nPasswordAuthentication no\n"
                        f"KbdInteractiveAuthentication no\nPermitRootLogin yes\nMaxStartups 100\n"
                        # A home of the test's: bash reads its .bashrc for each command of ssh's, and a user's may start many programs.
                        f"SetEnv {MARK}={self.dir}/{index + 1}. HOME={self.dir} XDG_CACHE_HOME={self.cache(index)} OMP_WAIT_POLICY=passive\n")
        log = self.dir / f"sshd{index + 1}-{time.monotonic_ns()}.log"
        with open(log, "ab") as out:
            self.daemons[index] = subprocess.Popen([*prefix, SSHD, "-D", "-e", "-f", path], stdin=subprocess.DEVNULL,
                                                   stdout=subprocess.DEVNULL, stderr=out, start_new_session=True)
        deadline = time.monotonic() + 20
        while "Server listening" not in log.read_text(errors="replace"):
            if time.monotonic() > deadline or self.daemons[index].poll() is not None:
                raise AssertionError(f"sshd does not start: {log.read_text(errors='replace')}")
            time.sleep(0.02)

    def stop(self, index):
        self.daemons[index].kill()
        self.daemons[index].wait()

    def on(self, index):
        """The processes that run behind the sshd of a host: their ids."""
        mark = f"{MARK}={self.dir}/{index + 1}.".encode()
        return [pid for pid, (_, environment) in processes().items() if mark in environment]

    def all(self):
        return [pid for i in range(self.count) for pid in self.on(i)]

    def sessions(self, index):
        """The processes of a host's sshd that serve connections."""
        table, found = processes(), [self.daemons[index].pid]
        for pid in found:  # grows
            for child, (parent, _) in table.items():
                with contextlib.suppress(OSError):  # it has ended
                    if parent == pid and os.path.basename(os.readlink(f"/proc/{child}/exe")).startswith("sshd"):
                        found.append(child)
        return found[1:]

    def cut(self, index, refuse=False):
        """Ends the connections to a host; `refuse`: it takes no more."""
        sessions = self.sessions(index)
        if refuse:
            self.stop(index)
        for pid in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait_until_nothing_runs(self, timeout=20):
        deadline = time.monotonic() + timeout
        while (left := self.all()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def close(self):
        for index in range(self.count):
            self.cut(index, refuse=True)  # A session over a dead link lives for minutes.
        for pid in self.all():
            os.kill(pid, signal.SIGKILL)
