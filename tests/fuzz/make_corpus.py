"""Writes the seeds of the corpora that are no text: python3 make_corpus.py. They are small, and the same each time."""
import gzip
import io
import json
import pathlib
import struct
import tarfile
import zipfile
import zlib

HERE = pathlib.Path(__file__).parent / "corpus"
MASK = 0xffffffff


def put(target, name, content):
    path = HERE / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def crc32c(data):
    crc = MASK
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ MASK


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xa282ead8) & MASK)


def record(data):
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(number):
    number &= (1 << 64) - 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """A protocol buffer's field: an integer, a double, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(data):
    return struct.pack("<H", len(data)) + data


def frame(kind, payload_bytes, body):
    head = struct.pack("<IHHQ", 0x314d464d, kind, 0, payload_bytes) + body.ljust(44, b"\0")[:44]
    return head + struct.pack("<I", crc32c(head))


def npy(shape, descr="<f4", data=b""):
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def png():
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(range(y, y + 18)) for y in range(4))
    for name, depth, colour, extra, pixels in (("rgb", 8, 2, b"", rows), ("grey", 8, 0, b"", b"".join(b"\0" + bytes(6) for _ in range(4))),
                                               ("palette", 8, 3, chunk(b"PLTE", bytes(range(9))), b"".join(b"\0" + bytes(6) for _ in range(4)))):
        yield name, (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 6, 4, depth, colour, 0, 0, 0)) + extra +
                     chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b""))


def data_files():
    for name, content in png():
        put("image", name + ".png", content)
    # A JPEG of 1 x 1, from its markers on.
    put("image", "one.jpg", bytes.fromhex(
        "ffd8ffe000104a46494600010100000100010000ffdb0043000101010101010101010101010101010101010101010101010101010101010101"
        "01010101010101010101010101010101010101010101010101010101ffc0000b080001000101011100ffc40014000100000000000000000000"
        "00000000000009ffc40014100100000000000000000000000000000000ffda0008010100003f0054dfffd9"))
    packed = gzip.compress(b"x,y\n1,2\n" * 20, mtime=0)
    put("gzip", "one", packed)
    put("gzip", "two_members", packed + gzip.compress(b"more", mtime=0))
    put("gzip", "zlib", zlib.compress(b"zlib" * 30))
    put("gzip", "bomb", gzip.compress(bytes(1 << 16), mtime=0))
    floats = field(1, field(2, field(1, struct.pack("<2f", 1, 2))))
    example = field(1, field(1, field(1, "x") + field(2, floats)) + field(1, field(1, "y") + field(2, field(3, field(1, varint(7))))))
    put("records", "two", record(example) + record(b""))
    put("records", "gzip", gzip.compress(record(example), mtime=0))
    put("records", "zlib", zlib.compress(record(example)))
    put("records", "long", struct.pack("<Q", 1 << 62) + masked(struct.pack("<Q", 1 << 62)))
    for name, kind in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=kind, bufsize=512) as tar:
            for member in ("1.txt", "d/" + "n" * (90 if name == "ustar" else 120) + ".txt"):
                info = tarfile.TarInfo(member)
                info.size = 5
                tar.addfile(info, io.BytesIO(b"hello"))
        content = file.getvalue()
        put("tar", name, content[:len(content.rstrip(b"\0")) // 512 * 512 + 512 + 1024])
    put("tar", "gzip", gzip.compress((HERE / "tar/ustar").read_bytes(), mtime=0))
    for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            for member in ("x.npy", "folder/y.npy"):
                archive.writestr(zipfile.ZipInfo(member), npy((2,), data=bytes(8)), compress_type=method)
        put("zip", name, file.getvalue())
    event = field(2, 3) + field(5, field(1, field(1, "loss") + varint(2 << 3 | 5) + struct.pack("<f", 0.5)))
    put("events", "two", record(field(3, "brain.Event:2")) + record(event))
    put("events", "start", record(field(2, 4) + field(7, field(1, 1))))
    for flags, name, text in ((1, "header", "x,y\r\n1,2.5\r\n3,\"4\"\r\n"), (3, "integers", "a,b\n1,2\n"), (4, "semicolon", "1;2\n3;4\n"),
                              (1, "quotes", "\"a \"\"b\"\"\",\"c,d\"\n1e9,-0.5\n")):
        put("csv", name, bytes([flags]) + text.encode())


def wire():
    hello = b"MUSTERDC" + struct.pack("<IIQIIII", 1, 88, 1 << 32 | 5, 0, 1, 2, 16) + b"t" * 16 + bytes(32)
    put("hello", "one", hello + struct.pack("<4sIQ", b"MDCA"[::-1], 0, 1 << 32 | 5) + struct.pack("<Q", 1 << 32 | 5) + b"127.0.0.1:80")
    put("hello", "busy", bytes(88) + struct.pack("<4sIQ", b"MDCA", 5, 7) + struct.pack("<Q", 7) + b"[::1]:80")
    part = struct.pack("<IIqd", 1, 2, 3, 0.1)
    put("push_pull_wire", "open", frame(0x5001, 0, struct.pack("<IIQQQII", 7, 1, 2, 3, 4, 0, 0)))
    put("push_pull_wire", "request", frame(0x5002, 24 + 16, struct.pack("<IBBBBQqIIII", 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, crc32c(part))) + part)
    put("push_pull_wire", "reply", frame(0x5003, 24, struct.pack("<IIII", 0, 0, 1, 0)) + struct.pack("<i", 2) + bytes(24))
    put("push_pull_wire", "error", frame(0x5004, 5, struct.pack("<I", 9)) + b"wrong")
    put("push_pull_wire", "welcome", frame(0x5005, 0, struct.pack("<I", 1)))
    body = struct.pack("<IIQQIII", 6, 4, 1, 2, 0, 3, 0)
    state = (struct.pack("<IIq", 1, 1, 5) + struct.pack("<iQQ", 0, 7, 8) + struct.pack("<Q2f", 2, 1, 2) + struct.pack("<Q2f", 2, 3, 4) +
             struct.pack("<Q", 0))
    head = struct.pack("<QQqdII", 1, 2, 3, 0.1, 0, 0)
    put("replication_wire", "state", frame(0x5013, len(state), body) + head + struct.pack("<H", 0) + state)
    put("replication_wire", "rows", frame(0x5012, 24, body) + head + struct.pack("<H", 2) + struct.pack("<Q2f", 9, 1, 2))
    put("replication_wire", "narrow", frame(0x5012, 4, body) + struct.pack("<QQqdII", 1, 2, 3, 0.1, 0, 2) + struct.pack("<H", 0) + bytes(4))
    put("replication_wire", "standings", frame(0x5011, 16, body) + head + struct.pack("<H", 0) + struct.pack("<qq", 1, 2))


def messages():
    def create(*variables, options='{"chunk_bytes": 1024}'):
        message = b"".join(field(3, v) for v in variables)
        return field(1, 1) + field(2, "run") + message + field(4, '{"name": "adam"}') + field(5, options) + field(6, 2) + field(7, 0)

    def variable(name, *shape, more=b""):
        return field(1, name) + field(2, b"".join(varint(d) for d in shape)) + more
    table = field(5, field(1, 4) + field(9, 1))
    content = field(1, 0) + field(2, 0) + field(3, 1) + field(4, bytes(16)) + field(6, field(1, 0) + field(2, field(1, 1)))
    place = field(1, 0) + field(2, 0) + field(5, 1)
    view = field(1, 1) + field(2, "ticket") + field(3, place) + field(3, field(1, 1) + field(2, 1) + field(5, -1))
    for name, request in (("two", create(variable("m.w", 8, 4), variable("m.b", 4))), ("table", create(variable("m.t", 0, 4, more=table))),
                          ("fixed", create(variable("m.w", 8, 4), options='{"partitioner": {"name": "fixed", "parts": 3}}')),
                          ("huge", create(variable("m.w", 1 << 40), options='{"chunk_bytes": 4}')),
                          ("overflow", create(variable("m.w", 1 << 62, 4))), ("empty", create(variable("m.w", 1 << 62, 0)))):
        put("shard_spec", name, piece(request) + piece(content) + piece(view))

    def action(kind, message, millis=100):
        return struct.pack("<BH", kind, millis) + piece(message)
    hello = field(1, 2) + field(2, "worker:0") + field(3, 77) + field(9, 1) + field(11, "host")
    waiting, forward = field(4, 1), field(1, 6) + field(2, 5) + field(3, 1) + field(6, 1)
    joined = b"".join(action(192 + m, hello) for m in range(3)) + b"".join(action(m, waiting) for m in range(3))
    put("coordinator", "all", b"\0" + joined + b"".join(action(m, forward, 3000) for m in range(3)))
    put("coordinator", "independent", b"\1" + joined)
    put("coordinator", "elastic", b"\2" + joined + action(0, field(9, 1), 65000) + action(1, field(11, 1), 65000))
    put("coordinator", "ages", b"\0" + joined + action(1, field(2, 1 << 62) + field(17, -1 << 62)))
    put("coordinator", "stranger", b"\0" + action(64, hello) + action(65, field(2, "worker:9")))
    done = field(2, field(1, 1) + field(2, 10))

    def ask(worker, message):
        return bytes([worker]) + piece(message)
    put("work_table", "two", b"\0" + ask(0, field(5, 1)) + ask(1, field(5, 1)) + ask(0, done + field(5, 1)) + ask(251, field(5, 1)))
    put("work_table", "stale", b"\1" + ask(0, field(5, 1)) + ask(0, field(4, 1) + field(10, 1)) + ask(2, field(4, -1)))


def texts():
    runs = HERE.parent.parent / "fixtures/1971c1e"
    for run in ("one_device", "embeddings_on_servers", "mirrored"):
        model_dir = runs / run / "model_dir"
        checkpoint = next((model_dir / "checkpoints").glob("step-*"))
        for target, file in (("job_file", model_dir / "job.json"), ("owner", model_dir / "owner.json"), ("json", model_dir / "result.json"),
                             ("manifest", checkpoint / "manifest.json"), ("training_state", checkpoint / "state.json"),
                             ("safetensors", checkpoint / "model.safetensors"), ("safetensors", checkpoint / "optimizer.safetensors")):
            put(target, f"{run}-{file.stem}", file.read_bytes().replace(b"    ", b" "))
    for example in ("recommender", "image_classifier", "cyclegan", "language_model"):
        put("job_file", example, (HERE.parents[2] / f"examples/{example}.json").read_bytes())
    put("json", "kinds", '{"flag": true, "number": 1, "natural": 18446744073709551615, "real": -1.5e-7, "word": "\\u00e9\\ud83d\\ude00", '
        '"words": ["a"], "reals": [1, 2.5], "integers": [-1], "map": {"a": "b"}} // comment')
    put("json", "deep", "[" * 100 + "]" * 100)
    put("manifest", "parent", '{"format_version": 1, "step": 1, "total_bytes": 1, "files": {"../x": {"bytes": 1, "crc32c": "00000000"}}}')
    header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[%s],"data_offsets":[%s]}}'
    for name, shape, places in (("two", b"1", b"8,12"), ("overlap", b"1", b"4,8"), ("overflow", b"4611686018427387904,4", b"8,8"),
                                ("outside", b"1", b"9223372036854775804,9223372036854775807")):
        head = header % (shape, places)
        put("safetensors", name, struct.pack("<Q", len(head)) + head + bytes(12))
    for name, text in (("chief", '{"cluster": {"chief": ["a:1"], "worker": ["b:2", "[::1]:3"], "ps": {"0": "c:4"}}, '
                        '"task": {"type": "worker", "index": "1"}}'),
                       ("sparse", '{"cluster": {"worker": {"3": "b:2"}, "ps": ["c:4"]}, "task": {"type": "worker", "index": 3}, '
                        '"environment": "cloud"}'),
                       ("slurm", "SLURM_JOB_ID=1\nSLURM_PROCID=1\nSLURM_NTASKS=4\nSLURM_STEP_NODELIST=n[1-3,07],m\nSLURM_STEP_TASKS_PER_NODE=2(x2)\n"
                        "SLURM_LOCALID=0\nSLURM_STEP_RESV_PORTS=12000-12003"),
                       ("mpi", "OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nMASTER_ADDR=a\nMASTER_PORT=1"),
                       ("torchrun", "RANK=1\nWORLD_SIZE=2\nLOCAL_RANK=0\nMASTER_ADDR=a\nMASTER_PORT=1")):
        put("tf_config", name, text)
    event = {"t": 2.0, "wall": 3.0, "kind": "phase", "phase": "forward", "generation": "1.2", "step": 5, "detail": "x"}
    collective = dict(event, sequence=7, replica=0, bytes=400, operation="all_reduce(float32 x 100, sum)")
    flight = {"format": "muster flight record", "version": 1, "task": "worker:1", "host": "h", "pid": 1, "run_id": "r", "generation": "1.2",
              "members": ["chief:0", "worker:1"], "reason": "lost", "t": 2.5, "wall": 3.5, "lost_events": 0,
              "events": [event] + [dict(collective, kind=kind) for kind in ("collective_start", "collective_end", "collective_failed", "formed", "verdict")]}
    put("flight_record", "one", json.dumps(flight))
    put("flight_record", "folder", "0001-000002")
    work = {"epoch": 0, "offset": 20, "completed": 1, "examples": 10, "repeated": 0, "repeated_examples": 0, "refused_pushes": 0,
            "torn_pushes": 0, "next_id": 3, "open": [[2, 0, 10, 20]], "batch": 10, "epoch_loss_sum": 1.5, "epoch_examples": 10,
            "epoch_steps": 1, "epoch_metric_sums": [], "epoch_over": False, "staleness": {"0": [1, 1, "inf"]}, "ledger": {"shards": [[1, 0, 0], [0, 0, 0]], "kept": []}}
    chief = {"view": 1 << 32 | 1, "placements": [[0, 1, True], [1, 0, False]], "awaited": [[[0, 1]]], "workers": [[0, 77]], "work": work,
             "validation_due": False, "test_due": True, "epoch_seconds": 1.5, "integers": {"m.steps": "0001ff"}, "ended": ""}
    put("chief_record", "one", json.dumps(chief))


def main():
    data_files()
    texts()
    wire()
    messages()


if __name__ == "__main__":
    main()
