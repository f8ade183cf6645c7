"""Fifty generations under the real training loop: the resources of each process stay the same.

One worker is frozen for longer than timeouts.heartbeat, repeatedly: the two others continue without it (elastic), and admit it
again when it wakes. No process is restarted.
"""
import collections
import contextlib
import os
import pathlib
import re
import signal
import tempfile
import time
import unittest

from recording import RecordingTest, wait_until

GENERATIONS, EARLY = 50, 5
MEMORY_KIB, POOL_THREADS = 32 << 10, 16


def thread_names(process):
    """The names of the threads of a /proc folder by their ids. A thread that ends while they are read is left out."""
    names = {}
    for task in (process / "task").iterdir():
        # Reading the file of a thread that has ended fails on opening or, where it ends in between, on reading.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names[task.name] = (task / "comm").read_text()
    return names


def descriptor_kinds(process):
    """How many descriptors of each kind a /proc folder has: {"socket:": 12, "anon_inode:[eventfd]": 3, "/dev/null": 1}."""
    kinds = collections.Counter()
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            kinds[re.sub(r"\[\d+\]$", "", os.readlink(descriptor))] += 1
    return dict(kinds)


class Holdings:
    """The resources that a process holds now."""

    def __init__(self, pid):
        proc = pathlib.Path(f"/proc/{pid}")
        threads = thread_names(proc)
        self.descriptor_kinds = descriptor_kinds(proc)
        self.descriptors = sum(self.descriptor_kinds.values())
        self.all_threads = len(threads)
        # gRPC's pools grow and shrink as they like; their threads have names of their own.
        self.threads = sum(name == threads[str(pid)] for name in threads.values())
        self.segments = sum("/dev/shm/muster-" in line for line in (proc / "maps").read_text().splitlines())
        self.memory = int(re.search(r"VmRSS:\s+(\d+)", (proc / "status").read_text())[1])

    def within(self, other):
        return self.descriptors <= other.descriptors and self.threads <= other.threads and self.segments <= other.segments

    def __repr__(self):
        return str(vars(self))


class ThreadNames(unittest.TestCase):
    def test_a_thread_that_has_ended_is_left_out(self):
        with tempfile.TemporaryDirectory(prefix="muster-test-") as folder:
            process = pathlib.Path(folder)
            for task, name in (("7", "main\n"), ("8", None)):
                (process / "task" / task).mkdir(parents=True)
                if name:
                    (process / "task" / task / "comm").write_text(name)
            self.assertEqual(thread_names(process), {"7": "main\n"})


class Leak(RecordingTest):
    def generation(self):
        return max(map(int, re.findall(r"generation (\d+) of run", self.members[0].output())), default=0)

    def steps(self):
        return sum(file.stat().st_size for file in self.where.glob("used-*"))

    def trains(self, members):
        """All of a generation of so many do steps."""
        line = rf"{members} members, {members} replicas: generation {self.generation()} of run"
        if not re.search(line, self.members[0].output()):
            return False
        before = self.steps()
        time.sleep(0.05)
        return self.steps() > before

    def until_generation(self, number):
        while self.generation() < number:
            last = self.generation()
            self.members[2].signal(signal.SIGSTOP)
            wait_until("the others continue without the frozen one", lambda: self.generation() > last and self.trains(2))
            self.members[2].signal(signal.SIGCONT)
            wait_until("it is taken in again", lambda: self.trains(3))

    def test_fifty_generations(self):
        job = self.run_job(epochs=10_000_000, program_args={"examples": 34, "sleep_ms": 2}, checkpoint={"every_steps": 1_000_000},
                           summary={"every_steps": 1_000_000}, elastic={"min_workers": 2, "grace": 0.01}, timeouts={"heartbeat": 0.4})
        self.members = self.start_run(3, job)
        wait_until("training", lambda: self.trains(3))
        pids = [process.popen.pid for process in self.members]
        self.until_generation(EARLY)
        # The chief opens this file with the first system metrics, some seconds after the start.
        wait_until("system metrics", lambda: list((self.model_dir / "system").glob("events.*")))
        early = [Holdings(pid) for pid in pids]
        self.until_generation(GENERATIONS)
        for process, before in zip(self.members, early):
            # Background work may take a moment to end.
            deadline = time.monotonic() + 10
            while not (after := Holdings(process.popen.pid)).within(before) and time.monotonic() < deadline:
                time.sleep(0.1)
            print(process.name, before, after, sep="\n  ")
            self.assertTrue(after.within(before), f"{process.name} after generation {EARLY}: {before}, after {GENERATIONS}: {after}")
            self.assertLessEqual(after.all_threads, before.all_threads + POOL_THREADS)
            self.assertLess(after.memory, before.memory + MEMORY_KIB)
        self.members[0].signal(signal.SIGTERM)
        self.finish(self.members, code=143)


if __name__ == "__main__":
    unittest.main(verbosity=2)
