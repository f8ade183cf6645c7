import gzip
import os

import numpy
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]  # two replicas on a host without GPUs
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
print("Number of devices: {}".format(strategy.num_replicas_in_sync))

FOLDER = "/usr/share/datasets/fashion-mnist/"


def load(name):
    with gzip.open(FOLDER + name + "-images-idx3-ubyte.gz") as file:
        images = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 28, 28, 1)
    with gzip.open(FOLDER + name + "-labels-idx1-ubyte.gz") as file:
        labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8).astype(numpy.int64)
    return tf.data.Dataset.from_tensor_slices((images, labels))


BATCH_SIZE_PER_REPLICA = 64
BATCH_SIZE = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync


def scale(image, label):
    return tf.cast(image, tf.float32) / 255, label


train_dataset = load("train").map(scale).cache().shuffle(10000).batch(BATCH_SIZE)
eval_dataset = load("t10k").map(scale).batch(BATCH_SIZE)

with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10),
    ])
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  optimizer=tf.keras.optimizers.Adam(learning_rate=0.001),
                  metrics=["accuracy"])


def decay(epoch):
    if epoch < 3:
        return 1e-3
    if epoch < 7:
        return 1e-4
    return 1e-5


class PrintLR(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("\nLearning rate for epoch {} is {}".format(epoch + 1, model.optimizer.learning_rate.numpy()))


callbacks = [
    tf.keras.callbacks.TensorBoard(log_dir="logs"),
    tf.keras.callbacks.ModelCheckpoint("training_checkpoints/ckpt_{epoch}.weights.h5", save_weights_only=True),
    tf.keras.callbacks.LearningRateScheduler(decay),
    PrintLR(),
]
os.makedirs("training_checkpoints", exist_ok=True)
model.fit(train_dataset, epochs=12, callbacks=callbacks, verbose=2)

model.load_weights("training_checkpoints/ckpt_12.weights.h5")
eval_loss, eval_acc = model.evaluate(eval_dataset, verbose=2)
print("Eval loss: {}, Eval accuracy: {}".format(eval_loss, eval_acc))

model.save("mnist_model.keras")

unreplicated_model = tf.keras.models.load_model("mnist_model.keras")
eval_loss, eval_acc = unreplicated_model.evaluate(eval_dataset, verbose=2)
print("Eval loss: {}, Eval accuracy: {}".format(eval_loss, eval_acc))

with strategy.scope():
    replicated_model = tf.keras.models.load_model("mnist_model.keras")
    eval_loss, eval_acc = replicated_model.evaluate(eval_dataset, verbose=2)
    print("Eval loss: {}, Eval accuracy: {}".format(eval_loss, eval_acc))

predictions = unreplicated_model.predict(eval_dataset.take(1), verbose=2)
print(predictions.shape, predictions[:4].argmax(1))
