"""The rules of Chrome's trace event format, as strict as Perfetto's importer: what breaks one is lost there or drawn wrongly."""
import collections
import json
import math

KNOWN = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}


class Broken(AssertionError):
    pass


def check(condition, message):
    if not condition:
        raise Broken(message)


def number(event, key):
    value = event.get(key)
    check(type(value) in (int, float) and math.isfinite(value), f"{key} of {event} is no number")
    return value


def refuse(constant):
    raise Broken(f"{constant} is not JSON")


def read(path):
    """{"spans": [...], "processes": {pid: name}, "threads": {(pid, tid): name}, "other": {...}} of a valid file."""
    data = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    check(isinstance(data, dict) and isinstance(data.get("traceEvents"), list), "it is no object with traceEvents")
    check(data.get("displayTimeUnit") in ("ms", "ns"), "displayTimeUnit")
    spans, processes, threads = [], {}, {}
    for event in data["traceEvents"]:
        check(isinstance(event, dict), f"{event} is no object")
        check(type(event.get("pid")) is int and type(event.get("tid")) is int, f"{event} has no pid and tid")
        check(isinstance(event.get("name"), str) and event["name"], f"{event} has no name")
        check(isinstance(event.get("args", {}), dict), f"args of {event}")
        if event.get("ph") == "M":
            check(event["name"] in KNOWN, f"{event} is unknown")
            if event["name"] == "process_name":
                check(event["pid"] not in processes, f"{event} comes twice")
                processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                check((event["pid"], event["tid"]) not in threads, f"{event} comes twice")
                threads[event["pid"], event["tid"]] = event["args"]["name"]
            continue
        check(event.get("ph") == "X", f"{event} is neither a span nor names")
        check(number(event, "ts") >= 0 and number(event, "dur") >= 0, f"{event} has a negative time")
        spans.append(event)
    check(min((span["ts"] for span in spans), default=0) == 0, "the first span does not begin at 0")
    lanes = collections.defaultdict(list)
    for span in spans:
        check(span["pid"] in processes and (span["pid"], span["tid"]) in threads, f"{span} is of nobody")
        lanes[span["pid"], span["tid"]].append(span)
    for lane in lanes.values():
        check_nesting(lane)
    return {"spans": spans, "processes": processes, "threads": threads, "other": data["otherData"]}


def check_nesting(lane):
    """Spans of one thread nest or do not overlap; half a nanosecond is rounding."""
    open_spans = []
    for span in sorted(lane, key=lambda s: (s["ts"], -s["dur"])):
        end = span["ts"] + span["dur"]
        while open_spans and open_spans[-1] <= span["ts"] + 0.0006:
            open_spans.pop()
        check(not open_spans or end <= open_spans[-1] + 0.0016, f"{span} overlaps another span of its thread")
        open_spans.append(end)


def overlap(a, b):
    """Microseconds for which two spans run at the same time."""
    return min(a["ts"] + a["dur"], b["ts"] + b["dur"]) - max(a["ts"], b["ts"])
