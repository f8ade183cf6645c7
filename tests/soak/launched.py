"""One run under `muster launch --restart on-failure`, which starts its tasks again by itself, and kills those that the job has lost."""
import collections
import re
import subprocess
import time

POLL = 0.1
# Faults that processes make themselves. The others need a supervisor.
KINDS = {"kill": 4, "stop": 2, "delay": 1, "drop": 2, "freeze": 2}


class Launched:
    """A run with the interface of Supervisor."""

    def __init__(self, folder, command, job, faults, environment, quiet):
        self.folder, self.faults, self.environment, self.quiet = folder, faults, environment, quiet
        self.command = [*command, "--job", str(job)] + [word for fault in faults for word in ("--fault", fault.text())]
        self.members = ["chief:0", "worker:0", "worker:1"]
        self.log = folder / "journal"
        self.wrong, self.generations = [], 0
        self.counts, self.codes, self.starts = collections.Counter(), collections.Counter(), collections.Counter()

    def run(self, limit):
        end = newest = time.monotonic()
        end += limit
        size = 0
        with open(self.log, "wb") as out:
            process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                       start_new_session=True)
        try:
            while process.poll() is None:
                now = time.monotonic()
                # A waiting process logs this every 10 s, so only other lines count as news.
                if (grown := self.news()) != size:
                    size, newest = grown, now
                if now > end or now > newest + self.quiet:
                    self.wrong.append(f"no end within {limit:.0f} s" if now > end else f"nothing has happened for {self.quiet} s: a hang")
                    print("\n".join(self.log.read_text(errors="replace").splitlines()[-40:]))
                    return False
                time.sleep(POLL)
        finally:
            if process.poll() is None:
                process.kill()  # its tasks go with it
                process.wait()
        self.read()
        self.codes[process.returncode] += 1
        if process.returncode != 0:
            self.wrong.append(f"muster launch ended with {process.returncode}: {self.log}")
        return process.returncode == 0

    def news(self):
        return len(re.findall(r"\| fault |members?, \d+ replicas?: generation|epoch \d+/|starting .* again", self.log.read_text(errors="replace")))

    def read(self):
        text = self.log.read_text(errors="replace")
        for number in {int(number) for number in re.findall(r"\| fault (\d+): ", text)}:
            self.counts[self.faults[number - 1].kind] += 1
        for task in re.findall(r"muster: starting (.*) again", text):
            self.starts[task] += 1
        self.generations = len(re.findall(r"members?, \d+ replicas?: generation \d+ of run", text))
