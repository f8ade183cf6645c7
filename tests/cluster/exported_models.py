"""Models that Python exports and two members of Muster train, with their data and what Python gets alone."""
import numpy
import torch
from torch import nn

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


EXAMPLES, BATCH = 22, 8  # batches of 8, 8, 6


def data(kind):
    """The columns by name; the last one is the target."""
    r = numpy.random.default_rng(5)
    if kind == "convnet":
        return {"image": r.normal(size=(EXAMPLES, 1, 12, 12)).astype("f4"), "target": r.integers(0, 10, EXAMPLES)}
    if kind == "transformer":
        return {"tokens": r.integers(0, 20, (EXAMPLES, 7)), "target": r.integers(0, 20, (EXAMPLES, 7))}
    if kind == "recurrent":
        return {"series": r.normal(size=(EXAMPLES, 9, 3)).astype("f4"), "target": r.integers(0, 5, EXAMPLES)}
    columns = {name: r.normal(size=(EXAMPLES, 6)).astype("f4") for name in ("left", "right", "target")}
    return columns


CLASSES = {"convnet": Convnet, "transformer": Transformer, "recurrent": Recurrent, "two": Two}
LOSSES = {"convnet": "cross_entropy", "transformer": "cross_entropy", "recurrent": "cross_entropy", "two": "mean_squared_error"}


def make(kind, dropout=0.0):
    torch.manual_seed(3)
    return CLASSES[kind](dropout)


def export(kind, path, dropout=0.0):
    """Writes the model, exported for another batch (and sequence) than the one that it is trained with."""
    batch, length = Dim("batch", min=1, max=4096), Dim("length", min=2, max=32)
    arguments, shapes = {
        "convnet": ((torch.randn(3, 1, 12, 12),), ({0: batch},)),
        "transformer": ((torch.zeros(3, 5, dtype=torch.long),), ({0: batch, 1: length},)),
        "recurrent": ((torch.randn(3, 9, 3),), ({0: batch},)),
        "two": ((torch.randn(3, 6), torch.randn(3, 6)), ({0: batch}, {0: batch})),
    }[kind]
    model = make(kind, dropout).train()
    torch.export.save(torch.export.export(model, arguments, dynamic_shapes=shapes), str(path))
    return model


def outputs(model, batch):
    out = model(*batch[:-1])
    return out["out"] if isinstance(out, dict) else out


def loss_of(kind, out, target):
    """One value for each example."""
    if LOSSES[kind] == "mean_squared_error":
        return (out - target).square().flatten(1).mean(1)
    return nn.functional.cross_entropy(out.flatten(0, -2), target.flatten(), reduction="none").reshape(len(target), -1).mean(1)


def train_alone(kind, model, steps, rate, replicas=2):
    """The losses before each update, and the model as it is after them, by the rules of synchronous training."""
    torch.set_num_threads(1)
    columns = [torch.from_numpy(c) for c in data(kind).values()]
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
            loss = loss_of(kind, outputs(model, batch), batch[-1]).sum() / count
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


def evaluate(kind, model, replicas=1):
    """Mean loss and accuracy of the whole data in evaluation mode. Each replica's part of each batch begins with the
    buffers that training left: what the model writes meanwhile is dropped."""
    columns = [torch.from_numpy(c) for c in data(kind).values()]
    model.eval()
    before = {name: b.clone() for name, b in model.named_buffers()}
    loss, right = 0.0, 0
    with torch.no_grad():
        for batch in zip(*(c.split(BATCH) for c in columns)):
            for part in zip(*(c.tensor_split(replicas) for c in batch)):
                for name, b in model.named_buffers():
                    b.copy_(before[name])
                out = outputs(model, part)
                loss += loss_of(kind, out, part[-1]).sum().item()
                if LOSSES[kind] == "cross_entropy":
                    right += (out.argmax(-1) == part[-1]).sum().item()
        for name, b in model.named_buffers():
            b.copy_(before[name])
    found = {"loss": loss / EXAMPLES}
    if LOSSES[kind] == "cross_entropy":
        found["accuracy"] = right / columns[-1].numel()
    return found
