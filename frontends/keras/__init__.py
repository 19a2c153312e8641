"""Reading real Keras 3 models, without TensorFlow, torch or jax.

Keras itself is imported when a model is loaded, on its numpy backend, unless the process has it already.
"""

from __future__ import annotations

from typing import Any

from irkit.ir.module import Module

__all__ = ["UncheckedWarning", "load", "write_back"]


class UncheckedWarning(UserWarning):
    """A model was converted, but the result could not be compared with Keras's own; the message says why."""


def load(
    model: Any, *, training: bool = False, layout: str = "as-declared", check: bool = True, inputs: Any = None
) -> Module:
    """The graph of a Keras model.

    Weights become initializers named by their paths; what a call assigns to (moving statistics in training, states of
    stateful layers) becomes variables of the ``state`` dialect. Sizes that the model leaves open stay symbols.

    Args:
        model: a ``keras.Model`` (functional, sequential or subclassed), a layer, or the path of a ``.keras`` file.
        training: the phase in which the model is called: with it, dropout drops and statistics move.
        layout: of inputs and outputs of rank four and more: ``"as-declared"``, or ``"nchw"`` (channels first).
        check: run the graph and the model side by side at three batch sizes, on generated inputs.
        inputs: for models that do not say what they take: a shape, a ``keras.KerasTensor``, or a structure of them.

    Raises:
        LoadError: if a file cannot be read.
        UnsupportedError: if something in it has no form in a graph: which layer, why, and what to do.
        CheckError: if the graph does not compute what the model computes.
    """
    from irkit.errors import IrkitError
    from irkit.frontends.keras import check as checking
    from irkit.frontends.keras.conversion import LAYOUTS, convert, open_model, signature_of

    if layout not in LAYOUTS:
        raise IrkitError(f"there is no layout '{layout}'", hint=f"there are {' and '.join(LAYOUTS)}")
    opened = open_model(model)
    signature = signature_of(opened, inputs, training)
    module = convert(opened, signature, training=training, layout=layout)
    if check:
        checking.check(opened, signature, module, training=training, layout=layout)
    return module


def write_back(model: Any, state: Any) -> None:
    """Puts weights into a Keras model.

    Args:
        model: the model that was loaded.
        state: arrays by the names that the graph has for them: initializers and variables; not all need be given.

    Raises:
        IrkitError: for a name that the model has no weight of, or an array of another shape.
    """
    from irkit.frontends.keras.weights import write_back as write

    write(model, state)
