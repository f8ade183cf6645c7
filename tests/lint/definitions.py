"""No class is defined twice, differently, under one name: the linker takes one of the two for both.

  definitions.py              looks through the sources; what is in an unnamed namespace is a file's own
  definitions.py --self-test  shows that such a class is found
"""
import collections
import pathlib
import re
import sys

from sizes import SOURCE, blanked, parse

ROOMS = ("chief", "common", "deploy", "evaluator", "examples", "include", "ps", "worker")


def without_unnamed(text):
    """The bodies of unnamed namespaces become spaces."""
    begin, unnamed, brace = 0, re.compile(r"\bnamespace\s*\{"), re.compile(r"[{}]")
    while match := unnamed.search(text, begin):
        depth, end = 1, match.end()
        while depth:
            found = brace.search(text, end)
            depth += 1 if found.group() == "{" else -1
            end = found.end()
        text = text[:match.end()] + re.sub(r"[^\n]", " ", text[match.end():end - 1]) + text[end - 1:]
        begin = end
    return text


def complaints(files):
    seen = collections.defaultdict(list)
    for path, text in files:
        text = without_unnamed(blanked(text))
        space = "::".join(re.findall(r"\bnamespace\s+([\w:]+)\s*\{", text))
        for kind, name, first, _, nested in parse(text):
            if kind == "class" and not nested and "::" not in name and "<" not in name:
                seen[f"{space}::{name}"].append(f"{path}:{first}")
    return [f"{name} is defined in {' and '.join(places)}" for name, places in sorted(seen.items()) if len(places) > 1]


def self_test():
    def file(body, space="x"):
        return "namespace " + space + " {\n" + body + "}\n"
    a, hidden, method = "struct A {\n  int a;\n};\n", "namespace {\nstruct A { struct B {}; };\n}\n", "void A::B() { struct A { int b; }; }\n"
    cases = [([file(a), file("class A final : public B {};\n")], 1), ([file(a), file(hidden)], 0), ([file(a), file(a, "x::y")], 0),
             ([file(a), file("struct A;\n" + method)], 0), ([file(a), file("struct B { struct A {}; };\n")], 0)]
    wrong = [i for i, (texts, count) in enumerate(cases) if len(complaints([(str(n), t) for n, t in enumerate(texts)])) != count]
    print(f"{len(cases)} cases, judged wrongly: {wrong}")
    return bool(wrong)


def main():
    if "--self-test" in sys.argv:
        sys.exit(self_test())
    paths = [p for room in ROOMS for p in sorted((SOURCE / room).rglob("*")) if p.suffix in (".h", ".cc")]
    if len(paths) < 300:
        sys.exit(f"only {len(paths)} sources: have the folders moved?")
    files = [(str(p.relative_to(SOURCE)), p.read_text()) for p in paths]
    found = complaints(files)
    for line in found:
        print(line)
    print(f"{len(files)} files, {len(found)} complaints")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
