"""JSON is parsed in one place (include/muster/json.h: ParseJson), which bounds its depth and size.

  parses.py              looks through the sources
  parses.py --self-test  shows that each kind of another parse is found
"""
import re
import sys

from waits import SOURCE, sources, without_comments

RAW = re.compile(r"(?:\b\w*[Jj]son\s*::\s*(?:(?:sax_)?parse|accept|from_(?:bson|cbor|msgpack|ubjson|bjdata))\s*\("
                 r"|>>\s*\w*json\b)")
# With a bound of their own.
ELSEWHERE = {
    "common/base/json/json.cc": "ParseJson itself",
    "common/base/json/utf8.cc": "one string, which Dump has written",
    "common/checkpoint/safetensors.cc": "without a tree: content that is deeper than a header ends it",
}


def complaints(name, text):
    lines = without_comments(text).split("\n")
    return [f"{name}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if RAW.search(line)]


def self_test():
    found = ["Json json = Json::parse(text, nullptr, false);", "const auto j = nlohmann::json::parse(t);", "AnyJson::parse(text, on_event);",
             "nlohmann::ordered_json::parse(t)", "if (!Json::sax_parse(json, &parser)) return;", "Json::from_cbor(bytes);", "in >> json;"]
    passed = ["ParseJson(text, \"TF_CONFIG\");", "// Json::parse(text) has no bound", "ParseAddress(text);", "ReadJsonFile(path)", "Json::array()"]
    wrong = [line for line in found if not complaints("f", line)] + [line for line in passed if complaints("f", line)]
    for line in wrong:
        print(f"judged wrongly: {line}")
    return bool(wrong)


def main():
    if "--self-test" in sys.argv:
        sys.exit(self_test())
    files = sources()
    names = {str(path.relative_to(SOURCE)): path for path in files}
    idle = [name for name in ELSEWHERE if name not in names or not complaints(name, names[name].read_text())]
    found = [line for name, path in names.items() if name not in ELSEWHERE for line in complaints(name, path.read_text())]
    for line in found:
        print(f"{line}\n    has no bound; use ParseJson")
    for name in idle:
        print(f"{name} parses no JSON: take it from the list")
    print(f"{len(files)} files, {len(found)} complaints")
    sys.exit(1 if found or idle else 0)


if __name__ == "__main__":
    main()
