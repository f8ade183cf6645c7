"""Every test has exactly one label that says its kind, and perhaps `slow` besides: what `ctest -L` selects leaves no test out.

  labels.py BUILD_DIR | --self-test
"""
import json
import subprocess
import sys

KINDS = {"unit", "cluster", "interop", "lint", "golden", "k8s", "package", "gpu", "fuzz"}


def faults(tests):
    for test in tests:
        if test["name"].endswith("_NOT_BUILT"):
            continue  # stands for the tests of a program that is not there
        labels = {label for entry in test.get("properties", []) if entry["name"] == "LABELS" for label in entry["value"]}
        if len(labels & KINDS) != 1:
            yield f"{test['name']}: labels {sorted(labels)}, which should have one of {sorted(KINDS)}"
        yield from (f"{test['name']}: docs/testing.md knows no label {label}" for label in sorted(labels - KINDS - {"slow"}))


def self_test():
    def test(*labels):
        return {"name": "A.B", "properties": [{"name": "LABELS", "value": [*labels]}]}

    good = [test("unit"), test("cluster", "slow"), {"name": "a_test_NOT_BUILT"}]
    assert not [*faults(good)], [*faults(good)]
    for bad in {"name": "A.B"}, test("slow"), test("unit", "cluster"), test("unit", "control"):
        assert len([*faults([bad])]) == 1, bad


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    tests = json.loads(subprocess.check_output(["ctest", "--test-dir", sys.argv[1], "--show-only=json-v1"]))["tests"]
    found = [*faults(tests)]
    print("\n".join(found))
    return 1 if found or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
