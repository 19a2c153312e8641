"""Valid files made wrong at random: by their bytes, and by the fields of their messages. One seed, one sequence."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from onnx import ModelProto

__all__ = ["mutated_bytes", "mutated_fields"]

_INTEGERS = (0, 1, -1, 2, 3, 7, 99, -100, 2**31 - 1, -(2**31), 2**62, -(2**63), 2**63 - 1)
_STRINGS = ("", "x", "y", "no_such_name", "ai.onnx", "é", "a\0b", "%0", '"')


def mutated_bytes(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Copies of ``data`` with one to four bytes changed, taken out or put in."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        made = bytearray(data)
        for _ in range(int(rng.integers(1, 5))):
            at, value = int(rng.integers(len(made))), int(rng.integers(256))
            match int(rng.integers(4)):
                case 0:
                    made[at] = value
                case 1:
                    made[at] ^= 1 << (value % 8)
                case 2:
                    del made[at]
                case _:
                    made.insert(at, value)
        yield bytes(made)


def mutated_fields(model: ModelProto, count: int, seed: int) -> Iterator[bytes]:
    """Copies of a model with one to three fields changed: numbers, names, and what is there, how often, in which order.

    They parse as protobuf, so that what comes after it is tried.
    """
    rng = np.random.default_rng(seed)
    for _ in range(count):
        made = copy.deepcopy(model)
        for _ in range(int(rng.integers(1, 4))):
            places = list(_places(made))
            _mutate(*places[int(rng.integers(len(places)))], rng, model)
        yield made.SerializePartialToString()


def _places(message: Any) -> Iterator[tuple[Any, FieldDescriptor]]:
    """Every field that is set, of this message and those within."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if _repeats(field) else [value]:
                yield from _places(inner)


def _repeats(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _mutate(message: Any, field: FieldDescriptor, rng: np.random.Generator, model: ModelProto) -> None:
    choice = int(rng.integers(5))
    if choice == 0:
        message.ClearField(field.name)
    elif _repeats(field):
        _mutate_list(getattr(message, field.name), field, choice, rng, model)
    elif field.type != FieldDescriptor.TYPE_MESSAGE:
        setattr(message, field.name, _value(field, rng, model))


def _mutate_list(values: Any, field: FieldDescriptor, choice: int, rng: np.random.Generator, model: ModelProto) -> None:
    at = int(rng.integers(len(values)))
    plain = field.type != FieldDescriptor.TYPE_MESSAGE
    if choice == 1:
        del values[at]
    elif choice == 2 and plain:
        values[at] = _value(field, rng, model)
    elif choice == 3:
        kept = list(values)
        order = rng.permutation(len(kept))
        items = [kept[i] if plain else copy.deepcopy(kept[i]) for i in order]
        del values[:]
        values.extend(items)
    else:
        values.append(values[at] if plain else copy.deepcopy(values[at]))


def _value(field: FieldDescriptor, rng: np.random.Generator, model: ModelProto) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            names = [name for node in model.graph.node for name in (*node.input, *node.output, node.op_type)]
            text = str(rng.choice([*_STRINGS, *names]))
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return float(rng.choice([0.0, -0.0, np.nan, np.inf, -1.5]))
        case FieldDescriptor.CPPTYPE_ENUM:
            numbers = [value.number for value in field.enum_type.values]
            return int(rng.choice(numbers))
        case FieldDescriptor.CPPTYPE_INT32:
            return int(_INTEGERS[int(rng.integers(10))])
        case FieldDescriptor.CPPTYPE_UINT64 | FieldDescriptor.CPPTYPE_UINT32:
            return abs(_INTEGERS[int(rng.integers(10))])
        case _:
            return _INTEGERS[int(rng.integers(len(_INTEGERS)))]
