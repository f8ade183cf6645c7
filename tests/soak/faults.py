"""The faults of a run, drawn from a seed.

Each fault begins with a --fault of one task, at a step and a phase of its own: an action of the process itself, or a short delay,
during which the supervisor acts from outside.
"""
import dataclasses
import signal

PHASES = ["forming", "data", "forward", "reduce", "update", "evaluate", "save"]
EVALUATOR = "evaluator:0"
HEARTBEAT = 3  # timeouts.heartbeat of the job

# How often each comes up in one round of a deck that is shuffled: a run of one round or more has all of them.
KINDS = {
    "kill": 4,            # SIGKILL by itself, in any phase
    "kill-several": 2,    # from outside, two or more at once, at times all
    "kill-successor": 2,   # the successor of a killed process is killed while it starts, once to three times
    "stop": 2,            # SIGSTOP; one in four for longer than the heartbeats' deadline
    "freeze-and-kill": 1,  # SIGSTOP without end, then SIGKILL
    "delay": 1,
    "drop": 2,
    "freeze": 2,
    "transfer": 4,        # sender, receiver or a third one is killed while a new process takes the state
    "term": 2,            # SIGTERM, to one task or to all
    "term-twice": 2,      # again at a random moment after the first
    "term-ten-times": 1,
    "term-successor": 1,   # a new process is asked to stop while it starts
    "clock": 3,           # the wall clock goes one hour back or forth
    "evaluator-kill": 1,
    "evaluator-stop": 1,
    "evaluator-term": 1,
}
# An elastic job's: members that come and go.
ELASTIC_KINDS = {
    "kill": 3, "kill-several": 1, "kill-successor": 2, "stop": 1, "drop": 1, "freeze": 1, "transfer": 2, "term": 2, "term-twice": 1,
    "term-successor": 1, "clock": 1,
    "flap": 3,            # lost in its first step, several times in a row
    "stagger": 2,         # several are killed, and come back one after the other
}


@dataclasses.dataclass
class Act:
    """An action of the supervisor after the --fault has happened. `what`: a signal's number; "clock", with `value` hours; "successor",
    with an Act for the next process of each of the tasks, from its start on; "arguments", with more --fault for it; "late", with the
    seconds that it comes later than others."""
    after: float
    what: object
    tasks: list = dataclasses.field(default_factory=list)
    value: object = None


@dataclasses.dataclass
class Fault:
    kind: str
    task: str    # the process that comes to the moment
    step: int
    inside: str  # what it does there, as --fault says it: "kill", "delay=200ms"
    keys: str    # ":phase=save:nth=2"
    acts: list = dataclasses.field(default_factory=list)
    pair: object = None   # of a transfer: the kill that brings the new process
    number: int = 0
    fired: bool = False
    # Not every moment for which a fault is planned comes; a transfer has happened once it was interrupted.
    counts: bool = True

    def text(self):
        return f"{self.inside}@{self.task}:step={self.step}{self.keys}"

    def describe(self):
        outside = "".join(f"; {a.after:.1f} s later {a.what} {' '.join(a.tasks)}{'' if a.value is None else f' {a.value}'}" for a in self.acts)
        return f"{self.number} {self.kind}: {self.text()}{outside}"


class Drawer:
    def __init__(self, generator, tasks, phases, kinds):
        """`tasks`: the members, the chief first."""
        self.random, self.tasks, self.phases, self.kinds = generator, tasks, phases, kinds

    def draw(self, count, steps):
        """At steps of their own, in order: a fault must not meet the recovery from the one before it too often to be counted."""
        deck, faults = [], []
        for i in range(count):
            if not deck:
                deck = [kind for kind, times in self.kinds.items() for _ in range(times)]
                self.random.shuffle(deck)
            low, high = 2 + i * (steps - 4) // count, 2 + (i + 1) * (steps - 4) // count
            step = self.random.randrange(low, max(low + 1, high))
            faults += self.make(deck.pop(), step)
        for number, fault in enumerate(faults, 1):
            fault.number = number
        return faults

    # ---- One of each kind

    def make(self, kind, step):
        task = self.random.choice(self.tasks)
        name = kind.replace("-", "_")
        make = getattr(self, f"make_{name}", None)
        made = make(task, step) if make else self.moment(kind, task, step, self.inside(kind))
        return made if isinstance(made, list) else [made]

    def moment(self, kind, task, step, inside, acts=(), phases=None):
        # The chief alone saves.
        phase = self.random.choice([p for p in phases or self.phases if p != "save" or task == self.tasks[0]])
        keys = f":phase={phase}"
        if kind == "stop":
            inside, keys = "stop", keys + f":for={self.milliseconds(100, 1500, long=0.25)}ms"
        if kind == "freeze":
            keys += f":link={self.random.choice(['data', 'control', 'all'])}"
        if phase == "save":
            keys += f":nth={self.random.randrange(1, 7)}"
        return Fault(kind, task, step, inside, keys, list(acts))

    def milliseconds(self, low, high, long=0.0):
        return self.random.randrange(low, high) + (HEARTBEAT * 1000 if self.random.random() < long else 0)

    def inside(self, kind):
        return {"kill": "kill", "stop": "stop", "delay": f"delay={self.milliseconds(50, 1000)}ms",
                "drop": f"drop={self.random.choice(['data', 'control', 'all'])}", "freeze": f"freeze={self.milliseconds(100, 1500)}ms"}[kind]

    def outside(self, kind, task, step, acts):
        """The task waits for a moment, so that what comes from outside comes in that phase."""
        return self.moment(kind, task, step, "delay=150ms", acts)

    def several(self):
        return self.random.sample(self.tasks, self.random.randrange(2, len(self.tasks) + 1))

    def one_or_all(self, task):
        return list(self.tasks) if self.random.random() < 0.25 else [task]

    def make_kill_several(self, task, step):
        return self.outside("kill-several", task, step, [Act(0, signal.SIGKILL, self.several())])

    def make_kill_successor(self, task, step):
        acts = [Act(0, "successor", [task], Act(self.random.uniform(0, 1), signal.SIGKILL, [task])) for _ in range(self.random.randrange(1, 4))]
        return self.moment("kill-successor", task, step, "kill", acts)

    def make_freeze_and_kill(self, task, step):
        return self.moment("freeze-and-kill", task, step, "stop", [Act(self.random.uniform(0.5, 1.5 * HEARTBEAT), signal.SIGKILL, [task])])

    def make_transfer(self, task, step):
        """`task` is killed; while its successor takes the state, which has moments of its own for --fault, another one is, or it."""
        victim = self.random.choice(self.tasks)
        nth = self.random.randrange(2, 5)
        kill = self.moment("transfer", task, step, "kill")
        if victim == task:
            # Its own moments begin with the process: one more than the others have.
            kill.acts = [Act(0, "arguments", [task], f"kill@{task}:phase=starting:nth={nth + 1}")]
            return kill
        kill.counts = False
        return [kill, Fault("transfer", victim, step, "kill", f":phase=starting:nth={nth}", pair=kill)]

    def make_term(self, task, step):
        return self.outside("term", task, step, [Act(0, signal.SIGTERM, self.one_or_all(task))])

    def make_term_twice(self, task, step):
        asked = self.one_or_all(task)
        return self.outside("term-twice", task, step, [Act(after, signal.SIGTERM, asked) for after in (0, self.random.uniform(0, 1.5))])

    def make_term_ten_times(self, task, step):
        asked, spacing = self.one_or_all(task), self.random.uniform(0.005, 0.2)
        return self.outside("term-ten-times", task, step, [Act(i * spacing, signal.SIGTERM, asked) for i in range(10)])

    def make_term_successor(self, task, step):
        return self.moment("term-successor", task, step, "kill",
                           [Act(0, "successor", [task], Act(self.random.uniform(0, 1), signal.SIGTERM, [task]))])

    def make_clock(self, task, step):
        return self.outside("clock", task, step, [Act(0, "clock", [], self.random.choice([-1, 1]))])

    def of_evaluator(self, kind, task, step, acts):
        return self.outside(f"evaluator-{kind}", task, step, acts)

    def make_evaluator_kill(self, task, step):
        return self.of_evaluator("kill", task, step, [Act(self.random.uniform(0, 0.5), signal.SIGKILL, [EVALUATOR])])

    def make_evaluator_term(self, task, step):
        return self.of_evaluator("term", task, step, [Act(self.random.uniform(0, 0.5), signal.SIGTERM, [EVALUATOR])])

    def make_evaluator_stop(self, task, step):
        begin = self.random.uniform(0, 0.5)
        end = begin + self.milliseconds(100, 1500, long=0.5) / 1000
        return self.of_evaluator("stop", task, step, [Act(begin, signal.SIGSTOP, [EVALUATOR]), Act(end, signal.SIGCONT, [EVALUATOR])])

    # ---- Of elastic jobs, where the chief is the one who must stay

    def make_flap(self, task, step):
        task = self.random.choice(self.tasks[1:])
        again = Act(0, "arguments", [task], f"kill@{task}:phase={self.random.choice(['data', 'forward', 'reduce'])}")
        return self.moment("flap", task, step, "kill", [again] * self.random.randrange(2, 4))

    def make_stagger(self, task, step):
        lost = self.random.sample(self.tasks[1:], 2)
        acts = [Act(0, "late", [other], self.random.uniform(0, 6)) for other in lost] + [Act(0, signal.SIGKILL, lost)]
        return self.outside("stagger", self.tasks[0], step, acts)
