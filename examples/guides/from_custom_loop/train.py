import gzip

import numpy
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]  # two replicas on a host without GPUs
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

# 1. Strategy
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
print("Number of devices: {}".format(strategy.num_replicas_in_sync))

# 2. Data
GLOBAL_BATCH_SIZE = 64 * strategy.num_replicas_in_sync


def load(name):
    path = "/usr/share/datasets/fashion-mnist/" + name
    with gzip.open(path + "-images-idx3-ubyte.gz") as file:
        images = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 28, 28, 1)
    with gzip.open(path + "-labels-idx1-ubyte.gz") as file:
        labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8).astype(numpy.int64)
    return tf.data.Dataset.from_tensor_slices((images / numpy.float32(255), labels))


train_dataset = strategy.experimental_distribute_dataset(load("train").shuffle(60000).batch(GLOBAL_BATCH_SIZE))
test_dataset = strategy.experimental_distribute_dataset(load("t10k").batch(GLOBAL_BATCH_SIZE))

with strategy.scope():
    # 3. Per-replica loss
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def compute_loss(labels, predictions):
        per_example_loss = loss_object(labels, predictions)
        return tf.nn.compute_average_loss(per_example_loss, global_batch_size=GLOBAL_BATCH_SIZE)

    test_loss = tf.keras.metrics.Mean()
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy()

    # 4. Model, optimizer and checkpoint
    model = tf.keras.Sequential([
        tf.keras.layers.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Conv2D(64, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10),
    ])
    optimizer = tf.keras.optimizers.Adam(learning_rate=0.001)
    optimizer.build(model.trainable_variables)  # Keras 3: variables are made outside of tf.function
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)


# 5. Distributed step
def train_step(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = compute_loss(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_accuracy.update_state(labels, predictions)
    return loss


def test_step(inputs):
    images, labels = inputs
    predictions = model(images, training=False)
    test_loss.update_state(loss_object(labels, predictions))
    test_accuracy.update_state(labels, predictions)


# 6. Reduced values
@tf.function
def distributed_train_step(inputs):
    per_replica_losses = strategy.run(train_step, args=(inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


@tf.function
def distributed_test_step(inputs):
    strategy.run(test_step, args=(inputs,))


for epoch in range(3):
    total_loss, num_batches = 0.0, 0
    for inputs in train_dataset:
        total_loss += distributed_train_step(inputs)
        num_batches += 1
    for inputs in test_dataset:
        distributed_test_step(inputs)
    checkpoint.save("training_checkpoints/ckpt")
    print("Epoch {}, Loss: {:.4f}, Accuracy: {:.2f}, Test Loss: {:.4f}, Test Accuracy: {:.2f}".format(
        epoch + 1, total_loss / num_batches, train_accuracy.result() * 100, test_loss.result(),
        test_accuracy.result() * 100), flush=True)
    test_loss.reset_state()
    train_accuracy.reset_state()
    test_accuracy.reset_state()
