import numpy as np
import torch

from pyruntime import InferenceSession

model = torch.nn.Sequential(  # your model
    torch.nn.Conv2d(3, 8, 3, stride=2),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(8, 10),
).eval()  # or else Dropout and BatchNorm behave as in training

image = torch.rand(2, 3, 64, 64)  # an example; a batch of one would make the free dim fixed
torch.onnx.export(
    model, (image,), "model.onnx", dynamo=True, input_names=["image"], output_names=["logits"],
    dynamic_shapes=({0: "batch"},), external_data=False,
)  # fmt: skip

(logits,) = InferenceSession("model.onnx").run(None, {"image": image.numpy()})
np.testing.assert_allclose(logits, model(image).detach().numpy(), rtol=1e-3, atol=1e-5)
