"""The pages describe this tree: every path, heading and symbol that they name exists, every arrow of a diagram names a file, and the rooms
stand in the order that tests/unit/layout checks.

  paths.py              looks at the pages below and at all others of docs/
  paths.py --self-test  shows that each kind of mistake is found
"""
import collections
import glob
import itertools
import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# Page, and how many paths it names at least: a page that lost its paths is not read as intended.
PAGES = {"docs/architecture.md": 150, "docs/where_to_change.md": 300, "docs/testing.md": 120, "CONTRIBUTING.md": 15, "docs/operating.md": 10,
         "docs/control_plane.md": 30, "docs/collective.md": 4, "docs/parameter_server.md": 25, "README.md": 80, "SECURITY.md": 5}
FOLDERS = "bench|chief|cmake|common|deploy|docs|evaluator|examples|include|k8s|proto|ps|tests|worker"
# Paths that readers make with the commands of docs/kubernetes.md, and a unit.
OTHERS = r"k8s/(?:team|watched|certified|overlays)\b|examples/s\b"
PATH = re.compile(rf"(?<![\w./<-])(?!{OTHERS})(?:{FOLDERS})/[\w./{{}},*@-]*")
ARROW = re.compile(r"-->|-\.->|==>|->>|-x|-\)")
SYMBOL = re.compile(r"[A-Za-z_~][\w:~]*(?:\(\))?")
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")


def spelled(path):
    """'a/{b,c}.txt' -> ['a/b.txt', 'a/c.txt']; NAME stands for any text."""
    parts = re.split(r"\{([^{}]*)\}", path.rstrip(".,").replace("NAME", "*"))
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(one) for one in itertools.product(*choices)]


def anchors(text):
    """Headings as GitHub links to them."""
    found, fenced = set(), False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and (match := re.match(r"#+ +(.*)", line)):
            found.add(re.sub(r"[^\w -]", "", match[1].lower()).replace(" ", "-"))
    return found


def has(text, symbol):
    """Whether C++ or other code says the name, as a whole word. A comment or the name of a file does not count."""
    text = re.sub(r"//[^\n]*|^#include[^\n]*", "", text, flags=re.M)
    return re.search(rf"(?<!\w){re.escape(symbol)}(?!\w)", text) is not None


class Tree:
    """Files of the tree, by their path from its top."""
    def find(self, pattern):
        return [os.path.relpath(path, SOURCE) for path in glob.glob(str(SOURCE / pattern))]

    def read(self, path):
        return (SOURCE / path).read_text() if (SOURCE / path).is_file() else ""


class Page:
    def __init__(self, name, text, tree):
        self.name, self.text, self.tree = name, text, tree
        self.paths, self.complaints = 0, []

    def complain(self, number, what):
        self.complaints.append(f"{self.name}:{number}: {what}")

    def check(self):
        block = None
        for number, line in enumerate(self.text.splitlines(), 1):
            self.check_paths(number, line)
            if line.startswith("```"):
                block = None if block is not None else line[3:].strip()
                first = True
            elif block == "mermaid":
                self.check_diagram(number, line, first)
                first = False
            elif block is None:
                self.check_links(number, line)
                self.check_symbols(number, line)
        return self.complaints

    def check_paths(self, number, line):
        for token in PATH.findall(line):
            for path in spelled(token):
                self.paths += 1
                if not self.tree.find(path):
                    self.complain(number, f"there is no {path}")

    def check_diagram(self, number, line, first):
        if first and not re.match(r"(flowchart (TB|TD|LR|BT|RL)|sequenceDiagram)$", line.strip()):
            self.complain(number, f"a diagram that begins with '{line.strip()}'")
        if ";" in line or "#" in line or line.count('"') % 2 or line.count("(") != line.count(")") or line.count("[") != line.count("]"):
            self.complain(number, "Mermaid misreads ';', '#', and quotes or brackets that do not close")
        if ARROW.search(line) and not PATH.search(line):
            self.complain(number, "an arrow without the file that makes it")

    def check_links(self, number, line):
        for target, anchor in LINK.findall(line):
            if target.startswith(("http:", "https:")):
                continue
            path = os.path.normpath(os.path.join(os.path.dirname(self.name), target)) if target else self.name
            if not self.tree.find(path):
                self.complain(number, f"a link to {path}, which is not there")
            elif anchor and anchor not in anchors(self.text if path == self.name else self.tree.read(path)):
                self.complain(number, f"a link to {path}#{anchor}, where there is no such heading")

    def check_symbols(self, number, line):
        """In a table's second column a file is followed by what is in it."""
        cells = re.split(r"(?<!\\)\|", line)
        if not line.startswith("|") or len(cells) != 6:
            return
        files = None
        for span in re.findall(r"`([^`]+)`", cells[2]):
            if PATH.fullmatch(span):
                files = [file for path in spelled(span) for file in self.tree.find(path)]
            elif files and SYMBOL.fullmatch(span):
                if not any(has(self.tree.read(file), span.removesuffix("()")) for file in files):
                    self.complain(number, f"{span} is not in {' or '.join(files)}")
                elif span.islower() and all(file.endswith(".cc") for file in files):
                    self.complain(number, f"{span} is a variable or a text of {' or '.join(files)}: name the function that has it")


def rooms_out_of_order(page, layout):
    """The rows of common/ and the list in the layout test."""
    listed = re.search(r"kCommon = \{(.*?)\};", layout, re.S)
    wanted = re.findall(r'"(\w+)"', listed[1]) if listed else []
    found = re.findall(r"^\| `common/(\w+)`", page, re.M)
    return [] if wanted and found == wanted else [f"the rooms of common/ are {found}, in tests/unit/layout {wanted}"]


def self_test():
    class Few(Tree):
        files = {"chief/a.h": "class A {\n void Run();\n int b;\n};", "common/b.cc": "#include \"x/seen.h\"\nint b;  // unlike Heard\nvoid RunAll(); F::Go() {}", "docs/p.md": "# One\n## `Two`, three\n",
                 "tests/x/one.txt": "", "deploy/a@.service": ""}

        def find(self, pattern):
            return [file for file in self.files if pathlib.PurePath(file).match(pattern) or file.startswith(pattern.rstrip("/") + "/")]

        def read(self, path):
            return self.files[path]

    def fenced(*lines):
        return "\n".join(["```mermaid", *lines, "```"])

    cases = [("see `chief/a.h`, `common/b.cc`.", 0), ("see `chief/b.h`", 1), ("`chief/` and `chief/*.h`", 0), ("`chief/*.cc`", 1),
             ("`tests/x/{one,two}.txt`", 1), ("`tests/x/NAME.txt`", 0), ("`deploy/a@.service` `deploy/b@.service`", 1),
             ("`k8s/team/a.yaml`, `k8s/watched`, `k8s/overlays/four`", 0), ("`k8s/teams`", 1), ("1,821 examples/s", 0), ("`examples/step.cc`", 1),
             ("https://example.org/chief/none.h and build/chief/none", 0),
             ("[a](p.md) [b](p.md#one) [c](p.md#two-three) [d](https://example.org/x)", 0), ("[a](q.md)", 1), ("[a](p.md#four)", 1),
             ("| x | `chief/a.h`: `A`, `Run()` | y | z |", 0), ("| x | `chief/a.h`: `B` | y | z |", 1), ("| x | `chief/a.h` | `B` | z |", 0),
             ("| x | `chief/a.h`: `b` | y | z |", 0), ("| x | `common/b.cc`: `b` | y | z |", 1),
             ("| x | `common/b.cc`: `RunAll`, `Go`, `F::Go` | y | z |", 0), ("| x | `common/b.cc`: `Run` | y | z |", 1),
             ("| x | `common/b.cc`: `Heard` | y | z |", 1), ("| x | `common/b.cc`: `seen` | y | z |", 1),
             (fenced("flowchart LR", 'A -->|"x (chief/a.h)"| B'), 0), (fenced("flowchart LR", 'A -->|"x"| B'), 1),
             (fenced("sequenceDiagram", "A->>B: x (chief/a.h)"), 0), (fenced("sequenceDiagram", "A->>B: x"), 1),
             (fenced("sequenceDiagram", "A->>B: x, then y; z (chief/a.h)"), 1), (fenced("flowchart LR", 'A["x'), 1), (fenced("graph"), 1)]
    wrong = [text for text, count in cases if len(Page("docs/q2.md", text, Few()).check()) != count]
    layout = 'kCommon = {\n "base", "rpc"};'
    wrong += [text for text, count in (("| `common/base` |\n| `common/rpc` |", 0), ("| `common/rpc` |\n| `common/base` |", 1), ("| `common/base` |", 1))
              if len(rooms_out_of_order(text, layout)) != count]
    for text in wrong:
        print(f"judged wrongly: {text}")
    return bool(wrong)


def main():
    if "--self-test" in sys.argv:
        sys.exit(self_test())
    tree, found, paths = Tree(), [], collections.Counter()
    pages = {**dict.fromkeys(sorted(tree.find("docs/*.md")), 0), **PAGES}
    for name, least in pages.items():
        page = Page(name, tree.read(name), tree)
        found += page.check()
        paths[name] = page.paths
        if page.paths < least:
            found.append(f"{name}: only {page.paths} paths: is this the page?")
    found += rooms_out_of_order(tree.read("docs/architecture.md"), tree.read("tests/unit/layout/layout_test.cc"))
    for line in found:
        print(line)
    print(f"{paths.total()} paths on {len(pages)} pages, {len(found)} complaints")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
