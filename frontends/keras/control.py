"""Operations that call functions of the user: branches and loops, each function traced once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from irkit.frontends.keras import adapter
from irkit.frontends.keras.trace import OPERATIONS, Tape, Tracer, like, symbols_like

__all__ = ["scan"]


def scan(
    tracer: Tracer,
    step: Callable[[list[Any], list[Any]], tuple[Sequence[Any], Sequence[Any]]],
    carried: Sequence[Any],
    xs: Sequence[Any],
    *,
    reverse: bool = False,
    restore: bool = True,
    length: int | None = None,
) -> tuple[list[Any], list[Any]]:
    """A loop over the first axis of tensors.

    Args:
        step: takes the tensors carried and a slice of each of ``xs``; returns what is carried on, and what each step
            adds to stacked results.
        reverse: whether the last slice comes first.
        restore: whether results are then stacked from the end, so that each stands where its slice stood.

    Returns:
        what was carried last, and the stacked results.
    """
    carried = [_tensor(v) for v in carried]
    states = symbols_like(carried)
    items = [adapter.symbol(x.shape[1:], adapter.dtype_name(x.dtype)) for x in xs]

    def run(*symbols: Any) -> Any:
        new, out = step(list(symbols[: len(states)]), list(symbols[len(states) :]))
        ops = adapter.api().ops
        kept = [
            v if adapter.dtype_name(v.dtype) == s.dtype else ops.cast(v, s.dtype)
            for v, s in zip(new, states, strict=True)
        ]
        return kept, list(out)

    tape, (_, out) = tracer.body(run, [*states, *items])
    size: Any = xs[0].shape[0] if xs else length
    stacked = [adapter.symbol((size, *y.shape), adapter.dtype_name(y.dtype)) for y in out]
    finals = symbols_like(states)
    tracer.primitive(
        "scan",
        (list(carried), list(xs)),
        [*finals, *stacked],
        body=tape,
        reverse=bool(reverse),
        restore=bool(restore),
        length=size,
    )
    return finals, stacked


def _tensor(value: Any) -> Any:
    return value if hasattr(value, "shape") else adapter.to_numpy(adapter.api().ops.convert_to_tensor(value))


def hook(*names: str) -> Callable[[Any], Any]:
    """Registers how an operation is traced."""

    def register(fn: Any) -> Any:
        for name in names:
            OPERATIONS[name] = fn
        return fn

    return register


@hook("Cond")
def _cond(tracer: Tracer, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = dict(zip(("pred", "true_fn", "false_fn"), args, strict=False)) | kwargs
    return _branches(tracer, names["pred"], [names["false_fn"], names["true_fn"]], "if")


@hook("Switch")
def _switch(tracer: Tracer, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    index, branches, *operands = args
    if not adapter.is_symbolic(index):
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)
    return _branches(tracer, index, [lambda f=f: f(*operands) for f in branches], "switch")


def _branches(tracer: Tracer, chosen: Any, functions: Sequence[Callable[[], Any]], name: str) -> Any:
    if not adapter.is_symbolic(chosen):
        return functions[int(bool(chosen))]()
    tapes: list[Tape] = []
    returned: Any = None
    for function in functions:
        tape, returned = tracer.body(function, [])
        tapes.append(tape)
    outputs = adapter.map_tree(lambda v: None if v is None else like(_tensor(v)), returned)
    return tracer.primitive(name, (chosen,), outputs, branches=tapes)


@hook("WhileLoop")
def _while(tracer: Tracer, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    structure = args[0] if args else kwargs["loop_vars"]
    start = [_tensor(v) for v in adapter.flatten(structure)]
    symbols = symbols_like(start)
    several = isinstance(structure, (list, tuple))

    def call(function: Any) -> Any:
        def run(*given: Any) -> Any:
            packed = adapter.pack_like(structure, list(given))
            return function(*packed) if several else function(packed)

        return run

    test, _ = tracer.body(call(op.cond), symbols)
    body, _ = tracer.body(call(op.body), symbols_like(start))
    outputs = symbols_like(start)
    tracer.primitive("while", (start,), outputs, test=test, body=body, limit=op.maximum_iterations)
    return adapter.pack_like(structure, outputs)


@hook("ForiLoop")
def _fori(tracer: Tracer, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    structure = args[0] if args else kwargs["init_val"]
    start = [_tensor(v) for v in adapter.flatten(structure)]

    def run(index: Any, *given: Any) -> Any:
        return op.body_fun(index, adapter.pack_like(structure, list(given)))

    body, _ = tracer.body(run, [adapter.symbol((), "int32"), *symbols_like(start)])
    outputs = symbols_like(start)
    tracer.primitive("for", (op.lower, op.upper, start), outputs, body=body)
    return adapter.pack_like(structure, outputs)


@hook("Scan")
def _scan(tracer: Tracer, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = {"xs": None, **dict(zip(("f", "init", "xs"), args, strict=False)), **kwargs}
    f, init, xs = given["f"], given["init"], given["xs"]
    leaves = [] if xs is None else adapter.flatten(xs)
    out: list[Any] = []

    def step(states: list[Any], items: list[Any]) -> Any:
        carry, y = f(adapter.pack_like(init, states), None if xs is None else adapter.pack_like(xs, items))
        out[:] = [y]
        return adapter.flatten(carry), [] if y is None else adapter.flatten(y)

    finals, stacked = scan(tracer, step, adapter.flatten(init), leaves, reverse=op.reverse, length=op.length)
    return adapter.pack_like(init, finals), None if out[0] is None else adapter.pack_like(out[0], stacked)


@hook("Map", "VectorizedMap")
def _map(tracer: Tracer, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    f, xs = (op.function, args[0]) if type(op).__name__ == "VectorizedMap" else args
    out: list[Any] = []

    def step(states: list[Any], items: list[Any]) -> Any:
        out[:] = [f(adapter.pack_like(xs, items))]
        return [], adapter.flatten(out[0])

    _, stacked = scan(tracer, step, [], adapter.flatten(xs))
    return adapter.pack_like(out[0], stacked)


@hook("AssociativeScan")
def _associative(tracer: Tracer, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One after the other: the first element, then each joined to what is there already."""
    f, elems = args
    ops = adapter.api().ops
    leaves = [ops.moveaxis(x, op.axis, 0) if op.axis else x for x in adapter.flatten(elems)]
    ends = [ops.get_item(x, -1 if op.reverse else 0) for x in leaves]
    rest = [x[:-1] if op.reverse else x[1:] for x in leaves]

    def step(states: list[Any], items: list[Any]) -> Any:
        new = adapter.flatten(f(adapter.pack_like(elems, states), adapter.pack_like(elems, items)))
        return new, new

    _, stacked = scan(tracer, step, ends, rest, reverse=op.reverse)
    joined = []
    for end, others in zip(ends, stacked, strict=True):
        parts = [others, ops.expand_dims(end, 0)] if op.reverse else [ops.expand_dims(end, 0), others]
        whole = ops.concatenate(parts, axis=0)
        joined.append(ops.moveaxis(whole, 0, op.axis) if op.axis else whole)
    return adapter.pack_like(elems, joined)
