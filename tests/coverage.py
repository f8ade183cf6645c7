"""Lines of common/, chief/, worker/ and ps/ that the tests have run, by what gcov says of a build of the preset `coverage`.

  coverage.py BUILD_DIR | --self-test

A process that is killed writes no counts: what only such processes run counts as not run.
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[1]
ROOMS = "common", "chief", "worker", "ps"


def counts(path):
    """[(file, line, times)] of one object."""
    # Where the notes are; the name that gcov prints for a file is what the compiler was given.
    done = subprocess.run(["gcov", "--json-format", "--stdout", path.name], cwd=path.parent, capture_output=True, text=True)
    found = []
    for text in filter(None, done.stdout.splitlines()):
        report = json.loads(text)
        for file in report["files"]:
            name = os.path.relpath(pathlib.Path(report["current_working_directory"]) / file["file"], SOURCE)
            if name.split("/")[0] in ROOMS:
                found += [(name, line["line_number"], line["count"]) for line in file["lines"]]
    return found


def add(found, lines):
    for file, line, times in found:
        lines[file][line] = max(times, lines[file].get(line, 0))


def table(lines):
    """A row for each room, and one for all."""
    rows = {}
    for room in ROOMS:
        of_room = [times for file, counted in lines.items() if file.startswith(room + "/") for times in counted.values()]
        rows[room + "/"] = (sum(times > 0 for times in of_room), len(of_room))
    rows["all"] = tuple(map(sum, zip(*rows.values())))
    return [f"{name:10}{run:8} of {total:7} lines {100 * run / total if total else 0:6.1f} %" for name, (run, total) in rows.items()]


def self_test():
    lines = collections.defaultdict(dict)
    add([("ps/a.h", 1, 0), ("ps/a.h", 2, 0), ("common/x/b.cc", 7, 3)], lines)
    add([("ps/a.h", 2, 5)], lines)  # a header in two objects: run in one of them is run
    assert [row.split()[1:4:2] for row in table(lines)] == [["1", "1"], ["0", "0"], ["0", "0"], ["1", "2"], ["2", "3"]], table(lines)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    # A file that no test has run has notes and no counts, which gcov accepts too.
    notes = sorted(path for path in pathlib.Path(sys.argv[1]).resolve().rglob("*.gcno") if not {"tests", "proto"} & set(path.parts))
    lines = collections.defaultdict(dict)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(counts, notes):
            add(found, lines)
    if not lines:
        sys.exit(f"{sys.argv[1]} has no counts: is it a build of the preset `coverage`?")
    print("\n".join(table(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
