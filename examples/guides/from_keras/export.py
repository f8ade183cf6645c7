import torch

from model import make_model

make_model().export("model.pt2", format="torch", strict=True,
                    dynamic_shapes={0: torch.export.Dim("batch", min=1)})
