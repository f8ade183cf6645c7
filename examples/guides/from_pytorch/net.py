import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.conv = nn.Conv2d(1, 32, 3)
        self.dense = nn.Linear(32 * 13 * 13, hidden)
        self.output = nn.Linear(hidden, 10)

    def forward(self, images):
        x = F.max_pool2d(F.relu(self.conv(images)), 2)
        return self.output(F.relu(self.dense(x.flatten(1))))
