"""The page on coverage has every version of every op, every type of it, and says what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

import onnx

from irkit.dialects.onnx import CLASSES
from irkit.dialects.onnx.classes import DOMAINS
from irkit.passes.coverage import how, markdown, rows

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "coverage.md"
SCHEMAS = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in DOMAINS]


def test_every_version_of_every_op_is_on_the_page() -> None:
    on_page: dict[tuple[str, str], set[int]] = {}
    domain = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            domain = "" if line == "## ai.onnx" else line[3:]
        elif match := re.match(r"\| (\w+) \| (\d[^|]*) \|", line):
            on_page[domain, match[1]] = set(map(int, re.findall(r"\d+", match[2])))
    expected: dict[tuple[str, str], set[int]] = {}
    for schema in SCHEMAS:
        expected.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    assert on_page == expected


def test_every_version_is_run_somehow() -> None:
    missing = [cls.name for made in CLASSES.values() for cls in made.values() if how(cls) == "missing"]
    assert not missing
    ways = {(row.domain, row.op_type): row.versions for row in rows()}
    assert ways["", "Softmax"] == {1: "rewritten", 11: "rewritten", 13: "kernel"}
    assert ways["", "Abs"] == {1: "renamed", 6: "renamed", 13: "kernel"}
    assert ways["", "Upsample"] == {1: "rewritten", 7: "kernel", 9: "kernel", 10: "rewritten"}
    assert ways["ai.onnx.preview.training", "Gradient"] == {1: "expanded"}


def test_the_types_of_each_version_follow_from_what_changed() -> None:
    found = {(row.domain, row.op_type): row for row in rows()}
    for schema in SCHEMAS:
        newest = CLASSES[schema.domain, schema.name][max(CLASSES[schema.domain, schema.name])].spec
        allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        seen: set[str] = set()
        for old, new in ((schema.inputs, newest.inputs), (schema.outputs, newest.outputs)):
            for index, theirs in enumerate(new):
                if theirs.type in seen or index >= len(old):
                    seen.add(theirs.type)
                    continue
                seen.add(theirs.type)
                mine = old[index]
                types: set[str] = set()
                for since, changes in found[schema.domain, schema.name].types[theirs.type].items():
                    if since <= schema.since_version:
                        types |= {t for t in changes if not t.startswith("-")}
                        types -= {t[1:] for t in changes if t.startswith("-")}
                assert types == allowed.get(mine.type_str, {mine.type_str}), (schema.name, schema.since_version)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m irkit.passes.coverage > docs/reference/coverage.md"
