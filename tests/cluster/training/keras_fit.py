"""Keras' Model.fit on what the program `linear` trains, with its callbacks: what callbacks_test.py compares with.

Reads a JSON object from standard input: the folder of x.npy, y.npy, val_x.npy and val_y.npy, kernel, bias, rate, batch, epochs, and
lists, each of callbacks, as a job lists them. Fits a new model with each list, all in this process, as Keras takes longer to import
than to fit. Writes an array with an object for each: the logs and the rate of each epoch, the files that ModelCheckpoint left, and the
weights.
"""
import json
import os
import pathlib
import sys
import tempfile

os.environ["KERAS_BACKEND"] = "torch"
sys.modules["sklearn"] = None  # Keras does without it; else it imports it, for wrappers that are not used here
import keras  # noqa: E402
import numpy  # noqa: E402

L2 = 1e-4


class Linear(keras.Model):
    """The penalty is part of the objective, and not of what an evaluation tells."""

    def __init__(self, kernel, bias):
        super().__init__()
        constant = keras.initializers.Constant
        self.unit = keras.layers.Dense(1, kernel_initializer=constant(kernel), bias_initializer=constant(bias))

    def call(self, x):
        return self.unit(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + L2 * keras.ops.sum(self.unit.kernel**2) if training else loss


class Rates(keras.callbacks.Callback):
    """The rate of each epoch's last step: before the callbacks at its end, so it stands first."""

    def __init__(self):
        super().__init__()
        self.rates = []

    def on_epoch_end(self, epoch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))


class Saved(keras.callbacks.ModelCheckpoint):
    """ModelCheckpoint that notes names and weights, in the place of a file that a model of one's own would need a config for."""

    def __init__(self, **keys):
        super().__init__(**{**keys, "filepath": keys["filepath"].replace(".safetensors", ".weights.h5")})
        self.names = []

    def _save_model(self, epoch, batch, logs):
        path = self._get_file_path(epoch, batch, logs)
        if self._should_save_model(epoch, batch, logs, path):
            self.names.append([path.replace(".weights.h5", ".safetensors"), weights(self.model)])


def weights(model):
    return [w.tolist() for w in model.get_weights()]


def make(entry, saved):
    keys = {k: v for k, v in entry.items() if k != "name"}
    if entry["name"] == "early_stopping":
        return keras.callbacks.EarlyStopping(**keys)
    if entry["name"] == "reduce_lr_on_plateau":
        return keras.callbacks.ReduceLROnPlateau(**keys)
    if entry["name"] == "learning_rate_scheduler":
        values = {int(k): v for k, v in keys["values"].items()}
        return keras.callbacks.LearningRateScheduler(
            lambda epoch, rate: values[max(k for k in values if k <= epoch)] if min(values) <= epoch else rate)
    if entry["name"] == "model_checkpoint":
        saved.append(Saved(**{**keys, "save_weights_only": True}))
        return saved[-1]
    if entry["name"] == "csv_logger":
        return keras.callbacks.CSVLogger(**keys)
    raise ValueError(entry["name"])


def fit(spec, data, entries):
    model = Linear(spec["kernel"], spec["bias"])
    model.compile(optimizer=keras.optimizers.SGD(spec["rate"]), loss=keras.losses.BinaryCrossentropy(from_logits=True))
    saved, rates = [], Rates()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        callbacks = [rates] + [make(entry, saved) for entry in entries]
        history = model.fit(data["x"], data["y"][:, None], batch_size=spec["batch"], epochs=spec["epochs"], shuffle=False, verbose=0,
                            validation_data=(data["val_x"], data["val_y"][:, None]), callbacks=callbacks)
        csv = {path.name: path.read_text() for path in pathlib.Path(".").glob("*.csv")}
        os.chdir("/")
    logs = history.history
    return {"loss": logs["loss"], "val_loss": logs["val_loss"], "rates": rates.rates, "weights": weights(model), "csv": csv,
            "saved": [callback.names for callback in saved]}


def main():
    spec = json.load(sys.stdin)
    folder = pathlib.Path(spec["folder"])
    data = {name: numpy.load(folder / f"{name}.npy") for name in ("x", "y", "val_x", "val_y")}
    json.dump([fit(spec, data, entries) for entries in spec["lists"]], sys.stdout)


if __name__ == "__main__":
    main()
