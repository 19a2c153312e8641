"""From tapes to a graph: each operation on the tape by its converter, each size by an expression of the inputs'."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from xdsl.dialects.builtin import UNKNOWN_LOC, NameLoc
from xdsl.ir import Operation

from irkit.errors import IrkitError, UnsupportedError
from irkit.frontends.keras import adapter
from irkit.frontends.keras.measures import Measures
from irkit.frontends.keras.registry import converter_of
from irkit.frontends.keras.sizes import Dim, dim
from irkit.frontends.keras.trace import Entry, Tape, Tracer, needed
from irkit.frontends.keras.values import FIRST, LAST, Value, to_first
from irkit.ir.attributes import string, unchecked
from irkit.ir.builder import Builder, Tensor, value_of
from irkit.ir.dtypes import dtype as element
from irkit.ir.names import set_node_name
from irkit.ir.types import tensor
from irkit.passes.types import is_fully_known, refine

__all__ = ["Emitter", "NeedsCreations"]

HIDDEN = frozenset({"name", "dtype_policy"})


class NeedsCreations(Exception):
    """An array that was computed while tracing depends on sizes: its making has to be traced too."""


class Emitter(Measures):
    """What converters work with.

    Args:
        tracers: one a trace, all of the same model at different sizes.
        symbols: names of the sizes that differ.
        sizes: per trace the size of each symbol.
        b: the builder of the graph.

    Attributes:
        b: builds at the place that is being worked on.
        out: the first result of the operation at hand: ``shape`` and ``dtype``; ``outs`` has all of them.
        parameters: variables that became initializers, by name.
    """

    def __init__(
        self, tracers: Sequence[Tracer], symbols: Sequence[str], sizes: Sequence[Sequence[int]], b: Builder
    ) -> None:
        super().__init__(symbols, sizes)
        self.tracers = tracers
        self.b = self.root = b
        self.out: Any = None
        self.outs: list[Any] = []
        self.names: dict[int, str] = {}
        self.parameters: dict[str, Any] = {}
        self._values: list[Value] = []
        self._numbers: list[dict[int, int]] = [{} for _ in tracers]
        self._counts: dict[str, int] = {}
        self._variables: dict[int, Value] = {}

    # Symbols of the traces and the values that they stand for

    def bind(self, symbols: Sequence[Any], value: Value) -> None:
        """From now on these symbols, one a trace, stand for a value."""
        number = len(self._values)
        self._values.append(value)
        for numbers, symbol in zip(self._numbers, symbols, strict=True):
            numbers[id(symbol)] = number

    def shape_of(self, symbols: Sequence[Any]) -> tuple[int | Dim, ...]:
        """The shape of symbols, one a trace."""
        if len({len(s.shape) for s in symbols}) > 1:
            raise self._diverges("a tensor's rank differs")
        return tuple(dim(sizes) for sizes in zip(*(s.shape for s in symbols), strict=True))

    def _value(self, symbols: Sequence[Any]) -> Value:
        numbers = [known.get(id(symbol)) for known, symbol in zip(self._numbers, symbols, strict=True)]
        if None in numbers:
            return self._variable(symbols)
        if len(set(numbers)) > 1:
            raise self._diverges("an operand comes from another operation")
        return self._values[numbers[0]]  # type: ignore[index]

    def _variable(self, symbols: Sequence[Any]) -> Value:
        variables = [t.variables.get(id(s)) for t, s in zip(self.tracers, symbols, strict=True)]
        variable = variables[0]
        if variable is None or any(other is not variable for other in variables):
            raise UnsupportedError(
                "a tensor is used that was not made while the model was called",
                where=self._where,
                hint="make all tensors in call, and keep what outlives it in variables",
            )
        found = self._variables.get(id(variable))
        if found is None:
            found = self._variables[id(variable)] = self.parameter(variable)
        self.bind(symbols, found)
        return found

    def parameter(self, variable: Any) -> Value:
        """The initializer that a variable becomes."""
        name = self.name_of(variable)
        self.parameters[name] = variable
        made = self.root.initializer(adapter.to_numpy(variable), name)
        return Value(variable.shape, str(made.dtype), made)

    def known_variable(self, variable: Any, value: Value) -> None:
        """What the value of a variable is at the start, where it is no initializer."""
        self._variables[id(variable)] = value

    def is_boundary(self, made: Tensor) -> bool:
        """Whether a tensor is an input or an initializer of the graph."""
        owner = value_of(made).owner
        return not isinstance(owner, Operation) or owner.name == "onnx.Initializer"

    def name_of(self, variable: Any) -> str:
        """The name of a variable in the graph: its path."""
        if id(variable) not in self.names:
            taken = set(self.names.values())
            names = (f"{variable.path}_{i}" if i else variable.path for i in itertools.count())
            self.names[id(variable)] = next(name for name in names if name not in taken)
        return self.names[id(variable)]

    # Numbers that differ between traces

    def merged(self, parts: Sequence[Any]) -> Any:
        """What an argument is, given what it is in each trace: a value for symbols, a ``Dim`` for what differs."""
        first = parts[0]
        kind = type(first)
        if any(type(p) is not kind for p in parts):
            raise self._diverges(f"an argument is {first!r} in one trace and {parts[-1]!r} in another")
        if adapter.is_symbolic(first):
            value = self._value(parts)
            self._operands.append(value)
            return value
        if isinstance(first, (bool, str, bytes, type(None), np.dtype)):
            return self._same(parts)
        if isinstance(first, (int, np.integer)):
            return dim(tuple(int(p) for p in parts))
        if isinstance(first, (float, complex, np.floating)):
            return self._number(parts)
        if isinstance(first, slice):
            return slice(*(self.merged([getattr(p, at) for p in parts]) for at in ("start", "stop", "step")))
        if isinstance(first, (list, tuple)):
            if len({len(p) for p in parts}) > 1:
                raise self._diverges("a list has another length")
            made = [self.merged(column) for column in zip(*parts, strict=True)]
            return made if isinstance(first, list) else tuple(made)
        if isinstance(first, dict):
            return {key: self.merged([p[key] for p in parts]) for key in first}
        if isinstance(first, Tape):
            return tuple(parts)
        if adapter.is_tensor(first) or isinstance(first, np.ndarray):
            return self._array([adapter.to_numpy(p) for p in parts])
        return first

    def _number(self, parts: Sequence[Any]) -> Any:
        """A number with a fraction; one that differs must be a size, or one over a size."""
        if isinstance(parts[0], complex) or all(p == parts[0] for p in parts) or any(p != p or not p for p in parts):
            return self._same(parts)
        if all(float(p).is_integer() for p in parts):
            return dim(tuple(int(p) for p in parts))
        over = [round(1 / p) for p in parts]
        if all(n and abs(n * p - 1) < 1e-12 for n, p in zip(over, parts, strict=True)):
            size = self.cast(self.b.Squeeze(self.size(Dim(tuple(over))), [0]), "float32")
            return Value((), "float32", self.b.Reciprocal(size), depth=self.b.depth)
        return self._same(parts)

    def _same(self, parts: Sequence[Any]) -> Any:
        if any(p != parts[0] and p == p for p in parts):
            raise UnsupportedError(
                f"it computes with {', '.join(str(p) for p in parts)}, which depends on the size of the input in a way "
                "that could not be told",
                where=self._where,
                hint="fix the size of the input, or compute with keras.ops.shape and keras.ops.cast",
            )
        return parts[0]

    def _array(self, parts: Sequence[np.ndarray]) -> Any:
        if all(p.shape == parts[0].shape and p.dtype == parts[0].dtype for p in parts):
            if all(np.array_equal(p, parts[0], equal_nan=p.dtype.kind in "fc") for p in parts):
                return parts[0]
            if parts[0].ndim <= 1 and all(p.dtype.kind in "iuf" and np.array_equal(p, np.trunc(p)) for p in parts):
                flat = [dim(tuple(int(x) for x in column)) for column in zip(*(p.ravel() for p in parts), strict=True)]
                made = self.vector(flat)
                if parts[0].ndim == 0:
                    made = self.b.Squeeze(made, [0])
                return Value(parts[0].shape, str(parts[0].dtype), self.cast(made, str(parts[0].dtype)))
        if not self.tracers[0].creations:
            raise NeedsCreations
        raise UnsupportedError(
            f"it uses an array of shape {' or '.join(str(p.shape) for p in parts)} that was computed while tracing, "
            "for the size at hand",
            where=self._where,
            hint="compute it with keras.ops from the tensors that are given, or fix the size of the input",
        )

    # Tensors for converters

    def get(self, x: Any, dtype: str | None = None) -> Tensor:
        """An argument as a tensor, axes as Keras has them; of a dtype, where one is given."""
        if isinstance(x, Value):
            return self.cast(x.get(LAST, self.b), dtype)
        return self._given(x, dtype)

    def first(self, x: Any, dtype: str | None = None) -> Tensor:
        """An argument as a tensor with its channels first."""
        if isinstance(x, Value):
            return self.cast(x.get(FIRST, self.b), dtype)
        array = np.asarray(x)
        return self._given(np.transpose(array, to_first(array.ndim)), dtype)

    def cast(self, made: Tensor, dtype: str | None) -> Tensor:
        """A tensor in a dtype."""
        return made if dtype is None or str(made.dtype) == dtype else self.b.Cast(made, to=element(dtype).code)

    def _given(self, x: Any, dtype: str | None) -> Tensor:
        if isinstance(x, Tensor):
            return self.cast(x, dtype)
        if isinstance(x, Dim):
            return self.cast(self.b.Squeeze(self.size(x), [0]), dtype)
        if isinstance(x, (list, tuple)):
            if any(isinstance(leaf, (Value, Dim)) for leaf in adapter.flatten(x)):
                return self.b.Concat(*(self.b.Unsqueeze(self.get(leaf, dtype), [0]) for leaf in x), axis=0)
            x = np.asarray(x)
        if not isinstance(x, np.ndarray | np.generic):
            dtype = dtype or ("bool" if isinstance(x, bool) else "int32" if isinstance(x, int) else "float32")
        array = np.asarray(x)
        if array.dtype == np.float64 and dtype is None and not isinstance(x, np.ndarray | np.generic):
            dtype = "float32"
        return self.b.constant(array, dtype) if dtype is None else self.b.constant(_as(array, dtype))

    def spread(self, fn: Callable[..., Tensor], *args: Any, dtype: str | None = None, out: str | None = None) -> Value:
        """An elementwise operation with broadcasting, in the layout that needs the fewest elements transposed.

        Args:
            fn: makes the op of tensors.
            args: values, arrays or numbers.
            dtype: that the operands are cast to.
            out: the dtype of the result.
        """
        rank = max((x.rank if isinstance(x, Value) else np.ndim(x)) for x in args)
        layout = self.layout(*args)
        if layout == LAST:
            made = fn(*(self.get(x, dtype) for x in args))
        else:
            made = fn(*(self._spread_first(x, rank, dtype) for x in args))
        made = self.cast(made, out)
        shape = broadcast([x.shape if isinstance(x, Value) else np.shape(x) for x in args])
        return Value(shape, str(made.dtype), made, layout=layout, depth=self.b.depth)

    @staticmethod
    def layout(*args: Any) -> str:
        """The layout in which an operation on these needs the fewest elements transposed."""
        rank = max((x.rank if isinstance(x, Value) else np.ndim(x)) for x in args)
        if rank < 3:
            return LAST
        values = [x for x in args if isinstance(x, Value) and x.rank == rank]
        last, first = (sum(x.size for x in values if not x.has(at)) for at in (LAST, FIRST))
        return FIRST if first < last else LAST

    def form(self, x: Any, layout: str, dtype: str | None = None) -> Tensor:
        """An argument as a tensor in a layout."""
        return self.get(x, dtype) if layout == LAST else self.first(x, dtype)

    def _spread_first(self, x: Any, rank: int, dtype: str | None) -> Tensor:
        """An operand of a channels-first operation of a rank: one of lower rank has its axes put where they belong."""
        own = x.rank if isinstance(x, Value) else np.ndim(x)
        if own == 0:
            return self.get(x, dtype)
        if own == rank:
            return self.first(x, dtype)
        if not isinstance(x, Value):
            array = np.asarray(x)
            return self.first(array.reshape((1,) * (rank - own) + array.shape), dtype)
        if own == 1:
            return self.b.Unsqueeze(self.get(x, dtype), np.arange(1, rank - 1))
        full = self.b.Unsqueeze(self.get(x, dtype), np.arange(rank - own))
        return self.b.Transpose(full, perm=to_first(rank))

    def value(self, made: Tensor, layout: str = LAST, index: int = 0) -> Value:
        """A result of the operation at hand."""
        out = self.outs[index]
        return Value(out.shape, str(made.dtype), made, layout=layout, depth=self.b.depth)

    # Running tapes

    def run(self, tapes: Sequence[Tape], inputs: Sequence[Value] = ()) -> list[Any]:
        """Emits what is on a tape, given what its inputs are; returns its outputs: values, arrays, numbers."""
        if inputs:
            for symbols, value in zip(zip(*(t.inputs for t in tapes), strict=True), inputs, strict=True):
                self.bind(symbols, value)
        lists = [needed(tape) for tape in tapes]
        for entries in zip(*lists, strict=False):
            self._entry(entries)
        if len({len(entries) for entries in lists}) > 1:
            raise self._diverges("there are more operations")
        return [self.merged(parts) for parts in zip(*(t.outputs for t in tapes), strict=True)]

    def _entry(self, entries: Sequence[Entry]) -> None:
        entry = entries[0]
        outer = self._where, self._operands, self.out, self.outs, self.b.location
        self._where = f"layer '{entry.path}'" if entry.path else "the model"
        if any(e.kind != entry.kind or e.path != entry.path for e in entries):
            kinds = " or ".join(dict.fromkeys(f"{e.kind} in layer '{e.path}'" for e in entries))
            raise self._diverges(f"{kinds} comes next")
        self._operands = []
        self.b.location = _location(entry.path or entry.kind)
        try:
            args = [self.merged(parts) for parts in zip(*(e.args for e in entries), strict=True)]
            kwargs = {key: self.merged([e.kwargs[key] for e in entries]) for key in entry.kwargs}
            op = SimpleNamespace(**{k: self.merged(parts) for k, parts in _attributes(entries)}, kind=entry.kind)
            results = list(zip(*(adapter.flatten(e.outputs) for e in entries), strict=True))
            self.outs = [SimpleNamespace(shape=self.shape_of(r), dtype=r[0].dtype) for r in results]
            self.out = self.outs[0] if self.outs else None
            before = self.b.block.last_op
            converter = converter_of(entry.kind)
            if converter is None:
                raise self.refusal(
                    f"the operation {entry.kind} has no form in ONNX that we know",
                    "leave it out of the model that is converted, or write it with other operations",
                )
            made = converter(self, op, *args, **kwargs)
            self._finish(results, made, before, entry)
        except IrkitError as error:
            error.op = error.op or f"keras.{entry.kind}"
            error.where = self._where
            raise
        finally:
            self._where, self._operands, self.out, self.outs, self.b.location = outer

    def _finish(self, results: Sequence[Any], made: Any, before: Operation | None, entry: Entry) -> None:
        found = list(made) if isinstance(made, (list, tuple)) else [made]
        for index, (symbols, item) in enumerate(zip(results, found, strict=True)):
            value = item if isinstance(item, Value) else self.value(item, index=index)
            if value.dtype != self.outs[index].dtype:
                value = self._cast_value(value, self.outs[index].dtype)
            self.bind(symbols, value)
            if value.has(LAST) and not value._makers:
                self._tell(value.get(LAST, self.b), self.outs[index].shape)
        op = self.b.block.first_op if before is None else before.next_op
        while op is not None:
            if op.name != "onnx.Constant":
                name = f"{entry.path}/{op.name.removeprefix('onnx.')}" if entry.path else op.name.removeprefix("onnx.")
                count = self._counts[name] = self._counts.get(name, -1) + 1
                set_node_name(op, f"{name}_{count}" if count else name)
            op = op.next_op

    def _cast_value(self, value: Value, dtype: str) -> Value:
        layout = LAST if value.has(LAST) else FIRST
        made = self.cast(value.get(layout, self.b), dtype)
        return Value(value.shape, dtype, made, layout=layout, depth=self.b.depth)

    def _tell(self, made: Tensor, shape: Sequence[int | Dim]) -> None:
        """Adds what the traces say of a shape to what is inferred."""
        if not is_fully_known(value_of(made).type):
            refine(value_of(made), tensor(str(made.dtype), [self.described(d) for d in shape]))

    @contextmanager
    def inside(self, b: Builder) -> Any:
        """While open, converters build in another graph."""
        outer, self.b = self.b, b
        b.location = outer.location
        try:
            yield
        finally:
            self.b = outer


def broadcast(shapes: Sequence[Sequence[int | Dim]]) -> list[int | Dim]:
    """The shape to which shapes are broadcast together."""
    rank = max(len(s) for s in shapes)
    found: list[int | Dim] = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                found[i] = size
    return found


def _as(array: np.ndarray, dtype: str) -> np.ndarray:
    return array.astype(element(dtype).numpy)


def _location(path: str) -> NameLoc:
    return unchecked(NameLoc, desc=string(path), location=UNKNOWN_LOC)


def _attributes(entries: Sequence[Entry]) -> Iterable[tuple[str, list[Any]]]:
    """The attributes of operations, one a trace."""
    for key in vars(entries[0].op):
        if key[0] != "_" and key not in HIDDEN:
            yield key, [getattr(e.op, key) for e in entries]
