"""The log lines that docs/operating.md quotes are printed by the sources.

  log_lines.py              looks for each quoted line in the string literals of the sources
  log_lines.py --self-test  shows that a line that nothing prints is found

In the table of failures, the second column has the lines, in code spans. "..." stands for any text there, as a placeholder of a
format string does: the parts between must be in one literal (adjacent ones are one), in this order.
"""
import re
import sys

from waits import SOURCE, sources, without_comments

PAGE = "docs/operating.md"
HEADING = "## Failures"
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
ADJACENT = re.compile(r'"((?:\\.|[^"\\\n])*)"(?:\s*"(?:\\.|[^"\\\n])*")*')


def literals(text):
    """The string literals, adjacent ones joined; a placeholder of fmt becomes a line break, which no quoted line has."""
    for match in ADJACENT.finditer(without_comments(text)):
        joined = "".join(LITERAL.findall(match.group()))
        yield re.sub(r"\{[^{}]*\}", "\n", joined.replace('\\"', '"').replace("{{", "{").replace("}}", "}"))


def quoted(page):
    """(line number, quoted line) of the table of failures."""
    inside = False
    for number, line in enumerate(page.split("\n"), 1):
        inside = line == HEADING if line.startswith("## ") else inside
        cells = re.split(r"(?<!\\)\|", line)
        if inside and len(cells) == 6 and not re.match(r"[\s-]+$", cells[1]):
            yield from ((number, span) for span in re.findall(r"`([^`]+)`", cells[2]))


def pattern(line):
    return re.compile(".*?".join(re.escape(part) for part in re.split(r"\.{3}(?!\.)", line)), re.DOTALL)


def unknown(page, files):
    texts = [text for source in files for text in literals(source)]
    return [(number, line) for number, line in quoted(page) if not any(pattern(line).search(text) for text in texts)]


def self_test():
    source = 'LogWarning("lost {} members "\n "after {:.0f} s; {}", a, b);  // "gone for {} s"\nLogInfo("saved \\"{}\\" (timeouts.{})");'
    page = f"{HEADING}\n| a | log line | code | do |\n|---|---|---|---|\n| a | `%s` | none | `any` |\n## Else\n| a | `not read` | b | c |"
    found = ["lost ... members before ... s", "gone for ... s", "after ... s lost", "saved ..., again"]
    passed = ["lost ... members after ... s; ...", "... members after ...", 'saved "..." (timeouts....)']
    wrong = [line for line in found if not unknown(page % line, [source])] + [line for line in passed if unknown(page % line, [source])]
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
    for number, line in found:
        print(f"{PAGE}:{number}: nothing prints '{line}'")
    print(f"{len(lines)} log lines, {len(found)} complaints")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
