"""The code on every page of the documentation, and in the README, runs.

The blocks of a page run in order, in one namespace, a process of their own (pages register ops, kernels, rules), and
one temporary folder that starts empty:

- a ``python`` block is executed; a block that stands in an HTML comment is executed too and not shown;
- of a ``console`` block every line that starts with ``$ irkit`` or ``$ xdsl-opt`` is run by a shell (with lines that a
  trailing backslash continues) and must exit with 0; other lines are output, or commands that are not ours to run.

A comment line just before the block says what else is expected: ``<!-- raises: LoadError -->`` or ``<!-- exit: 1 -->``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"(?:^[ \t]*<!--[ ]*(?P<key>raises|exit):[ ]*(?P<expected>\w+)[ ]*-->[ \t]*\n)?"
    r"^(?P<indent>[ \t]*)```(?P<language>python|console)[^\n`]*\n(?P<body>.*?)^(?P=indent)```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^\$ ((?:irkit|xdsl-opt)\b(?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the line at which the text starts, and what is expected of it."""

    language: str
    text: str
    line: int
    raises: str = ""
    exit: int = 0


def blocks_of(text: str) -> Iterator[Block]:
    """The ``python`` and ``console`` blocks of a page, in order."""
    for match in FENCE.finditer(text):
        key, expected = match["key"], match["expected"]
        yield Block(
            match["language"],
            textwrap.dedent(match["body"]),
            text.count("\n", 0, match.start("body")) + 1,
            raises=expected if key == "raises" else "",
            exit=int(expected) if key == "exit" else 0,
        )


def run_python(block: Block, page: str, namespace: dict[str, object]) -> None:
    # The empty lines make the line numbers of a traceback those of the page.
    code = compile("\n" * (block.line - 1) + block.text, page, "exec", dont_inherit=True)
    if not block.raises:
        exec(code, namespace)
        return
    try:
        exec(code, namespace)
    except Exception as error:
        names = [cls.__name__ for cls in type(error).__mro__]
        if block.raises not in names:
            raise
    else:
        pytest.fail(f"{page}:{block.line}: expected {block.raises}, nothing was raised")


def run_console(block: Block, page: str, cwd: Path) -> None:
    for match in COMMAND.finditer(block.text):
        done = subprocess.run(
            match[1],
            shell=True,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == block.exit, (
            f"{page}:{block.line}: {match[1]}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )


def run_page(text: str, page: str, cwd: Path) -> int:
    """Run the blocks of a page; return how many there are."""
    namespace: dict[str, object] = {"__name__": "__page__"}
    count = 0
    for count, block in enumerate(blocks_of(text), 1):  # noqa: B007
        if block.language == "python":
            run_python(block, page, namespace)
        else:
            run_console(block, page, cwd)
    return count


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", __file__, str(page)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # A fence that is opened in a way this test does not read would go unchecked.
    expected = len(re.findall(r"```(?:python|console)", page.read_text(encoding="utf-8")))
    assert done.stdout.splitlines()[-1] == f"blocks run: {expected}"


def test_blocks_run_in_order_and_share_a_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = """
<!--
```python
from pathlib import Path
x = 1
```
-->
1. indented
   ```python
   x += 1
   Path("seen").write_text(str(x))
   ```
<!-- raises: ArithmeticError -->
```python
1 / 0
```
<!-- exit: 2 -->
```console
$ irkit no-such-command
$ rm seen
```
"""
    assert run_page(page, "page", tmp_path) == 4
    assert (tmp_path / "seen").read_text() == "2"


@pytest.mark.parametrize(
    "page",
    [
        "```python\nassert False\n```",
        "<!-- raises: KeyError -->\n```python\n1 / 0\n```",
        "<!-- raises: KeyError -->\n```python\npass\n```",
        "```console\n$ irkit no-such-command\n```",
        "```console\n$ irkit \\\n  no-such-command\n```",
    ],
)
def test_a_wrong_block_fails(page: str, tmp_path: Path) -> None:
    with pytest.raises((Exception, pytest.fail.Exception)):
        run_page(page, "page", tmp_path)


if __name__ == "__main__":
    [_, _path] = sys.argv
    _page = Path(_path)
    _count = run_page(_page.read_text(encoding="utf-8"), _page.relative_to(ROOT).as_posix(), Path.cwd())
    print(f"blocks run: {_count}")
