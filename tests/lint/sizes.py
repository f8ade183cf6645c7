"""No class and no function of the ROOMS below outgrows what can be kept in one's head.

  sizes.py              measures the classes (400 lines at most, with the functions that are outside of their braces) and
                        the functions (60) of ROOMS
  sizes.py --all        lists the largest ones too
  sizes.py --self-test  shows that both are found
"""
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("worker/*", "worker/parameter_server/*", "common/membership/*", "common/membership/resources/*", "common/membership/state_machine/*",
         "chief/coordinator/admission/*",
         "common/session/*", "chief/coordinator/*", "chief/decision/*", "chief/evaluation/evaluation_rules.*", "chief/leases/*",
         "chief/shards/*", "common/cluster/*", "common/train/*", "common/train/embedding/*", "common/train/input/*", "common/train/loop/*",
         "common/train/exchange/*", "common/train/replica/*", "common/train/replica/devices/*", "common/train/replica/gradients/*",
         "common/train/state/*")
CLASS_LINES, FUNCTION_LINES = 400, 60

CLASS = re.compile(r"\b(?:class|struct|union)\s+(?:\w+\s*\([^()]*\)\s*)?([\w:]+)(?:\s+final)?\s*(?::[^:].*)?$", re.S)
FUNCTION = re.compile(r"([\w:~]+(?:\s*operator\s*\S+)?)\s*\(")


def blanked(text):
    """Comments, literals and directives become spaces, line by line."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group())
    return re.sub(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*',
                  spaces, text, flags=re.S | re.M)


def parse(text):
    text = blanked(text)
    found, stack, head, begin, line = [], [], "", None, 1
    for c in re.findall(r"[{};:\n]|[^{};:\n]+", text):
        inside = stack and stack[-1][0] in ("function", "other")
        if c == "{":
            if inside:
                stack.append(("other", "", line))
            else:
                kind, name = kind_of(head)
                stack.append((kind, name, begin or line))
                if kind in ("namespace", "class"):
                    head, begin = "", None
        elif c == "}":
            kind, name, first = stack.pop()
            inside = stack and stack[-1][0] in ("function", "other")
            if kind in ("class", "function"):
                nested = any(scope[0] == "class" for scope in stack)
                found.append((kind, name, first, line, nested))
            if not inside and kind != "other":
                head, begin = "", None
        elif not inside:
            if c == ";":
                head, begin = "", None
            else:
                if begin is None and not c.isspace():
                    begin = line
                head += c
                if c == ":" and re.search(r"\b(?:public|private|protected)\s*:$", head) and not CLASS.search(head[:-1]):
                    head, begin = "", None
        if c == "\n":
            line += 1
    return found


def kind_of(head):
    head = head.strip()
    if re.match(r"(?:inline\s+)?namespace\b", head) or head.startswith("extern"):
        return "namespace", ""
    if re.search(r"\benum\b", head):
        return "other", ""
    match = CLASS.search(head)
    if match and "(" not in head[:match.start()] and not head.endswith(")"):
        return "class", match.group(1)
    match = FUNCTION.search(re.sub(r"^template\s*<[^{}]*?>\s*(?=[\w\[])", "", head))
    # Not the value of a member, nor of one that a constructor sets.
    if match and (head.endswith((")", "const", "override", "noexcept", "final")) or re.search(r"->\s*[\w:<>,&*\s]+$", head)):
        return "function", match.group(1)
    return "other", ""


def measure(files):
    """{(where, class): lines}, [(lines, where, function)]"""
    classes, functions, outside = {}, [], []
    for path, text in files:
        folder = str(pathlib.PurePath(path).parent)
        home = path if path.endswith(".cc") else folder
        for kind, name, first, last, nested in parse(text):
            lines = last - first + 1
            if kind == "function":
                functions.append((lines, f"{path}:{first}", name))
                if "::" in name and not nested:
                    outside.append((path, folder, name.split("::")[-2], lines))
            elif not nested:
                classes[home, name.split("::")[-1]] = classes.get((home, name.split("::")[-1]), 0) + lines
    for path, folder, name, lines in outside:
        key = (path, name) if (path, name) in classes else (folder, name)
        if key in classes:
            classes[key] += lines
    return classes, functions


def complaints(files):
    classes, functions = measure(files)
    return ([f"{where}: class {name} has {lines} lines, more than {CLASS_LINES}"
             for (where, name), lines in sorted(classes.items()) if lines > CLASS_LINES] +
            [f"{where}: {name}() has {lines} lines, more than {FUNCTION_LINES}"
             for lines, where, name in functions if lines > FUNCTION_LINES])


def self_test():
    def body(n):
        return "  f();  // {\n" * n
    head = ("namespace x {\nclass A final : public B<C> {\n public:\n  explicit A(int n) : n_{n}, m_(n) {}\n  void Long();\n"
            "  int n_ = 0, m_{3};\n  std::function<void()> f_ ABSL_GUARDED_BY(mu_) = [] { g(); };\n};\n")
    def method(name, n):
        return "int A::" + name + "(const char* a,\n         char b) const {\n" + body(n) + "}\n"
    cases = [("a function", [("r/a.h", head), ("r/a.cc", method("Long", 58))], ["r/a.cc:1: A::Long() has 61"]),
             ("none", [("r/a.h", head), ("r/a.cc", method("Long", 57))], []),
             ("a class", [("r/a.h", head)] + [(f"r/a{i}.cc", method("Long", 50)) for i in range(8)], ["class A has "]),
             ("two classes of one name", [(f"r/a{i}.cc", head + method("Long", 50) * 4) for i in range(2)], []),
             ("a function in a class", [("r/a.cc", "struct S {\n  void f() {\n" + body(60) + "  }\n};\n")], ["f() has 62"]),
             ("a lambda", [("r/a.cc", "void f() {\n  auto g = [] {\n" + body(60) + "  };\n}\n")], ["f() has 64"])]
    wrong = 0
    for what, files, expected in cases:
        got = complaints(files)
        if len(got) != len(expected) or not all(e in g for e, g in zip(expected, got)):
            print(f"judged wrongly: {what}: {got}")
            wrong += 1
    return wrong


def main():
    if "--self-test" in sys.argv:
        sys.exit(self_test())
    paths = sorted({p for room in ROOMS for p in SOURCE.glob(room) if p.suffix in (".h", ".cc")})
    if len(paths) < 60:
        sys.exit(f"only {len(paths)} sources: have the folders moved?")
    files = [(str(p.relative_to(SOURCE)), p.read_text()) for p in paths]
    classes, functions = measure(files)
    if len(classes) < 60 or len(functions) < 400:
        sys.exit(f"only {len(classes)} classes and {len(functions)} functions: can they still be read?")
    if "--all" in sys.argv:
        for (where, name), lines in sorted(classes.items(), key=lambda c: -c[1])[:20]:
            print(f"{lines:5} {where}: {name}")
        for lines, where, name in sorted(functions, reverse=True)[:20]:
            print(f"{lines:5} {where}: {name}()")
    found = complaints(files)
    for line in found:
        print(line)
    print(f"{len(classes)} classes, {len(functions)} functions, {len(found)} complaints")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
