"""Rewrite rules: two functions over a builder, one for what is sought and one for what takes its place."""

from __future__ import annotations

from irkit.passes.rules.driver import RulePass, apply_rules, rule_pass
from irkit.passes.rules.match import Match
from irkit.passes.rules.pattern import attributes, constant, near, scalar, value
from irkit.passes.rules.rule import HandRule, Precision, Rewrite, Rule, item
from irkit.passes.rules.why import Miss, why_not

__all__ = [
    "HandRule",
    "Match",
    "Miss",
    "Precision",
    "Rewrite",
    "Rule",
    "RulePass",
    "apply_rules",
    "attributes",
    "constant",
    "item",
    "near",
    "rule_pass",
    "scalar",
    "value",
    "why_not",
]
