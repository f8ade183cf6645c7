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


def safetensors(*tensors):
    """A file of tensors, each given as (name, type, shape, data)."""
    header, data = {}, b""
    for name, dtype, shape, content in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


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
    put("array", "npy", npy((2, 3), data=bytes(24)))
    put("array", "scalar", npy((), "<f8", bytes(8)))
    put("array", "bool", npy((4,), "|b1", b"\0\1\1\0"))
    put("array", "version_2", b"\x93NUMPY\2\0" + struct.pack("<I", 58) + b"{'descr': '<i2', 'fortran_order': True, 'shape': (2, 2L)}\n" + bytes(8))
    put("array", "empty", npy((0, 10**17)))
    put("array", "huge", npy((10**17, 10**17)))
    put("array", "records", npy((1,), [("a", "<f4")]))
    images = struct.pack(">4B3I", 0, 0, 8, 3, 2, 2, 3) + bytes(range(12))
    put("array", "idx_images", images)
    put("array", "idx_images.gz", gzip.compress(images, mtime=0))
    put("array", "idx_labels", struct.pack(">4BI", 0, 0, 8, 1, 3) + b"\7\0\1")
    put("array", "idx_words", struct.pack(">4BI3h", 0, 0, 11, 1, 3, 1, -2, 3))
    put("array", "idx_doubles", struct.pack(">4BI2d", 0, 0, 14, 1, 2, 1, 2))
    put("array", "idx_members.gz", gzip.compress(images[:20], mtime=0) + gzip.compress(images[20:], mtime=0))
    for flags, name, length, stride, content in ((128, "text", 4, 2, b"To be, or not"), (1, "words", 3, 3, struct.pack("<6H", *range(6))),
                                                 (130, "longs", 1, 1, struct.pack("<4I", 0, 1, 2, MASK)), (128, "long", (1 << 63) - 1, 1, b"ab"),
                                                 (0, "strides", 1, (1 << 63) - 1, b"ab")):
        put("tokens", name, struct.pack("<Bqq", flags, length, stride) + content)
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
    put("replication_wire", "no_rows", frame(0x5012, 0, body) + struct.pack("<QQqdII", 1, 2, 3, 0.1, 0, 2) + struct.pack("<H", 2))
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
    def shard(first, *more):
        return safetensors(("t.keys", "I64", [2], struct.pack("<2q", first, first + 1)), ("t.step", "I64", [], struct.pack("<q", first)),
                           ("t.rows", "F32", [2, 2], struct.pack("<4f", 1, 2, 3, 4)), *more)
    squares = "t.sum", "F32", [2, 2], bytes(16)
    for flags, name, files in ((0, "two", (shard(1), shard(5))), (1, "adagrad", (shard(1, squares), shard(2, squares))), (2, "capped", (shard(1), shard(1))),
                               (0, "kinds", (shard(1), safetensors(("t.step", "I64", [1, 20], bytes(160))))),
                               (0, "wide", (safetensors(("t.rows", "I8", [1 << 62, 0], b"")),) * 2)):
        put("rows", name, bytes([flags]) + piece(files[0]) + files[1])
    event = {"t": 2.0, "wall": 3.0, "kind": "phase", "phase": "forward", "generation": "1.2", "step": 5, "detail": "x"}
    collective = dict(event, sequence=7, replica=0, bytes=400, operation="all_reduce(float32 x 100, sum)")
    flight = {"format": "muster flight record", "version": 1, "task": "worker:1", "host": "h", "pid": 1, "run_id": "r", "generation": "1.2",
              "members": ["chief:0", "worker:1"], "reason": "lost", "t": 2.5, "wall": 3.5, "lost_events": 0,
              "events": [event] + [dict(collective, kind=kind) for kind in ("collective_start", "collective_end", "collective_failed", "formed", "verdict")]}
    put("flight_record", "one", json.dumps(flight))
    put("flight_record", "large", json.dumps(dict(flight, pid=10**30)))
    put("flight_record", "folder", "0001-000002")
    work = {"epoch": 0, "offset": 20, "completed": 1, "examples": 10, "repeated": 0, "repeated_examples": 0, "refused_pushes": 0,
            "torn_pushes": 0, "next_id": 3, "open": [[2, 0, 10, 20]], "batch": 10, "epoch_loss_sum": 1.5, "epoch_examples": 10,
            "epoch_steps": 1, "epoch_metric_sums": [], "epoch_over": False, "staleness": {"0": [1, 1, "inf"]}, "ledger": {"shards": [[1, 0, 0], [0, 0, 0]], "kept": []}}
    chief = {"view": 1 << 32 | 1, "placements": [[0, 1, True], [1, 0, False]], "awaited": [[[0, 1]]], "workers": [[0, 77]], "work": work,
             "validation_due": False, "test_due": True, "epoch_seconds": 1.5, "integers": {"m.steps": "0001ff"}, "ended": ""}
    put("chief_record", "one", json.dumps(chief))
    put("chief_record", "large", json.dumps(dict(chief, view=10**30)))
    put("chief_record", "large_work", json.dumps(dict(chief, work=dict(work, ledger={"shards": [[1e30, 0, 0], [0, 0, 0]], "kept": []}))))


def exported():
    """Files like those of torch.export.save: y = x * scale, with a trained scale and a buffer that counts."""
    def value(name):
        return {"as_tensor": {"name": name}}

    def sizes(*numbers):
        return [{"as_int": n} if n >= 0 else {"as_expr": {"expr_str": "Symbol('s0', positive=True, integer=True)"}} for n in numbers]

    def node(target, output, **inputs):
        return {"target": target, "inputs": [{"name": name, "arg": arg, "kind": 1} for name, arg in inputs.items()], "outputs": [value(output)],
                "metadata": {"stack_trace": "  File \"/data/me/model.py\", line 12, in forward\n    return x * self.scale\n"}}

    def payload(file, dtype, shape, strides, parameter, offset=0):
        meta = {"dtype": dtype, "sizes": sizes(*shape), "requires_grad": parameter, "device": {"type": "cpu", "index": None}, "strides": sizes(*strides),
                "storage_offset": {"as_int": offset}, "layout": 7}
        return {"path_name": file, "is_param": parameter, "use_pickle": False, "tensor_meta": meta}

    def spec(kind, name, placeholder):
        return {kind: {"arg": {"name": placeholder}, kind + "_name": name}}
    add = node("torch.ops.aten.add_.Tensor", "added", self=value("b_count"), other={"as_int": 1})
    mul = node("torch.ops.aten.mul.Tensor", "y", self=value("x"), other=value("p_scale"))
    size = node("torch.ops.aten.sym_size.int", "n", self=value("x"), dim={"as_int": 0})
    size["outputs"] = [{"as_sym_int": {"as_name": "n"}}]
    double = node("_operator.mul", "m", a={"as_sym_int": {"as_name": "n"}}, b={"as_int": 2})
    double["outputs"] = [{"as_sym_int": {"as_name": "m"}}]
    inner = {"inputs": [value("a")], "nodes": [node("torch.ops.aten.dropout.default", "d", input=value("a"), p={"as_float": 0.5}, train={"as_bool": True})],
             "outputs": [value("d")], "tensor_values": {}, "sym_int_values": {}, "sym_bool_values": {}}
    grad = node("torch.ops.higher_order.wrap_with_set_grad_enabled", "z", mode={"as_bool": False}, body={"as_graph": {"name": "g", "graph": inner}}, x=value("y"))
    for name, nodes, last in (("scale", [add, mul], "y"), ("sizes", [size, double, mul], "y"), ("nested", [mul, grad], "z")):
        graph = {"inputs": [value("p_scale"), value("b_count"), value("x")], "nodes": nodes, "outputs": [value(last)],
                 "tensor_values": {"x": {"dtype": 7, "sizes": sizes(-1, 2)}, last: {"dtype": 7, "sizes": sizes(-1, 2)}}, "sym_int_values": {}, "sym_bool_values": {}}
        signature = {"input_specs": [spec("parameter", "net.scale", "p_scale"), spec("buffer", "count", "b_count"), {"user_input": {"arg": value("x")}}],
                     "output_specs": [{"user_output": {"arg": value(last)}}]}
        call = {"fqn": "", "signature": {"forward_arg_names": ["x"]}}
        program = {"graph_module": {"graph": graph, "signature": signature, "module_call_graph": [call]}, "opset_version": {"aten": 10},
                   "range_constraints": {"s0": {"min_val": 1, "max_val": None}}, "schema_version": {"major": 8, "minor": 17}, "torch_version": "2.11.0"}
        weights = {"config": {"net.scale": payload("weight_0", 7, [1], [1], True), "count": payload("weight_0", 7, [2, 2], [0, 0], False, 1)}}
        if name != "scale":
            weights["config"]["count"] = payload("weight_0", 5, [], [], False)
            del weights["config"]["net.scale"]
            signature["input_specs"][0] = spec("tensor_constant", "c", "p_scale")
        constants = {"config": {"c": payload("tensor_0", 7, [2], [1], False)}}
        put("exported", name, piece(json.dumps(program).encode()) + piece(json.dumps(weights).encode()) + piece(json.dumps(constants).encode()) + bytes(8))

    def number(n):
        return struct.pack("<Bq", 3, n)
    for name, target, operands in (("floordiv", "_operator.floordiv", number(-1 << 63) + number(-1)), ("mod", "_operator.mod", number(-1 << 63) + number(-1)),
                                   ("pow", "_operator.pow", number(-1) + number(1 << 62)), ("real", "math.floor", struct.pack("<Bd", 0, -2.5)),
                                   ("choose", "torch.sym_ite", b"\1\1" + number(1) + number(2)), ("neg", "_operator.neg", number(-1 << 63)),
                                   ("lshift", "_operator.lshift", number(3) + number(61)), ("min", "torch.sym_min", number(3) + b"\2")):
        put("symbolic", name, piece(target.encode()) + operands)


def main():
    data_files()
    exported()
    texts()
    wire()
    messages()


if __name__ == "__main__":
    main()
