"""For tests of one's own: modules compared, passes checked, as assertions.

>>> from irkit.testing import assert_equivalent
>>> import irkit as ik
>>> def scaled(factor):
...     b = ik.Builder("scaled")
...     b.output(b.input("x", "float32", ["N"]) * factor, "y")
...     return b.module()
>>> assert_equivalent(scaled(2.0), scaled(2.0), backends=["numpy"])
>>> assert_equivalent(scaled(2.0), scaled(2.1), backends=["numpy"])  # doctest: +ELLIPSIS
Traceback (most recent call last):
AssertionError: different (3 pairs of runs compared):
  numpy, sample 0: output 'y' is ...

With ``pytest_plugins = ["irkit.pytest_plugin"]`` in a ``conftest.py``, tests have the fixture ``irkit_backend``: they
run once per backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.passes import ModulePass

from irkit.api import load
from irkit.ir.module import Module
from irkit.verify import Backend, Report, compare

if TYPE_CHECKING:
    from irkit.passes.rules import Rewrite
    from irkit.passes.rules.testing import RuleReport

__all__ = ["assert_equivalent", "check_pass", "check_rule"]


def assert_equivalent(
    a: Any,
    b: Any,
    backends: Iterable[Backend] = ("numpy", "onnxruntime"),
    rtol: float | None = None,
    atol: float | None = None,
    samples: int = 3,
    seed: int = 0,
    *,
    feeds: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    **options: Any,
) -> None:
    """Asserts that two models have one signature and give equal results.

    Args:
        a: what is right: a Module, a path, the bytes of an ONNX file, or a ModelProto.
        b: what is checked against it.
        backends: on which to run both; this and all that follows as ``irkit.verify.compare`` takes it.
        rtol: relative tolerance.
        atol: absolute tolerance.
        samples: how many sets of inputs are made.
        seed: of the inputs.
        feeds: inputs to use instead of made ones.
        **options: further options of ``compare``.

    Raises:
        AssertionError: with the report, if they differ, or if nothing could be compared on some backend.
    """
    backends = tuple(backends)
    left, right = load(a), load(b)
    assert_report(
        compare(
            left, right, backends=backends, rtol=rtol, atol=atol, samples=samples, seed=seed, feeds=feeds, **options
        )
    )


def assert_report(report: Report) -> None:
    """Asserts that a comparison found no difference and compared something on every backend."""
    if not report.equal or not all(report.runs.values()):
        raise AssertionError(report.text())


def check_pass(
    passes: str | ModulePass | Iterable[ModulePass],
    model: Any,
    backends: Iterable[Backend] = ("numpy",),
    **options: Any,
) -> Module:
    """Applies passes to a copy of a model and asserts that it stays valid and means the same.

    Args:
        passes: one pass, several, or the text of a pipeline (``"canonicalize,cse"``, ``"O2"``).
        model: see ``assert_equivalent``.
        backends: on which to run both.
        **options: further options of ``irkit.verify.compare``.

    Returns:
        the transformed module.

    Raises:
        AssertionError: if the result differs, or nothing could be compared on some backend.
        VerifyError: if the result is not valid.
    """
    before = load(model)
    kept, after = before.clone(), before.clone()
    for step in _passes(passes):
        step.apply(after.ctx, after.op)
    after.verify()
    assert before == kept, "the pass changed a module that it was not given"
    assert_report(compare(before, after, backends=backends, **options))
    return after


def check_rule(rule: Rewrite, **options: Any) -> RuleReport:
    """Asserts that a rewrite rule keeps what graphs compute, on graphs made from its own pattern.

    Args:
        rule: see ``irkit.passes.rules``.
        **options: see ``irkit.passes.rules.testing.check_rule``: ``samples``, ``dtypes``, ``graphs``, ``backends``,
            ``rtol``, ``seed``.

    Returns:
        How many graphs were made, on how many the rule fired, and how many runs were compared.

    Raises:
        AssertionError: saying on which graph it fails and how, or that it never fired.
    """
    from irkit.passes.rules.testing import check_rule as check

    return check(rule, **options)


def _passes(passes: str | ModulePass | Iterable[ModulePass]) -> Sequence[ModulePass]:
    if isinstance(passes, str):
        from irkit.passes.pipeline import parse_pipeline

        return parse_pipeline(passes)
    return [passes] if isinstance(passes, ModulePass) else list(passes)
