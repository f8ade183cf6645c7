import keras
import torch


class Training(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x, training=True)


model = keras.Sequential([
    keras.layers.Input((28, 28, 1)),
    keras.layers.Flatten(),
    keras.layers.Dense(64, activation="relu"),
    keras.layers.Dropout(0.5),
    keras.layers.Dense(10),
])
program = torch.export.export(Training(model), (torch.zeros(8, 28, 28, 1),), strict=True,
                              dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
torch.export.save(program, "model.pt2")
