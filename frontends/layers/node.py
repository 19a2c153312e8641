"""Symbolic tensors, and nodes: the records of layers being called, by which a model is walked back to its inputs.

The fields are those of the original Keras: a layer that is called once has one node; a shared layer has one a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from irkit.ir.types import Dim

if TYPE_CHECKING:
    from irkit.frontends.layers.layer import Layer

__all__ = ["Node", "Tensor", "flatten", "map_structure"]


class Tensor:
    """What flows between layers: a type, and where it came from.

    Attributes:
        spec: per axis a number, a symbol (``"batch"``), or an expression of symbols.
        dtype: the name of the element type.
        name: for people.
        _keras_history: (layer, index of the layer's node, index among the node's outputs); None for a tensor that no
            layer made.
        _keras_mask: the tensor that says which time steps count, or None.
    """

    __array_ufunc__ = None

    def __init__(self, spec: Sequence[Dim], dtype: str, name: str = "") -> None:
        self.spec: tuple[Dim, ...] = tuple(spec)
        self.dtype = dtype
        self.name = name
        self._keras_history: tuple[Layer, int, int] | None = None
        self._keras_mask: Tensor | None = None

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The sizes, None where one is symbolic."""
        return tuple(d if isinstance(d, int) else None for d in self.spec)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.spec)

    def __repr__(self) -> str:
        return f"<Tensor {self.name}: {self.dtype}[{', '.join('?' if d is None else str(d) for d in self.spec)}]>"

    def __bool__(self) -> bool:
        raise TypeError("a Tensor of layers has no value yet; a Lambda layer can hold a Where or an If")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a Tensor of layers cannot be iterated over; a Lambda layer can hold a Split")

    def _call(self, op: str, *operands: Any) -> Any:
        from irkit.frontends.layers.core import Operation

        return Operation(op)(*operands)

    def __add__(self, other: Any) -> Any:
        return self._call("Add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._call("Add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._call("Sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._call("Sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._call("Mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._call("Mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._call("Div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._call("Div", other, self)

    def __pow__(self, other: Any) -> Any:
        return self._call("Pow", self, other)

    def __matmul__(self, other: Any) -> Any:
        return self._call("MatMul", self, other)

    def __neg__(self) -> Any:
        return self._call("Neg", self)


@dataclass(eq=False)
class Node:
    """One call of a layer.

    Attributes:
        outbound_layer: the layer that was called.
        inbound_layers: the layers that made the input tensors; None for one that has no history.
        node_indices: which call of each inbound layer that was.
        tensor_indices: which output of that call.
        input_tensors, output_tensors: in order.
        input_masks, output_masks: per tensor its mask, or None.
        input_shapes, output_shapes: per tensor its sizes, None where one is symbolic.
        arguments: of the call, tensors left out.
        structure: the call's positional and keyword arguments, with the tensors in their places.
        outputs: what the call returned, with the tensors in their places.
    """

    outbound_layer: Layer
    inbound_layers: list[Layer | None]
    node_indices: list[int | None]
    tensor_indices: list[int | None]
    input_tensors: list[Tensor]
    output_tensors: list[Tensor]
    input_masks: list[Tensor | None]
    output_masks: list[Tensor | None]
    input_shapes: list[tuple[int | None, ...]]
    output_shapes: list[tuple[int | None, ...]]
    arguments: dict[str, Any]
    structure: tuple[tuple[Any, ...], dict[str, Any]]
    outputs: Any

    @classmethod
    def record(cls, layer: Layer, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> Node:
        """Notes a call, and gives the outputs their history."""
        inputs, made = flatten((args, kwargs)), flatten(outputs)
        past = [t._keras_history or (None, None, None) for t in inputs]
        node = cls(
            outbound_layer=layer,
            inbound_layers=[p[0] for p in past],
            node_indices=[p[1] for p in past],
            tensor_indices=[p[2] for p in past],
            input_tensors=inputs,
            output_tensors=made,
            input_masks=[t._keras_mask for t in inputs],
            output_masks=[t._keras_mask for t in made],
            input_shapes=[t.shape for t in inputs],
            output_shapes=[t.shape for t in made],
            arguments={k: v for k, v in kwargs.items() if not flatten(v)},
            structure=(args, kwargs),
            outputs=outputs,
        )
        for index, tensor in enumerate(made):
            tensor._keras_history = (layer, len(layer._inbound_nodes), index)
        layer._inbound_nodes.append(cast(Any, node))
        for inbound in {id(x): x for x in node.inbound_layers if x is not None}.values():
            inbound._outbound_nodes.append(cast(Any, node))
        return node

    @property
    def index(self) -> int:
        """Which call of its layer this is."""
        return self.outbound_layer._inbound_nodes.index(cast(Any, self))

    def describe(self) -> str:
        """The node for people: a line per field."""
        lines = [f"node {self.index} of layer '{self.outbound_layer.name}'"]
        names = [None if layer is None else layer.name for layer in self.inbound_layers]
        for field, value in (
            ("inbound_layers", names),
            ("node_indices", self.node_indices),
            ("tensor_indices", self.tensor_indices),
            ("input_tensors", [t.name for t in self.input_tensors]),
            ("output_tensors", [t.name for t in self.output_tensors]),
            ("input_masks", [None if m is None else m.name for m in self.input_masks]),
            ("output_masks", [None if m is None else m.name for m in self.output_masks]),
            ("input_shapes", self.input_shapes),
            ("output_shapes", self.output_shapes),
            ("arguments", self.arguments),
        ):
            lines.append(f"  {field:<16}{value}")
        return "\n".join(lines)


def flatten(structure: Any) -> list[Tensor]:
    """The symbolic tensors in nested lists, tuples and dicts, in order (dicts in the order of their keys)."""
    match structure:
        case Tensor():
            return [structure]
        case list() | tuple():
            return [t for item in structure for t in flatten(item)]
        case Mapping():
            return [t for item in structure.values() for t in flatten(item)]
        case _:
            return []


def map_structure(function: Any, structure: Any) -> Any:
    """The structure with a function applied to everything in it that is no list, tuple or dict."""
    match structure:
        case list():
            return [map_structure(function, item) for item in structure]
        case tuple():
            return tuple(map_structure(function, item) for item in structure)
        case Mapping():
            return {key: map_structure(function, item) for key, item in structure.items()}
        case _:
            return function(structure)
