"""No wait of Muster's ends by the wall clock: a step of it backwards would make each one longer.

  waits.py              looks through the sources (common/base/wait.h has what to use instead)
  waits.py --self-test  shows that each kind of such a wait is found
"""
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("chief", "common", "deploy", "evaluator", "examples", "include", "ps", "worker")

# abseil's waits with a limit (CLOCK_REALTIME on Linux), its clock, and those of others by system_clock.
BY_WALL_CLOCK = re.compile(
    r"\b(?:WaitWithTimeout|WaitWithDeadline|(?:Reader)?(?:AwaitWith|LockWhenWith)(?:Timeout|Deadline)"
    r"|WaitForNotificationWith(?:Timeout|Deadline)|absl::Now"
    r"|wait_until\([^;]*system_clock|pthread_cond_timedwait|pthread_mutex_timedlock|sem_timedwait)\b")


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def sources():
    """The C++ and CUDA files of the production code."""
    files = [path for room in ROOMS for path in sorted((SOURCE / room).rglob("*")) if path.suffix in (".h", ".cc", ".cu")]
    if len(files) < 300:
        sys.exit(f"only {len(files)} sources: have the folders moved?")
    return files


def complaints(name, text):
    lines = without_comments(text).split("\n")
    return [f"{name}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if BY_WALL_CLOCK.search(line)]


def self_test():
    found = ["wake_.WaitWithTimeout(&mu_, absl::FromChrono(kTick));", "if (v.WaitWithDeadline(&mu_, t)) break;",
             "mu_.AwaitWithTimeout(absl::Condition(&done), absl::Seconds(1));", "mu_.ReaderLockWhenWithDeadline(c, t);",
             "end_.WaitForNotificationWithTimeout(absl::Seconds(1));", "const absl::Time now = absl::Now();",
             "v.wait_until(lock, std::chrono::system_clock::now() + limit);", "sem_timedwait(&s, &t);"]
    passed = ["wake_.WaitFor(&mu_, kTick);", "wake_.WaitUntil(&mu_, until);", "// as WaitWithTimeout does",
              "/* absl::Now */ int x;", "mu_.Await(absl::Condition(&done));", "future.wait_for(kTick);"]
    wrong = [line for line in found if not complaints("f", line)] + [line for line in passed if complaints("f", line)]
    for line in wrong:
        print(f"judged wrongly: {line}")
    return bool(wrong)


def main():
    if "--self-test" in sys.argv:
        sys.exit(self_test())
    files = sources()
    found = [line for path in files for line in complaints(path.relative_to(SOURCE), path.read_text())]
    for line in found:
        print(f"{line}\n    ends by the wall clock; use common/base/wait.h")
    print(f"{len(files)} files, {len(found)} complaints")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
