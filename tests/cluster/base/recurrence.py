"""The losses of the program `linear`, computed in double precision: what tests compare training with."""
import numpy

RATE, L2, BATCH = 0.01, 1e-4, 5


def recurrence(kernel, bias, x, y, steps, batch=BATCH, reduction="global", replicas=1):
    """The loss before each update, by the formulas."""
    n, at, out = len(x), 0, []
    for _ in range(steps):
        end = min(at + batch, n)
        count = end - at
        # The weight of an example: replica r has a contiguous slice, the first (count mod R) get one more.
        weights = numpy.empty(count)
        begin = 0
        for r in range(replicas):
            size = count // replicas + (r < count % replicas)
            weights[begin:begin + size] = {"global": 1 / count, "nominal": 1 / batch, "local_mean": 1 / (replicas * max(size, 1))}[reduction]
            begin += size
        z = kernel * x[at:end] + bias
        # Sigmoid cross-entropy from logits, in its stable form.
        loss = numpy.maximum(z, 0) - z * y[at:end] + numpy.log1p(numpy.exp(-numpy.abs(z)))
        out.append(float((weights * loss).sum() + L2 * kernel**2))
        slope = weights * (1 / (1 + numpy.exp(-z)) - y[at:end])
        kernel, bias = kernel - RATE * ((slope * x[at:end]).sum() + 2 * L2 * kernel), bias - RATE * slope.sum()
        at = 0 if end == n else end
    return out
