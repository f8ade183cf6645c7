"""Models that Python exports and two members of Muster train, with their data and what Python gets alone."""
import numpy
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

Dim = torch.export.Dim


class Convnet(nn.Module):
    """Batch normalisation and dropout."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(4 * 5 * 5, 10)

    def forward(self, image):
        x = torch.max_pool2d(torch.relu(self.norm(self.conv(image))), 2)
        return self.head(self.dropout(x.flatten(1)))


class Transformer(nn.Module):
    """An encoder with a causal mask that is made in the graph; every token has a label."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.place = nn.Parameter(torch.randn(1, 32, 16) * 0.1)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 20)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.encoder(self.embed(tokens) + self.place[:, :length], mask=mask, is_causal=True))


class Recurrent(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.lstm = nn.LSTM(3, 8, 2, batch_first=True, dropout=dropout, bidirectional=True)
        self.head = nn.Linear(16, 5)

    def forward(self, series):
        return self.head(self.lstm(series)[0][:, -1])


class Two(nn.Module):
    """Two inputs, tied weights, buffers that are written, a constant, several outputs."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.first, self.second = nn.Linear(8, 6), nn.Linear(8, 6)
        self.second.weight = self.first.weight
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 6), persistent=False)

    def forward(self, left, right):
        with torch.no_grad():
            self.count += 1
            self.mean.mul_(0.9).add_(left.mean(0), alpha=0.1)
        hidden = self.dropout(torch.relu(self.inner(left - self.mean)))
        out = self.first(hidden) + self.second(hidden) * right * self.scale + torch.tensor(0.25)
        return {"out": out, "hidden": (hidden, left.shape[0])}


class Second(nn.Module):
    """The loss is of the second output; a head that gives the first one alone is not trained."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.inner, self.head, self.idle = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 4)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        hidden = self.dropout(torch.relu(self.inner(x)))
        return self.idle(hidden), self.head(hidden)


EXAMPLES, BATCH = 22, 8  # batches of 8, 8, 6
IGNORED = -100  # the target of a token that is padding


def data(kind):
    """The columns by name; the last one is the target."""
    r = numpy.random.default_rng(5)
    if kind == "convnet":
        return {"image": r.normal(size=(EXAMPLES, 1, 12, 12)).astype("f4"), "target": r.integers(0, 10, EXAMPLES)}
    if kind in ("transformer", "padded"):
        columns = {"tokens": r.integers(0, 20, (EXAMPLES, 7)), "target": r.integers(0, 20, (EXAMPLES, 7))}
        if kind == "padded":
            # The longest sequences first in each batch of 8, so that the members' slices differ; one has no token at all.
            lengths = [7, 7, 6, 7, 2, 1, 0, 1] * 3
            for target, length in zip(columns["target"], lengths):
                target[length:] = IGNORED
        return columns
    if kind == "recurrent":
        return {"series": r.normal(size=(EXAMPLES, 9, 3)).astype("f4"), "target": r.integers(0, 5, EXAMPLES)}
    if kind == "second":
        return {"x": r.normal(size=(EXAMPLES, 6)).astype("f4"), "target": r.integers(0, 4, EXAMPLES)}
    columns = {name: r.normal(size=(EXAMPLES, 6)).astype("f4") for name in ("left", "right", "target")}
    return columns


CLASSES = {"convnet": Convnet, "transformer": Transformer, "padded": Transformer, "recurrent": Recurrent, "two": Two,
           "second": Second}
LOSSES = {"convnet": "cross_entropy", "transformer": "cross_entropy", "padded": "cross_entropy", "recurrent": "cross_entropy",
          "two": "mean_squared_error", "second": "cross_entropy"}
OUTPUTS = {"second": 1}  # of what forward() returns; else the first


def make(kind, dropout=0.0, seed=3):
    torch.manual_seed(seed)
    return CLASSES[kind](dropout)


written = {}  # {(class, dropout, seed): bytes} of the files that export() wrote


def export(kind, path, dropout=0.0, seed=3):
    """Writes the model, exported for another batch (and sequence) than the one that it is trained with. Exporting takes longer than most
    of the runs of it, and always makes the same program: the tests of one process write what the first of them exported."""
    model = make(kind, dropout, seed).train()
    program = CLASSES[kind], dropout, seed
    if program in written:
        path.write_bytes(written[program])
        return model
    batch, length = Dim("batch", min=1, max=4096), Dim("length", min=2, max=32)
    arguments, shapes = {
        "convnet": ((torch.randn(3, 1, 12, 12),), ({0: batch},)),
        "transformer": ((torch.zeros(3, 5, dtype=torch.long),), ({0: batch, 1: length},)),
        "recurrent": ((torch.randn(3, 9, 3),), ({0: batch},)),
        "two": ((torch.randn(3, 6), torch.randn(3, 6)), ({0: batch}, {0: batch})),
        "second": ((torch.randn(3, 6),), ({0: batch},)),
    }["transformer" if kind == "padded" else kind]
    torch.export.save(torch.export.export(model, arguments, dynamic_shapes=shapes), str(path))
    written[program] = path.read_bytes()
    return model


def outputs(model, batch):
    out = model(*batch[:-1])
    if isinstance(out, tuple):
        return out[1]
    return out["out"] if isinstance(out, dict) else out


def counted(kind, target):
    """How many values the loss is a mean of: examples, or tokens that are no padding."""
    return len(target) if LOSSES[kind] == "mean_squared_error" else (target != IGNORED).sum().item()


def loss_of(kind, out, target):
    """The sum over what is counted."""
    if LOSSES[kind] == "mean_squared_error":
        return (out - target).square().flatten(1).mean(1).sum()
    return nn.functional.cross_entropy(out.flatten(0, -2), target.flatten(), reduction="sum", ignore_index=IGNORED)


def train_alone(kind, model, steps, rate, replicas=2, columns=None):
    """The losses before each update, and the model as it is after them, by the rules of synchronous training. `columns`: other
    data than the model's."""
    torch.set_num_threads(1)
    columns = [torch.from_numpy(c) for c in (columns or data(kind)).values()]
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    losses, at = [], 0
    for _ in range(steps):
        end = min(at + BATCH, EXAMPLES)
        count = end - at
        before = {name: b.clone() for name, b in model.named_buffers()}
        after = {name: torch.zeros_like(b) if b.is_floating_point() else b.clone() for name, b in before.items()}
        optimizer.zero_grad()
        total, begin = 0.0, at
        for r in range(replicas):
            size = count // replicas + (r < count % replicas)
            with torch.no_grad():
                for name, b in model.named_buffers():
                    b.copy_(before[name])
            batch = [c[begin:begin + size] for c in columns]
            loss = loss_of(kind, outputs(model, batch), batch[-1]) / counted(kind, columns[-1][at:end])
            loss.backward()
            total += loss.item()
            for name, b in model.named_buffers():
                if b.is_floating_point():
                    after[name] += b * (size / count)
                elif r == 0:
                    after[name] = b.clone()
            begin += size
        with torch.no_grad():
            for name, b in model.named_buffers():
                b.copy_(after[name])
        optimizer.step()
        losses.append(total)
        at = 0 if end == EXAMPLES else end
    return losses


def evaluate(kind, model, replicas=1, size=BATCH):
    """Mean loss and accuracy of the whole data in evaluation mode, `size` examples at a time. Each replica's part of each batch begins with the
    buffers that training left: what the model writes meanwhile is dropped."""
    columns = [torch.from_numpy(c) for c in data(kind).values()]
    model.eval()
    before = {name: b.clone() for name, b in model.named_buffers()}
    loss, right = 0.0, 0
    with torch.no_grad():
        for batch in zip(*(c.split(size) for c in columns)):
            for part in zip(*(c.tensor_split(replicas) for c in batch)):
                for name, b in model.named_buffers():
                    b.copy_(before[name])
                out = outputs(model, part)
                loss += loss_of(kind, out, part[-1]).item()
                if LOSSES[kind] == "cross_entropy":
                    right += (out.argmax(-1) == part[-1]).sum().item()
        for name, b in model.named_buffers():
            b.copy_(before[name])
    found = {"loss": loss / counted(kind, columns[-1])}
    if LOSSES[kind] == "cross_entropy":
        found["accuracy"] = right / counted(kind, columns[-1])
    return found


@torch.library.custom_op("muster_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)
twice.register_autograd(lambda context, gradient: gradient * 2)


class CustomOperator(nn.Module):
    """An operator that this Python alone has."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 5)

    def forward(self, series):
        return self.head(twice(series))


class WhileLoop(CustomOperator):
    def forward(self, series):
        _, out = while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * 2), (torch.tensor(0), series))
        return self.head(out)


class Scan(CustomOperator):
    def forward(self, series):
        total, _ = scan(lambda carry, x: (carry + x, carry * x), torch.zeros_like(series), torch.stack([series, series]), dim=0)
        return self.head(total)


# The file's name for the node, the line of the user's Python, and the advice.
REFUSED = {
    CustomOperator: ("muster_test.twice", "return self.head(twice(series))", "write it with torch's own operators"),
    WhileLoop: ("higher_order.while_loop", "_, out = while_loop(", "write the model without it"),
    Scan: ("higher_order.scan", "total, _ = scan(", "write the model without it"),
}
