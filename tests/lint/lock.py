"""The packages that pip installs are locked: each pin of deploy/requirements*.txt stands in the lock file beside it, and each package there has
the hashes of its files. deploy/bootstrap trusts no cache folder that others may write to.

  lock.py [--self-test]
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"


def pins(text):
    return [line.split("#")[0].strip().lower() for line in text.splitlines() if line.split("#")[0].strip()]


def faults(wanted, lock):
    """The faults of a file of pins and its lock file, given as texts."""
    entries = [entry for entry in re.split(r"\n(?=\S)", lock.replace("\\\n", " ")) if entry.strip() and not entry.startswith("#")]
    locked = set()
    for entry in entries:
        name = re.match(r"[A-Za-z0-9._-]+==[^\s;]+", entry)
        if name is None:
            yield f"'{entry[:60]}' names no single version"
            continue
        locked.add(name[0].lower())
        if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry):
            yield f"{name[0]} has no hash"
    for pin in wanted:
        if pin not in locked:
            yield f"{pin} is not locked: run deploy/lock"


def refusal(cache):
    done = subprocess.run([DEPLOY / "bootstrap", "--yes"], env={**os.environ, "MUSTER_CACHE": str(cache)}, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=50)
    return done.returncode, done.stderr


def check_cache():
    with tempfile.TemporaryDirectory(prefix="muster-lock-") as name:
        cache = pathlib.Path(name) / "cache"
        cache.mkdir()
        cache.chmod(0o777)
        code, said = refusal(cache)
        if code != 2 or "others may write to" not in said or any(cache.iterdir()):
            yield f"a cache folder that anybody may write to: exit code {code}, '{said.strip()}'"
        cache.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(cache, 65534, 65534)
            code, said = refusal(cache)
            if code != 2 or "belongs to another user" not in said or any(cache.iterdir()):
                yield f"a cache folder of another user: exit code {code}, '{said.strip()}'"


def check():
    for path in sorted(DEPLOY.glob("requirements*.txt")):
        for fault in faults(pins(path.read_text()), path.with_suffix(".lock").read_text()):
            yield f"{path.with_suffix('.lock').name}: {fault}"
    yield from check_cache()


def self_test():
    whole = "a==1 \\\n    --hash=sha256:" + "0" * 64 + "\nb==2 ; x \\\n    --hash=sha256:" + "1" * 64 + "\n"
    assert not list(faults(["a==1"], whole))
    assert list(faults(["a==2"], whole)) == ["a==2 is not locked: run deploy/lock"]
    assert list(faults([], "a==1\n")) == ["a==1 has no hash"]
    assert list(faults([], "a>=1 \\\n    --hash=sha256:" + "0" * 64)) != []


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = list(check())
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
