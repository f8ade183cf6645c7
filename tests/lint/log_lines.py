"""The log lines that docs/operating.md quotes are printed by the sources, and the metrics that it names are served. So are those of the
alerts for Prometheus.

  log_lines.py              looks for each quoted line in the string literals of the sources, and for each name in those of /metrics
  log_lines.py --self-test  shows that a line that nothing prints, or a metric that no task has, is found

In the table of failures, the second column has the lines, in code spans. "..." stands for any text there, as a placeholder of a
format string does: the parts between must be in one literal (adjacent ones are one), in this order. The third column has a metric,
or "none". Metrics are looked for in all code spans of the page.
"""
import re
import sys

from waits import SOURCE, sources, without_comments

PAGE = "docs/operating.md"
HEADING = "## Failures"
COLUMNS = 5
ALERTS = "deploy/prometheus/alerts.yml"
METRICS = "common/telemetry/metrics_text.cc"
PHASES = "common/base/phase.h"
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
ADJACENT = re.compile(r'"((?:\\.|[^"\\\n])*)"(?:\s*"(?:\\.|[^"\\\n])*")*')


def literals(text):
    """The string literals, adjacent ones joined; a placeholder of fmt becomes a line break, which no quoted line has."""
    for match in ADJACENT.finditer(without_comments(text)):
        joined = "".join(LITERAL.findall(match.group()))
        yield re.sub(r"\{[^{}]*\}", "\n", joined.replace('\\"', '"').replace("{{", "{").replace("}}", "}"))


def rows(page):
    """(line number, cells) of the table of failures, without its head."""
    inside = False
    for number, line in enumerate(page.split("\n"), 1):
        inside = line == HEADING if line.startswith("## ") else inside
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if inside and len(cells) == COLUMNS and not re.match(r"-+$", cells[0]) and cells[1] != "log line":
            yield number, cells


def quoted(page):
    """(line number, quoted line) of the table of failures."""
    return ((number, span) for number, cells in rows(page) for span in re.findall(r"`([^`]+)`", cells[1]))


def unserved(page, metrics, phases):
    """(line number, complaint) for each metric or phase of the page that no literal has, and for each failure without a word on it."""
    known, named = set(literals(metrics)), set(literals(phases))
    for number, line in enumerate(page.split("\n"), 1):
        for span in re.findall(r"`([^`]+)`", line):
            yield from ((number, f"no task serves '{name}'") for name in re.findall(r"\b(?:muster|process)_[a-z_]+\b", span) if name not in known)
            yield from ((number, f"no phase is '{phase}'") for phases_of in re.findall(r'\bphase=~?"([^"]*)"', span)
                       for phase in phases_of.split("|") if phase not in named)
    yield from ((number, "neither a metric nor \"none\"") for number, cells in rows(page) if not cells[2])


def unserved_in_alerts(alerts, metrics, phases):
    """(line number, complaint) for each metric or phase of the file, but for its comments, that no literal has."""
    lines = ("" if line.startswith("#") else "`" + line.replace("`", "'") + "`" for line in alerts.split("\n"))
    return list(unserved("\n".join(lines), metrics, phases))


def pattern(line):
    return re.compile(".*?".join(re.escape(part) for part in re.split(r"\.{3}(?!\.)", line)), re.DOTALL)


def unknown(page, files):
    texts = [text for source in files for text in literals(source)]
    return [(number, line) for number, line in quoted(page) if not any(pattern(line).search(text) for text in texts)]


def self_test():
    source = 'LogWarning("lost {} members "\n "after {:.0f} s; {}", a, b);  // "gone for {} s"\nLogInfo("saved \\"{}\\" (timeouts.{})");'
    page = (f"{HEADING}\n| a | log line | metric | code | do |\n|---|---|---|---|---|\n| a | `%s` | %s | none | `any` |\n"
            "## Else\n| a | `not read` | b | c | d |")
    found = ["lost ... members before ... s", "gone for ... s", "after ... s lost", "saved ..., again"]
    passed = ["lost ... members after ... s; ...", "... members after ...", 'saved "..." (timeouts....)']
    wrong = [line for line in found if not unknown(page % (line, "none"), [source])]
    wrong += [line for line in passed if unknown(page % (line, "none"), [source])]
    metrics, phases = 'families->Gauge("muster_step", "The step "\n "of now.", 1);', '{"starting", "data"}'
    found = ["", "`muster_steps` stays", "`rate(muster_ste[1m])`", "`muster_step{phase=\"date\"}`", "`process_step`"]
    passed = ["none", "`muster_step` grows", "`rate(muster_step[1m]) > 0.1`", "`muster_step{phase=\"data\"}`", "`muster status`"]
    wrong += [cell for cell in found if not list(unserved(page % ("saved", cell), metrics, phases))]
    wrong += [cell for cell in passed if list(unserved(page % ("saved", cell), metrics, phases))]
    alert = '# muster_none\n  expr: rate(%s[1m]) > 0  # of `muster status`\n'
    wrong += [name for name in ("muster_steps", 'muster_step{phase=~"data|date"}') if not unserved_in_alerts(alert % name, metrics, phases)]
    wrong += [name for name in ("muster_step", 'muster_step{phase=~"data|starting"}') if unserved_in_alerts(alert % name, metrics, phases)]
    for line in wrong:
        print(f"judged wrongly: {line}")
    return bool(wrong)


def main():
    if "--self-test" in sys.argv:
        sys.exit(self_test())
    page = (SOURCE / PAGE).read_text()
    texts = [path.read_text() for path in sources()]
    lines = list(quoted(page))
    if len(lines) < 25:
        sys.exit(f"only {len(lines)} lines in the table '{HEADING}' of {PAGE}: has it another form?")
    found = unknown(page, texts)
    complaints = [(number, f"nothing prints '{line}'") for number, line in found]
    complaints += unserved(page, (SOURCE / METRICS).read_text(), (SOURCE / PHASES).read_text())
    for number, complaint in complaints:
        print(f"{PAGE}:{number}: {complaint}")
    of_alerts = unserved_in_alerts((SOURCE / ALERTS).read_text(), (SOURCE / METRICS).read_text(), (SOURCE / PHASES).read_text())
    for number, complaint in of_alerts:
        print(f"{ALERTS}:{number}: {complaint}")
    complaints += of_alerts
    print(f"{len(lines)} log lines, {len(complaints)} complaints")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
