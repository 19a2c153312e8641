"""Writes the models beside it: small transformers with symbolic sizes as torch's two exporters write them.

Needs torch and onnxscript, which the tests themselves do not: ``python tests/corpus/exported/make.py``.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx
import torch
from torch import nn

HERE = Path(__file__).parent
WIDTH, HEADS = 8, 2


class Layer(nn.Module):
    """Attention and a feed-forward net, each with a residual and a norm. torch's own layer exports a fixed length."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, -1).transpose(1, 2).reshape(batch * HEADS, length, -1)
            for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)) / (WIDTH // HEADS) ** 0.5, dim=-1)
        mixed = torch.bmm(weights, v).view(batch, HEADS, length, -1).transpose(1, 2)
        x = x + self.out(mixed.reshape(batch, length, -1))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    """Embeddings, learned positions, two layers, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(20, WIDTH), nn.Embedding(32, WIDTH)
        self.layers = nn.Sequential(Layer(), Layer())
        self.head = nn.Linear(WIDTH, 20)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        at = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.layers(self.tokens(ids) + self.positions(at)[None]))


class Decoder(nn.Module):
    """Causal attention over a cache of keys and values, which it gives back with what is new."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor, past_k: torch.Tensor, past_v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch, length, _ = x.shape
        q, k, v = (f(x).view(batch, length, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        total = k.shape[2]
        seen = torch.ones(total, total, dtype=torch.bool).tril()[total - length : total]
        scores = (q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5).masked_fill(~seen, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, WIDTH)), k, v


def export(model: nn.Module, args: tuple[torch.Tensor, ...], name: str, axes: dict[str, dict[int, str]]) -> None:
    """Exports by tracing through torch.export, and through TorchScript; paths of this machine are taken out."""
    model.eval()
    for style in ("dynamo", "script"):
        file = HERE / f"{name}_{style}.onnx"
        if style == "dynamo":
            sizes = {"seq": torch.export.Dim("seq", max=32)}
            shapes = {n: {a: sizes.get(s) or torch.export.Dim(s) for a, s in d.items()} for n, d in axes.items()}
            torch.onnx.export(model, args, file, dynamo=True, dynamic_shapes=shapes, external_data=False)
        else:
            torch.onnx.export(model, args, file, dynamo=False, dynamic_axes=axes, input_names=list(axes))
        found = onnx.load(file)
        for node in found.graph.node:
            node.ClearField("metadata_props")
            node.ClearField("doc_string")
        for info in (*found.graph.value_info, *found.graph.input, *found.graph.output):
            info.ClearField("metadata_props")
        found.ClearField("metadata_props")
        onnx.save(found, file)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    cache = torch.randn(2, HEADS, 5, WIDTH // HEADS)
    export(Encoder(), (torch.randint(0, 20, (2, 7)),), "encoder", {"ids": {0: "batch", 1: "seq"}})
    past = {0: "batch", 2: "past"}
    export(
        Decoder(),
        (torch.randn(2, 3, WIDTH), cache, cache),
        "decoder",
        {"x": {0: "batch", 1: "seq"}, "past_k": past, "past_v": past},
    )
