"""Writes the models of ``exported/``: what PyTorch's two exporters make of common layers. Needs torch and onnxscript.

    python tests/unit/rules/export_with_torch.py

Names of files: the layer, then ``ts`` for the TorchScript exporter or ``dynamo`` for the newer one, then the opset. Doc
strings and metadata, which hold paths of the machine, are left out. Parameters are random, so that none is trivial.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import torch
import torch.nn.functional as F
from torch import nn

FOLDER = Path(__file__).parent / "exported"


class Layer(nn.Module):
    """A function of modules and inputs."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(parts)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*self.parts, *inputs)


class RMSNorm(nn.Module):
    """As Hugging Face writes it for Llama."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(kind)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def rotary(q: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    both = torch.cat((angles, angles), -1)
    return q * both.cos().unsqueeze(1) + rotate_half(q) * both.sin().unsqueeze(1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.shape[-1])
    return torch.matmul(F.softmax(scores, dim=-1), v)


def masked_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5 + mask
    return torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)


def new_gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


IMAGE, ROWS, HEADS = torch.randn(2, 4, 6, 6), torch.randn(2, 5, 8), torch.randn(2, 3, 5, 8)
MASK, ANGLES, LABELS = torch.randn(2, 1, 5, 5), torch.randn(2, 5, 4), torch.tensor([1, 0, 3])


def apply(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(x)


def chain(first: nn.Module, second: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return second(first(x))


LAYERS: dict[str, tuple[Layer, tuple[torch.Tensor, ...]]] = {
    "gelu": (Layer(F.gelu), (ROWS,)),
    "gelu_tanh": (Layer(lambda x: F.gelu(x, approximate="tanh")), (ROWS,)),
    "new_gelu": (Layer(new_gelu), (ROWS,)),
    "quick_gelu": (Layer(lambda x: x * torch.sigmoid(1.702 * x)), (ROWS,)),
    "silu": (Layer(F.silu), (ROWS,)),
    "hardswish": (Layer(F.hardswish), (ROWS,)),
    "mish": (Layer(F.mish), (ROWS,)),
    "layer_norm": (Layer(apply, nn.LayerNorm(8)), (ROWS,)),
    "rms_norm": (Layer(apply, RMSNorm(8)), (ROWS,)),
    "group_norm": (Layer(apply, nn.GroupNorm(2, 4)), (IMAGE,)),
    "sdpa": (Layer(F.scaled_dot_product_attention), (HEADS, HEADS, HEADS)),
    "attention": (Layer(attention), (HEADS, HEADS, HEADS)),
    "masked_attention": (Layer(masked_attention), (HEADS, HEADS, HEADS, MASK)),
    "rotary": (Layer(rotary), (HEADS, ANGLES)),
    "conv_bn": (Layer(chain, nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6)), (IMAGE,)),
    "conv_transpose_bn": (Layer(chain, nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)), (IMAGE,)),
    "linear": (Layer(apply, nn.Linear(8, 4)), (ROWS[0],)),
    "log_softmax": (Layer(lambda x: F.log_softmax(x, -1)), (ROWS,)),
    "cross_entropy": (Layer(lambda x: F.cross_entropy(x, LABELS)), (torch.randn(3, 4),)),
}


def exports(layer: Layer, inputs: tuple[torch.Tensor, ...]) -> Iterator[tuple[str, onnx.ModelProto]]:
    """What the exporters make of a layer, by the end of the file's name."""
    for opset in (13, 17):
        file = io.BytesIO()
        try:
            torch.onnx.export(layer, inputs, file, opset_version=opset, dynamo=False, do_constant_folding=False)
        except torch.onnx.errors.UnsupportedOperatorError:
            continue
        yield f"ts{opset}", onnx.load_from_string(file.getvalue())
    yield "dynamo18", torch.onnx.export(layer, inputs, opset_version=18, dynamo=True, verbose=False).model_proto


def strip(model: onnx.ModelProto) -> None:
    """Takes out what names the machine."""
    del model.metadata_props[:], model.graph.metadata_props[:]
    model.producer_name = "pytorch"
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info, *model.graph.initializer):
        del value.metadata_props[:]


def main() -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    for name, (layer, inputs) in LAYERS.items():
        layer.eval()
        with torch.no_grad():
            for key, tensor in layer.state_dict().items():
                if tensor.is_floating_point():
                    tensor.copy_(torch.rand_like(tensor) + 0.5 if "var" in key else torch.randn_like(tensor))
        for suffix, model in exports(layer, inputs):
            strip(model)
            (FOLDER / f"{name}.{suffix}.onnx").write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
