"""Reads a Containerfile and runs its steps in empty roots, where there is no container engine.

Knows what ours uses: FROM, ARG, ENV, RUN with --mount=type=cache, COPY, WORKDIR, USER, STOPSIGNAL, CMD. Anything else is an error.
"""
import fnmatch
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import roots

KNOWN = {"FROM", "ARG", "ENV", "RUN", "COPY", "WORKDIR", "USER", "STOPSIGNAL", "CMD"}


class Stage:
    def __init__(self, base, name):
        self.base, self.name, self.steps = base, name, []

    def last(self, instruction):
        """The text of the last instruction of this kind, None without one."""
        return next((text for kind, text in reversed(self.steps) if kind == instruction), None)

    def environment(self):
        return dict(assignment(text) for kind, text in self.steps if kind == "ENV")


def assignment(text):
    words = shlex.split(text)
    if len(words) != 1:
        raise ValueError(f"one assignment a line: {text}")
    name, _, value = words[0].partition("=")
    return name, value


def parse(text):
    """The stages of a Containerfile."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    stages = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if not line.strip():
            continue
        kind, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if kind not in KNOWN:
            raise ValueError(f"unknown instruction: {line}")
        if kind == "FROM":
            found = re.fullmatch(r"(\S+)(?: AS (\S+))?", rest)
            stages.append(Stage(found[1], found[2]))
        elif not stages:
            raise ValueError(f"before any FROM: {line}")
        else:
            stages[-1].steps.append((kind, rest))
    return stages


def ignored(patterns, path):
    """Whether .dockerignore leaves out a path of the context."""
    return any(fnmatch.fnmatch(part, pattern.removeprefix("**/")) for pattern in patterns
               for part in (path.parts if pattern.startswith("**/") else path.parts[:1]))


class Builder:
    """Builds the stages in `folder`, one root for each. `bases` are roots by the names of images, `cache` is what caches are mounted from.

    `bundle`: an archive that stands in the place of the stage that compiles, which takes most of an hour.
    """

    def __init__(self, context, folder, bases, cache, bundle=None, echo=print):
        self.context, self.folder, self.bases, self.cache = pathlib.Path(context), pathlib.Path(folder), bases, pathlib.Path(cache)
        self.bundle, self.echo = bundle, echo
        self.built = {}

    def build(self):
        """The last stage, with its root in `.root`."""
        for stage in parse((self.context / "Containerfile").read_text()):
            self.stage = stage
            stage.root = self.folder / (stage.name or "image")
            shutil.rmtree(stage.root, ignore_errors=True)
            if self.bundle and stage.name:
                (stage.root / "opt").mkdir(parents=True)
                subprocess.run(["tar", "-xf", self.bundle, "-C", stage.root / "opt"], check=True, timeout=600)
                self.built[stage.name] = stage
                continue
            # cp keeps owners, modes and links.
            self.folder.mkdir(exist_ok=True)
            subprocess.run(["cp", "-a", self.bases[stage.base], stage.root], check=True, timeout=600)
            roots.connect(stage.root)
            self.variables, self.where = {}, "/"
            for kind, text in stage.steps:
                self.echo(f"{kind} {text}")
                getattr(self, f"on_{kind.lower()}")(text)
            self.built[stage.name] = stage
        return stage

    def on_arg(self, text):
        name, value = assignment(text)
        self.variables[name] = value

    on_env = on_arg

    def on_workdir(self, text):
        self.where = text
        (self.stage.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def on_run(self, text):
        binds = []
        while found := re.match(r"--mount=type=cache,target=(\S+)\s+", text):
            text = text[found.end():]
            source = self.cache / found[1].strip("/").replace("/", "-")
            source.mkdir(parents=True, exist_ok=True)
            (self.stage.root / found[1].lstrip("/")).mkdir(parents=True, exist_ok=True)
            binds.append((source, found[1], "rw"))
        network = {name: os.environ[name] for name in roots.NETWORK_VARIABLES if name in os.environ}
        # Engines set this HOME for root.
        environment = {"HOME": "/root", **network, **self.variables}
        self.echo(roots.run_in(self.stage.root, "sh", "-c", text, environment=environment, folder=self.where, binds=binds, timeout=6 * 3600)[-2000:])

    def on_copy(self, text):
        words = text.split()
        if words[0].startswith("--from="):
            source, target = words[1:]
            shutil.copytree(self.built[words[0].removeprefix("--from=")].root / source.lstrip("/"), self.stage.root / target.lstrip("/"), symlinks=True)
            return
        if words != [".", "."]:
            raise ValueError(f"COPY {text}")
        patterns = (self.context / ".dockerignore").read_text().split()
        target = self.stage.root / self.where.lstrip("/")

        def leave_out(folder, names):
            below = pathlib.Path(folder).relative_to(self.context)
            return [name for name in names if ignored(patterns, below / name)]

        shutil.copytree(self.context, target, symlinks=True, ignore=leave_out, dirs_exist_ok=True)

    def on_user(self, text):
        pass  # of the container

    on_stopsignal = on_cmd = on_user


def command_of(stage):
    """The command that a container runs by default."""
    return json.loads(stage.last("CMD"))
