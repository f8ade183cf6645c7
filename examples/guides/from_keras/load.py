import gzip

import keras
import numpy
from safetensors.torch import load_file

from model import make_model

path = "/usr/share/datasets/fashion-mnist/t10k-"
with gzip.open(path + "images-idx3-ubyte.gz") as file:
    images = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 28, 28, 1)
with gzip.open(path + "labels-idx1-ubyte.gz") as file:
    labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8).astype(numpy.int64)

model = make_model()
model.load_state_dict(load_file("fashion.safetensors"))
model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
loss, accuracy = model.evaluate(images / numpy.float32(255), labels, verbose=0)
print("Eval loss: {:.6f}, Eval accuracy: {:.4f}".format(loss, accuracy))
model.save("fashion.keras")

numpy.save("images.npy", images[:4])
print(model.predict(images[:4] / numpy.float32(255), verbose=0).argmax(1))
