import torch

from net import Net

torch.manual_seed(0)
batch = torch.export.Dim("batch", min=1)
program = torch.export.export(Net().train(), (torch.zeros(8, 1, 28, 28),), dynamic_shapes=({0: batch},))
torch.export.save(program, "net.pt2")
