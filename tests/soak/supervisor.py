"""One run under a supervisor that starts every process again, as an orchestrator does, and that makes the faults from outside.

It reads what the processes log: which --fault has happened, what each generation began with, and what survivors hold.
"""
import collections
import dataclasses
import heapq
import itertools
import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import time

from faults import EVALUATOR
from harness import PREEMPTED, RETRYABLE, inherited

POLL = 0.02
KILLED, ASKED = -signal.SIGKILL, -signal.SIGTERM
# Why a process may end with 138 in a run with such faults. Any other reason is a finding.
RETRIED = [
    "no process has a whole state of the run",  # the owner of the state was killed while it gave it away
    "waiting for a chief that continues from the last checkpoint",
    "the chief was lost",
    "has taken its place",
    "still belongs to another process of this job",
    "is stopping",
]


@dataclasses.dataclass
class Process:
    task: str
    popen: subprocess.Popen
    log: pathlib.Path
    faults: list          # by the number that --fault counts
    began: float
    offset: int = 0
    rest: bytes = b""
    cause: str = ""       # its last line of the cause
    holds: tuple = None   # (step, poll) that it said it joins the next generation with
    killed: bool = False  # by itself or from outside
    stopped_for_good: bool = False


class Supervisor:
    def __init__(self, folder, cluster, command, job, faults=(), evaluator=True, seed=0, preload=None, environment=None, quiet=180):
        """`command`: {"chief": [program, ...], ...}; `quiet`: this many seconds without an event are a hang."""
        self.folder, self.cluster, self.command, self.job, self.quiet = folder, cluster, command, job, quiet
        self.faults = list(faults)
        self.random = random.Random(seed)
        self.environment = inherited(**(environment or {}))
        self.tasks = [f"{kind}:{i}" for kind, addresses in cluster.items() for i in range(len(addresses))]
        self.members = list(self.tasks)
        if evaluator:
            self.tasks.append(EVALUATOR)
        self.clock = folder / "clock"
        self.hours = 0
        self.set_clock()
        if preload:
            self.environment.update(LD_PRELOAD=str(preload), MUSTER_TEST_CLOCK=str(self.clock))
        self.live, self.done = {}, {}           # by task: its process; the code that it ended with for good
        self.waits = {}                         # by task: when it is started again
        self.successors = {task: collections.deque() for task in self.tasks}  # Acts for the processes to come
        self.late = {}
        self.due, self.order = [], itertools.count()
        self.asked = -1e9                       # when SIGTERM was sent last
        self.counts = collections.Counter()     # faults that happened, by kind
        self.codes = collections.Counter()
        self.starts = collections.Counter()
        self.generations = 0
        self.wrong = []
        self.polls = 0
        self.newest_event = time.monotonic()
        self.journal = open(folder / "journal", "w")  # the events in order, to investigate a failure

    # ---- The run

    def run(self, limit):
        """True if all tasks came to their end; `wrong` has what was against the rules on the way."""
        end = time.monotonic() + limit
        for task in self.tasks:
            self.waits[task] = 0
        try:
            while len(self.done) < len(self.tasks) and len(self.wrong) < 50:
                now = time.monotonic()
                if now > end or now > self.newest_event + self.quiet:
                    self.wrong.append(f"no end within {limit:.0f} s" if now > end else f"nothing has happened for {self.quiet} s: a hang")
                    self.tell_who_waits()
                    return False
                self.turn(now)
                time.sleep(POLL)
            return len(self.done) == len(self.tasks)
        finally:
            for process in self.live.values():
                self.kill_group(process)
                process.popen.wait()
            self.journal.close()

    def turn(self, now):
        self.polls += 1
        for process in list(self.live.values()):
            self.read(process)
            code = process.popen.poll()
            if code is not None:
                self.read(process)
                self.ended(process, code)
        while self.due and self.due[0][0] <= now:
            _, _, act = heapq.heappop(self.due)
            self.do(act)
        for task, at in list(self.waits.items()):
            if at <= now:
                self.start(task)

    def note(self, text):
        self.newest_event = time.monotonic()
        self.journal.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}\n")
        self.journal.flush()

    # ---- Processes

    def start(self, task):
        del self.waits[task]
        kind, index = task.split(":")
        mine = [f for f in self.faults if f.task == task and not f.fired]
        # The second kill of a transfer is for the moment after the first one.
        arguments, acts = [f.text() for f in mine], []
        if self.starts[task] and self.successors[task]:
            act = self.successors[task].popleft()
            if act.what == "arguments":
                arguments.append(act.value)
            else:
                acts.append(act.value)
        self.starts[task] += 1
        log = self.folder / "logs" / f"{task.replace(':', '-')}.{self.starts[task]:03}"
        command = [*self.command[kind], "--job", str(self.job)]
        for text in arguments:
            command += ["--fault", text]
        environment = {**self.environment, "TF_CONFIG": json.dumps({"cluster": self.cluster, "task": {"type": kind, "index": int(index)}})}
        with open(log, "wb") as out:
            popen = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        self.live[task] = Process(task, popen, log, mine, time.monotonic())
        self.note(f"{task} started, pid {popen.pid}{'' if len(arguments) == len(mine) else ' with ' + arguments[-1]}")
        for act in acts:
            self.plan(act)

    def ended(self, process, code):
        task = process.task
        del self.live[task]
        self.kill_group(process)
        self.codes[code] += 1
        self.note(f"{task} ended with {code}{': ' + process.cause if process.cause else ''}")
        if not self.expected(process, code):
            self.wrong.append(f"{task} ended with {code} ({process.log.name}): {process.cause or 'without a cause'}")
        if code == 0:
            self.done[task] = code
            return
        self.waits[task] = time.monotonic() + self.late.pop(task, self.random.choice([0, 0, self.random.uniform(0, 1)]))

    def expected(self, process, code):
        if code == 0:
            return True
        if code == KILLED:
            return process.killed
        if code == ASKED:  # before it could do anything about it
            return process.offset == 0
        if code == PREEMPTED:
            return self.asked > process.began - 60
        return code == RETRYABLE and any(text in process.cause for text in RETRIED)

    @staticmethod
    def kill_group(process):
        """Kills the children that it left, such as the one that wakes a process that stopped itself."""
        try:
            os.killpg(process.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    # ---- What they say

    def read(self, process):
        with open(process.log, "rb") as file:
            file.seek(process.offset)
            text = file.read()
        if not text:
            return
        process.offset += len(text)
        *lines, process.rest = (process.rest + text).split(b"\n")
        for line in lines:
            self.hear(process, line.decode(errors="replace"))

    def hear(self, process, line):
        if found := re.search(r"\| fault (\d+): ", line):
            self.happened(process, int(found[1]), line)
        elif found := re.search(r"joins the next one with(?:out a state| the state after step (\d+))", line):
            process.holds = (int(found[1]), self.polls) if found[1] else None
        elif found := re.search(r"\d+ members?, (\d+) replicas?: generation (\d+) of run (\w+)(?:, with the state of (.*) after step (\d+))?$", line):
            self.generation(line, int(found[5] or 0))
        if re.search(r" E |ROOT CAUSE", line) or any(text in line for text in RETRIED):
            process.cause = line.strip()

    def generation(self, line, step):
        """Checks that no step of a survivor is lost: the step that a survivor reported is at most the one that all continue from."""
        self.generations += 1
        self.note(line.split(" | ", 1)[-1])
        for process in self.live.values():
            # Said two turns ago or more: what it said in this one may be of the time after.
            if process.holds and process.holds[0] > step and process.holds[1] <= self.polls - 2 and process.popen.poll() is None:
                self.wrong.append(f"{process.task} survived with the state after step {process.holds[0]}, and all continued after step {step}: {line}")

    def happened(self, process, number, line):
        if number > len(process.faults):  # one of the supervisor's own for this process
            process.killed = True
            self.note(f"{process.task}: {line.split(' | ', 1)[-1]}")
            return
        fault = process.faults[number - 1]
        fault.fired = True
        if fault.counts and (fault.pair is None or fault.pair.fired):
            self.counts[fault.kind] += 1
        self.note(f"fault {fault.describe()}")
        process.killed = process.killed or fault.inside == "kill"
        for act in fault.acts:
            self.plan(act)

    # ---- What is done to them

    def plan(self, act):
        heapq.heappush(self.due, (time.monotonic() + act.after, next(self.order), act))

    def do(self, act):
        if act.what == "clock":
            # Never far from the true time: a certificate is a year old, not a century.
            self.hours += act.value if abs(self.hours + act.value) <= 2 else -act.value
            self.set_clock()
            self.note(f"the clock is {self.hours:+} h off")
        elif act.what == "late":
            for task in act.tasks:
                self.late[task] = act.value
        elif act.what in ("successor", "arguments"):
            for task in act.tasks:
                self.successors[task].append(act)
        else:
            self.signal(act.what, act.tasks)

    def signal(self, number, tasks):
        for task in tasks:
            process = self.live.get(task)
            if process is None or process.popen.poll() is not None:
                continue
            if number == signal.SIGKILL:
                process.killed = True
            if number == signal.SIGTERM:
                self.asked = time.monotonic()
            self.note(f"{signal.Signals(number).name} to {task}")
            process.popen.send_signal(number)

    def set_clock(self):
        value = struct.pack("<q", self.hours * 3600 * 10**9)
        if self.clock.exists():
            with open(self.clock, "r+b") as file:  # processes have it mapped
                file.write(value)
        else:
            self.clock.write_bytes(value)

    def tell_who_waits(self):
        """Prints the last lines of the processes, and the stacks of their threads."""
        for process in self.live.values():
            self.read(process)
            print(f"---- {process.task}, pid {process.popen.pid}; the last lines of {process.log}")
            print("\n".join(process.log.read_text(errors="replace").splitlines()[-12:]))
            try:
                print(re.search("State:.*", pathlib.Path(f"/proc/{process.popen.pid}/status").read_text())[0])
                for thread in sorted(os.listdir(f"/proc/{process.popen.pid}/task")):
                    where = pathlib.Path(f"/proc/{process.popen.pid}/task/{thread}")
                    print(f"  thread {thread} {(where / 'comm').read_text().strip()}: {(where / 'wchan').read_text()}")
            except OSError:
                continue
