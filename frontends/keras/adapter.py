"""The one file that knows Keras's insides: how it is imported, and where its symbolic calls are caught.

Everything else of the importer speaks of tensors with a shape and a dtype, variables, operations and layers. A change
of Keras's module paths is to be mended here.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import types
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import numpy as np

from irkit.errors import UnsupportedError
from irkit.frontends.keras.stand_in import installed, missing, standing_in

__all__ = ["Recorder", "api", "caught", "flatten", "is_layer", "is_symbolic", "is_variable", "map_tree", "to_numpy"]

BACKEND_MODULES = ("core", "image", "linalg", "math", "nn", "numpy", "random")
TOP_LEVEL = ("cast", "convert_to_tensor", "convert_to_numpy", "cond", "shape", "vectorized_map", "scatter")
RECURRENT = ("rnn", "lstm", "gru", "bidirectional_lstm", "bidirectional_gru")
CREATION = frozenset("zeros ones full empty arange eye identity linspace tri logspace geomspace".split())
"""Backend functions that make an array out of sizes alone."""
PLAIN = frozenset(
    "compute_output_spec convert_to_tensor convert_to_numpy is_tensor shape device_scope name_scope custom_gradient "
    "associative_scan random_seed_dtype remat".split()
)
"""Backend functions that have no operation of the same name."""


@functools.cache
def api() -> Any:
    """The ``keras`` package: as the process has it, else imported on its numpy backend.

    Raises:
        UnsupportedError: if Keras is not installed.
    """
    if "keras" in sys.modules:
        return importlib.import_module("keras")
    if not installed("keras"):
        raise UnsupportedError(
            "reading a Keras model needs Keras, which is not installed", hint="pip install keras h5py"
        )
    before = os.environ.get("KERAS_BACKEND")
    os.environ["KERAS_BACKEND"] = "numpy"
    try:
        with standing_in() as stand_in:
            keras = importlib.import_module("keras")
    finally:
        if before is None:
            del os.environ["KERAS_BACKEND"]
        else:
            os.environ["KERAS_BACKEND"] = before
    _complete(stand_in)
    return keras


def _complete(stand_in: standing_in) -> None:
    """Gives Keras's numpy backend what it takes of jax and scipy, where they are not there."""
    from irkit.frontends.keras import windows

    # Its variables know only NumPy's old protocol, of which NumPy warns.
    _src("backend.numpy.core").Variable.__array__ = lambda self, dtype=None, copy=None: np.array(
        self.value, dtype=dtype, copy=copy
    )
    if stand_in.jax:
        nn, maths = _src("backend.numpy.nn"), _src("backend.numpy.math")
        nn.lax, nn.jax = windows.LAX, types.SimpleNamespace(lax=windows.LAX)
        maths.jax_fft, maths.jax_fft2 = windows.fft, windows.fft2
    if stand_in.scipy:
        from irkit.frontends.keras.special import SCIPY

        _src("utils.module_utils").scipy.module = SCIPY
        _src("backend.numpy.linalg").sl = types.SimpleNamespace(
            **{name: missing(f"scipy.linalg.{name}") for name in ("solve_triangular", "lu_factor")}
        )


def _src(path: str) -> Any:
    api()
    return importlib.import_module(f"keras.src.{path}")


def backend_name() -> str:
    """The backend that the process runs Keras on."""
    return api().config.backend()


# What things are


def is_symbolic(value: Any) -> bool:
    """Whether this is a tensor without a value."""
    return isinstance(value, api().KerasTensor)


def is_variable(value: Any) -> bool:
    """Whether this is a variable of a model."""
    return isinstance(value, _variable_class())


@functools.cache
def _variable_class() -> type:
    return _src("backend.common.variables").Variable


def is_layer(value: Any) -> bool:
    """Whether this is a layer (models are layers too)."""
    return isinstance(value, api().layers.Layer)


def is_tensor(value: Any) -> bool:
    """Whether this is an array of the backend that Keras runs on."""
    return _src("backend").is_tensor(value)


def to_numpy(value: Any) -> np.ndarray:
    """The value of a variable or of a backend's array."""
    if is_variable(value):
        value = value.value
    return np.array(_src("backend").convert_to_numpy(value))


def symbol(shape: Iterable[int], dtype: str) -> Any:
    """A tensor without a value."""
    return api().KerasTensor(tuple(shape), dtype=dtype)


def flatten(tree: Any) -> list[Any]:
    """The leaves of a nested structure, in Keras's order."""
    return _src("tree").flatten(tree)


def map_tree(fn: Callable[..., Any], *trees: Any) -> Any:
    """A structure with a function applied to every leaf."""
    return _src("tree").map_structure(fn, *trees)


def pack_like(tree: Any, leaves: list[Any]) -> Any:
    """The leaves put back into a structure."""
    return _src("tree").pack_sequence_as(tree, leaves)


def dtype_name(name: Any) -> str:
    """A dtype by the name that Keras calls it."""
    return _src("backend").standardize_dtype(name)


def result_type(kinds: list[Any]) -> str:
    """The dtype that dtypes, and Python's bool, int and float, are promoted to."""
    return _src("backend").result_type(*kinds)


def channels_last(data_format: str | None) -> bool:
    """Whether a data format, by default the one set for Keras, has the channels last."""
    return _src("backend").standardize_data_format(data_format) == "channels_last"


def numpy_dtype(name: str) -> np.dtype:
    """NumPy's dtype of that name."""
    from irkit.ir.dtypes import dtype

    return dtype(name).numpy


def to_backend(array: np.ndarray) -> Any:
    """An array as the backend has it."""
    return _src("backend").convert_to_tensor(array, dtype=str(array.dtype))


def integer_bound(model: Any) -> int:
    """Below what integers are valid inputs: the fewest entries that a table of the model has."""
    sizes = [
        getattr(layer, name)
        for layer in model._flatten_layers()
        for name in ("input_dim", "num_tokens")
        if hasattr(layer, name)
    ]
    return min([s for s in sizes if isinstance(s, int) and s > 1] or [8])


def epsilon() -> float:
    """The small number that keeps logarithms finite."""
    return api().config.epsilon()


def floatx() -> str:
    """The dtype of floats that nothing else is said of."""
    return api().config.floatx()


def backend_function(name: str) -> Any:
    """A function of the backend's numpy module."""
    return getattr(_src("backend").numpy, name)


def variables_of(model: Any) -> list[Any]:
    """All variables of a model, each once, in a fixed order: seed generators' too, and the states that layers keep."""
    states = [v for layer in model._flatten_layers() for v in flatten(getattr(layer, "states", None) or [])]
    return list({id(v): v for v in [*model.variables, *states] if is_variable(v)}.values())


# How models are called


def is_built(model: Any) -> bool:
    """Whether a model has its variables."""
    return bool(model.built)


def declared_inputs(model: Any) -> Any:
    """The symbolic tensors that a model says it takes, in the structure of its first argument, or as a dict by the
    names of its arguments; None if it does not say.
    """
    if hasattr(model, "_functional") and model.built and model._functional is not None:
        model = model._functional
    if hasattr(model, "_inputs_struct"):
        return model._inputs_struct
    shapes = getattr(model, "_build_shapes_dict", None)
    if not shapes:
        return None
    tensors = {key.removesuffix("_shape"): as_specs(shape, model) for key, shape in shapes.items()}
    return next(iter(tensors.values())) if len(tensors) == 1 else tensors


def as_specs(what: Any, model: Any) -> Any:
    """A shape, or a structure of shapes and symbolic tensors, as a structure of symbolic tensors."""
    if is_symbolic(what):
        return what
    if isinstance(what, (list, tuple)) and all(d is None or isinstance(d, int) for d in what):
        return symbol(what, model.input_dtype)
    if isinstance(what, dict):
        return {key: as_specs(v, model) for key, v in what.items()}
    return [as_specs(v, model) for v in what]


def by_name(model: Any, structure: Any) -> bool:
    """Whether a structure of inputs is a dict by the names of the call's arguments."""
    names = list(model.call_signature_parameters)
    return isinstance(structure, dict) and bool(names) and names[0] in structure and set(structure) <= set(names)


def declared_outputs(model: Any) -> list[str] | None:
    """The names that a functional model has for its outputs."""
    if hasattr(model, "_functional") and model.built and model._functional is not None:
        model = model._functional
    names = getattr(model, "output_names", None)
    return list(names) if names else None


def named_leaves(structure: Any, default: str = "input") -> list[tuple[str, Any]]:
    """The leaves of a structure with names: of the tensors themselves, of the keys above, or numbered."""
    leaves = _src("tree").flatten_with_path(structure)
    found: list[tuple[str, Any]] = []
    for path, leaf in leaves:
        keys = [str(p) for p in path]
        history = getattr(leaf, "_keras_history", None)
        own = history[0].name if default == "input" and history else ""
        name = own or (f"{default}_{'_'.join(keys)}" if keys and keys[0].isdigit() else "/".join(keys)) or default
        found.append((name, leaf))
    return found


def build(model: Any, structure: Any) -> None:
    """Makes a model have its variables, by calling it on zeros: Keras would use arrays that hold anything."""

    def zeros(spec: Any) -> Any:
        sizes = [(16 if axis else 2) if d is None else d for axis, d in enumerate(spec.shape)]
        return to_backend(np.zeros(sizes, numpy_dtype(spec.dtype)))

    call_model(model, map_tree(zeros, structure), False)


def call_model(model: Any, structure: Any, training: bool) -> Any:
    """Calls a model on a structure of tensors."""
    options = {"training": training} if getattr(model, "_call_has_training_arg", False) else {}
    if by_name(model, structure):
        return model(**structure, **options)
    return model(structure, **options)


def unique_names(model: Any) -> dict[int, str]:
    """By the id of each variable of a model, its path; a path that several have gets a number from the second on."""
    found: dict[int, str] = {}
    counts: dict[str, int] = {}
    for variable in variables_of(model):
        count = counts[variable.path] = counts.get(variable.path, -1) + 1
        found[id(variable)] = f"{variable.path}_{count}" if count else variable.path
    return found


# Catching symbolic calls


class Recorder(Protocol):
    """What is told of the calls that are caught."""

    paused: bool
    creations: bool

    def operation(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def layer(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def read(self, variable: Any) -> Any: ...
    def write(self, variable: Any, value: Any) -> None: ...
    def function(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], original: Any) -> Any: ...


def specification(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What Keras says of the results of an operation on symbolic tensors; where it fails, what running it gives."""
    try:
        return op.compute_output_spec(*args, **kwargs)
    except (AttributeError, TypeError):
        return inferred(op.call, *args, **kwargs)


def inferred(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What running a function on the backend says of the results of symbolic tensors."""
    return _src("backend").compute_output_spec(function, *args, **kwargs)


def run_layer(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs the body of a layer."""
    call = layer.quantized_call if getattr(layer, "quantization_mode", None) else layer.call
    return call(*args, **kwargs)


def run_function(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the operation for symbolic tensors that stands for a backend's function."""
    ops = api().ops
    if name == "convert_to_tensor":
        return _as_tensor(*args, **kwargs)
    if name == "shape":
        return tuple(args[0].shape)
    if name == "convert_to_numpy":
        raise TypeError("a value is asked for that is only known when the model runs")
    places = [ops, *(getattr(ops, part) for part in ("image", "linalg", "nn", "numpy") if hasattr(ops, part))]
    return getattr(next(place for place in places if hasattr(place, name)), name)(*args, **kwargs)


def _as_tensor(x: Any, dtype: Any = None, sparse: Any = None, ragged: Any = None) -> Any:
    if is_variable(x):
        x = x.value
    if not is_symbolic(x):
        # A list of tensors and numbers.
        return api().ops.stack([api().ops.cast(leaf, dtype) if dtype else leaf for leaf in x])
    return x if dtype is None or dtype_name(dtype) == x.dtype else api().ops.cast(x, dtype)


@contextmanager
def caught(recorder: Recorder) -> Generator[None]:
    """While open, what is done to symbolic tensors and to variables is told to a recorder."""
    operation = _src("ops.operation").Operation
    layers = _src("layers.layer")
    traceback_utils = _src("utils.traceback_utils")
    filtering = traceback_utils.is_traceback_filtering_enabled()
    with ExitStack() as stack:
        stack.callback(traceback_utils.enable_traceback_filtering if filtering else _nothing)
        traceback_utils.disable_traceback_filtering()
        _replace(stack, operation, "symbolic_call", _operation_call(recorder, operation.symbolic_call))
        _replace(stack, layers.Layer, "symbolic_call", _layer_call(recorder))
        # An array on the left of an operator leaves it to the tensor.
        api().KerasTensor.__array_ufunc__ = None
        stack.callback(delattr, api().KerasTensor, "__array_ufunc__")
        _replace(stack, api().KerasTensor, "__eq__", _equal(recorder))
        _replace(stack, layers, "Node", _no_node(recorder, layers.Node))
        for owner, name, function in _backend_functions():
            _replace(stack, owner, name, _function_call(recorder, name, function, owner.__name__.endswith(".random")))
        stack.enter_context(_scope(recorder))
        yield


def _nothing() -> None:
    return None


def _replace(stack: ExitStack, owner: Any, name: str, new: Any) -> None:
    old = getattr(owner, name)
    setattr(owner, name, new)
    stack.callback(setattr, owner, name, old)


@functools.cache
def _backend_functions() -> list[tuple[Any, str, Any]]:
    backend = _src("backend")
    found: list[tuple[Any, str, Any]] = []
    ops = api().ops
    for part in BACKEND_MODULES:
        module = getattr(backend, part)
        for name, value in vars(module).items():
            if name.startswith("_") or not isinstance(value, types.FunctionType) or value.__module__ != module.__name__:
                continue
            known = (
                hasattr(ops, name) or hasattr(getattr(ops, part, None), name) or part == "random" or name in CREATION
            )
            if (known and name not in PLAIN) or name in ("convert_to_tensor", "shape", "convert_to_numpy"):
                found.append((module, name, value))
    # Layers of images look their functions up in the package of the backend by its name.
    for owner in (backend, _src(f"backend.{backend_name()}")):
        found += [(owner, name, getattr(owner, name)) for name in (*TOP_LEVEL, *RECURRENT) if hasattr(owner, name)]
    return found


def _has_symbol(values: Iterable[Any]) -> bool:
    tensor, variable = api().KerasTensor, _variable_class()
    for value in values:
        if isinstance(value, (tensor, variable)):
            return True
        if isinstance(value, (list, tuple)) and _has_symbol(value):
            return True
        if isinstance(value, dict) and _has_symbol(value.values()):
            return True
    return False


def _operation_call(recorder: Recorder, original: Any) -> Any:
    def symbolic_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.paused:
            return original(self, *args, **kwargs)
        return recorder.operation(self, args, kwargs)

    return symbolic_call


def _layer_call(recorder: Recorder) -> Any:
    def symbolic_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.paused:
            return self.compute_output_spec(*args, **kwargs)
        return recorder.layer(self, args, kwargs)

    return symbolic_call


def _equal(recorder: Recorder) -> Any:
    """``x == 0`` is an operation on tensors, as ``x != 0`` is; Keras leaves it to Python, which says False."""
    numbers = (bool, int, float, np.ndarray, np.generic)

    def equal(self: Any, other: Any) -> Any:
        if recorder.paused or not (isinstance(other, numbers) or is_symbolic(other) or is_variable(other)):
            return self is other
        return api().ops.equal(self, other)

    return equal


def _no_node(recorder: Recorder, original: Any) -> Any:
    """Tracing leaves no trace in the layers' own record of where they were called."""

    def node(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if recorder.paused else None

    return node


def _function_call(recorder: Recorder, name: str, function: Any, random: bool) -> Any:
    always = random or name in RECURRENT

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if recorder.paused:
            return function(*args, **kwargs)
        if always or (name in CREATION and recorder.creations) or _has_symbol(args) or _has_symbol(kwargs.values()):
            return recorder.function(f"random.{name}" if random else name, args, kwargs, function)
        return function(*args, **kwargs)

    return call


def _scope(recorder: Recorder) -> Any:
    base = _src("backend.common.stateless_scope").StatelessScope

    class Scope(base):
        """Hands out symbols for variables, and takes down what is assigned to them."""

        def get_current_value(self, variable: Any) -> Any:
            return recorder.read(variable)

        def add_update(self, update: Any) -> None:
            recorder.write(*update)

    return Scope(initialize_variables=False)
