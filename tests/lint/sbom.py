"""The bill of materials that the build writes is a valid SPDX 2.3 document as far as we use it, complete, and the same each time.

  sbom.py [--self-test]
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
PACKAGE_KEYS = {"name", "SPDXID", "versionInfo", "downloadLocation", "filesAnalyzed", "licenseConcluded", "licenseDeclared", "copyrightText", "supplier",
                "checksums", "externalRefs"}


def faults(document):
    for key, value in (("spdxVersion", "SPDX-2.3"), ("dataLicense", "CC0-1.0"), ("SPDXID", "SPDXRef-DOCUMENT")):
        if document.get(key) != value:
            yield f"{key} is {document.get(key)}"
    if not re.fullmatch(r"https://[^#\s]+", document.get("documentNamespace", "")):
        yield "its namespace is no URI without a fragment"
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["creationInfo"]["created"]):
        yield "created is no time in UTC"
    if not all(re.match(r"(Tool|Person|Organization): ", creator) for creator in document["creationInfo"]["creators"]):
        yield "a creator has no kind"
    ids = [package["SPDXID"] for package in document["packages"]]
    if len(set(ids)) != len(ids):
        yield "two packages have one id"
    for package in document["packages"]:
        if not re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", package["SPDXID"]) or set(package) - PACKAGE_KEYS or not package["versionInfo"]:
            yield f"{package['name']} is no package"
        for checksum in package.get("checksums", []):
            if checksum["algorithm"] != "SHA256" or not re.fullmatch("[0-9a-f]{64}", checksum["checksumValue"]):
                yield f"{package['name']} has no SHA-256"
        if package["SPDXID"].startswith("SPDXRef-pypi-") and not package.get("checksums"):
            yield f"{package['name']} comes from pip without a hash"
    known = {*ids, "SPDXRef-DOCUMENT"}
    for relation in document["relationships"]:
        if {relation["spdxElementId"], relation["relatedSpdxElement"]} - known:
            yield "a relationship is with nobody"
    reached = {relation[end] for relation in document["relationships"] for end in ("spdxElementId", "relatedSpdxElement")}
    yield from (f"{lost} has no relationship" for lost in known - reached)


def written(folder, name):
    path = pathlib.Path(folder) / name
    subprocess.run([DEPLOY / "sbom", "1.0", path], check=True, timeout=50, env={**os.environ, "SOURCE_DATE_EPOCH": "0"})
    return path.read_text()


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        good = json.loads(written(folder, "one"))
    cases = [(lambda d: None, 0), (lambda d: d.update(spdxVersion="SPDX-3"), 1), (lambda d: d["packages"][-1].pop("checksums"), 1),
             (lambda d: d["packages"].append(d["packages"][1]), 1), (lambda d: d["relationships"].pop(), 1),
             (lambda d: d["relationships"][1].update(relatedSpdxElement="SPDXRef-x"), 1), (lambda d: d["creationInfo"].update(created="now"), 1)]
    wrong = []
    for number, (change, count) in enumerate(cases):
        document = json.loads(json.dumps(good))
        change(document)
        if len(list(faults(document))) != count:
            wrong.append((number, list(faults(document))))
    print(f"{len(cases)} cases, judged wrongly: {wrong}")
    return bool(wrong)


def main():
    if "--self-test" in sys.argv:
        sys.exit(self_test())
    with tempfile.TemporaryDirectory() as folder:
        one, two = written(folder, "one"), written(folder, "two")
    document = json.loads(one)
    found = list(faults(document))
    if one != two:
        found.append("it is not the same when it is written again")
    names = {package["name"] for package in document["packages"]}
    found += [f"{name} is missing" for name in ("libgrpc++-dev", "libssl-dev", "libprotobuf-dev", "torch", "muster") if name not in names]
    for line in found:
        print(line)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
