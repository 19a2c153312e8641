"""Small models on which graph optimizers go wrong, each with the behaviour that is right.

``case_<name>``, in one of the two modules beside this one, builds the model; its docstring says what a pass may and may
not do. In every one that draws no random values, each pass must keep the outputs, their names and their order.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx import ModelProto

from . import adversarial_structure, adversarial_values
from .build import named

__all__ = ["CHECKER_EXCEPTIONS", "CRASHES_ORT", "FAILS_AT_RUN", "RANDOM", "adversarial_models"]

# What onnx's checker refuses with its full check, and why.
CHECKER_EXCEPTIONS = {
    "wrong_output_shape": "the declared shape of an output is false",
    "wrong_intermediate_type": "the declared type of a value is false",
    "unsorted_with_branches": "the nodes are not sorted",
}
# Outputs differ from run to run, or from seed to seed.
RANDOM = frozenset(
    {
        "two_random_uniform_subtracted",
        "two_random_normal_subtracted",
        "two_random_uniform_like_subtracted",
        "two_random_normal_like_subtracted",
        "two_bernoulli_subtracted",
        "two_multinomial_subtracted",
        "two_dropouts_in_training",
        "one_seed_in_two_nodes",
        "bernoulli_of_a_constant",
        "random_in_a_loop_body",
        "random_in_a_function_called_twice",
    }
)
# An integer division by 0: the run is an error, so folding leaves it to the run.
FAILS_AT_RUN = frozenset({"integer_division_by_zero", "integer_mod_by_zero"})
# onnxruntime dies of SIGFPE, even while loading: run these there only in a process of their own.
CRASHES_ORT = frozenset({"int64_min_divided_by_minus_one", "dead_branch_divides_by_zero"}) | FAILS_AT_RUN


def adversarial_models() -> Iterator[tuple[str, ModelProto]]:
    """``(name, model)`` for each case."""
    for module in (adversarial_values, adversarial_structure):
        for name, build in named(module, "case_"):
            yield name, build()
