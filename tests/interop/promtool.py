"""Prometheus' own checks, by promtool: deploy/bootstrap --test unpacks it beside the test tools."""
import os
import pathlib
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ALERTS = SOURCE / "deploy" / "prometheus" / "alerts.yml"
PROMTOOL = shutil.which("promtool", path=os.pathsep.join([f"{os.environ.get('MUSTER_TOOLS_VENV', sys.prefix)}/bin", os.environ.get("PATH", "")]))
WHY_NOT = "no promtool: run deploy/bootstrap --test"


def complaints(*arguments, text=None, directory=None):
    """The findings of `promtool ARGUMENTS`, with `text` as its standard input; "" if it finds nothing."""
    done = subprocess.run([PROMTOOL, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=60, cwd=directory)
    return "" if done.returncode == 0 else done.stdout + done.stderr or f"exit code {done.returncode}"
