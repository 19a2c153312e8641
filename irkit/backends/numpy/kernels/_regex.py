"""Regular expressions in RE2's syntax, matched against whole strings in time linear in their length.

A pattern becomes a nondeterministic automaton whose sets of states are followed one character at a time and
remembered. Greedy and lazy repetition accept the same whole strings, and groups capture nothing. What RE2 refuses
(backreferences, lookaround, doubled repetition) is refused here; so are Unicode scripts (``\\p{Greek}``) and ``\\C``.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

__all__ = ["Regex", "RegexError"]

_MAX_STATES = 100_000
_MAX_DEPTH = 200
_MAX_REPEAT = 1000
_MAX_CACHE = 10_000

Test = Callable[[str], bool]
"""Whether a character is meant."""


class RegexError(Exception):
    """A pattern that is not valid, or beyond what is supported."""


def _word(c: str | None) -> bool:
    return c is not None and (c == "_" or (c.isascii() and c.isalnum()))


_PERL: dict[str, Test] = {
    "d": lambda c: c in string.digits,
    "w": _word,
    "s": lambda c: c in "\t\n\f\r ",
}
_POSIX: dict[str, Test] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "blank": lambda c: c in "\t ",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "digit": lambda c: c in string.digits,
    "graph": lambda c: "!" <= c <= "~",
    "lower": lambda c: "a" <= c <= "z",
    "print": lambda c: " " <= c <= "~",
    "punct": lambda c: c in string.punctuation,
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z",
    "word": _word,
    "xdigit": lambda c: c in string.hexdigits,
}
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ASSERTIONS = {"A": "start", "z": "end", "b": "word boundary", "B": "no word boundary"}
_CATEGORIES = {unicodedata.category(chr(i)) for i in range(0x3000)} | {"Co", "Cs", "Cn"}


def _negate(test: Test) -> Test:
    return lambda c: not test(c)


def _variants(c: str) -> set[str]:
    """The characters that equal ``c`` when case is ignored, itself among them."""
    return {v for v in (c, c.lower(), c.upper(), c.title()) if len(v) == 1}


def _any_of(tests: Iterable[Test], fold: bool) -> Test:
    alternatives = tuple(tests)
    if fold:
        return lambda c: any(test(v) for v in _variants(c) for test in alternatives)
    return lambda c: any(test(c) for test in alternatives)


def _one(char: str, fold: bool) -> Test:
    if not fold:
        return lambda c: c == char
    wanted = _variants(char)
    return lambda c: not wanted.isdisjoint(_variants(c))


def _span(low: str, high: str) -> Test:
    return lambda c: low <= c <= high


@dataclass(frozen=True)
class _Flags:
    fold: bool = False
    multi: bool = False
    dot_newline: bool = False
    ungreedy: bool = False


_FLAG_NAMES = {"i": "fold", "m": "multi", "s": "dot_newline", "U": "ungreedy"}

Node = tuple[object, ...]
"""``("char", test)``, ``("assert", kind)``, ``("cat" or "alt", nodes)`` or ``("repeat", node, low, high)``."""


class _Parser:
    """A recursive descent over the pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0
        self.names: set[str] = set()

    def fail(self, what: str) -> RegexError:
        return RegexError(f"{what} at position {self.at} of pattern {self.pattern!r}")

    def ahead(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def accept(self, text: str) -> bool:
        if self.ahead(text):
            self.at += len(text)
            return True
        return False

    def next(self) -> str:
        if self.at >= len(self.pattern):
            raise self.fail("unexpected end")
        self.at += 1
        return self.pattern[self.at - 1]

    def until(self, end: str) -> str:
        stop = self.pattern.find(end, self.at)
        if stop < 0:
            raise self.fail(f"missing {end!r}")
        text = self.pattern[self.at : stop]
        self.at = stop + len(end)
        return text

    def parse(self) -> Node:
        node = self.alternation(_Flags())
        if self.at < len(self.pattern):
            raise self.fail("unmatched ')'")
        return node

    def alternation(self, flags: _Flags) -> Node:
        """Up to a closing parenthesis or the end; flags set within hold until there, across ``|``."""
        branches: list[Node] = []
        items: list[Node] = []
        while self.at < len(self.pattern) and not self.ahead(")"):
            if self.accept("|"):
                branches.append(("cat", items))
                items = []
            elif self.accept("\\Q"):
                end = self.pattern.find("\\E", self.at)
                text = self.pattern[self.at :] if end < 0 else self.pattern[self.at : end]
                self.at = len(self.pattern) if end < 0 else end + 2
                items += [("char", _one(c, flags.fold)) for c in text]
                if items and text:
                    items[-1] = self.repetition(items[-1])
            else:
                changed = self.flag_setting(flags)
                if changed is not None:
                    flags = changed
                else:
                    items.append(self.repetition(self.atom(flags)))
        branches.append(("cat", items))
        return branches[0] if len(branches) == 1 else ("alt", branches)

    def flag_setting(self, flags: _Flags) -> _Flags | None:
        """``(?flags)``, which changes the flags of what follows; None if that is not what stands here."""
        close = self.pattern.find(")", self.at)
        if not self.ahead("(?") or close < 0:
            return None
        text = self.pattern[self.at + 2 : close]
        if not text or not set(text) <= set("imsU-"):
            return None
        self.at = close + 1
        return self.with_flags(flags, text)

    def with_flags(self, flags: _Flags, text: str) -> _Flags:
        on, minus, off = text.partition("-")
        if "-" in off or (minus and not off) or not set(on + off) <= set(_FLAG_NAMES):
            raise self.fail(f"invalid flags {text!r}")
        for letters, value in ((on, True), (off, False)):
            flags = replace(flags, **{_FLAG_NAMES[letter]: value for letter in letters})
        return flags

    def group(self, flags: _Flags) -> Node:
        """After the opening parenthesis."""
        if self.accept("?P<") or (not self.ahead("?<=") and not self.ahead("?<!") and self.accept("?<")):
            name = self.until(">")
            if not name or not all(c == "_" or c.isalnum() for c in name) or name in self.names:
                raise self.fail(f"invalid or repeated group name {name!r}")
            self.names.add(name)
        elif self.accept("?"):
            if self.at < len(self.pattern) and self.pattern[self.at] in "=!<P":
                raise self.fail("RE2 has no lookaround or named backreference, found")
            flags = self.with_flags(flags, text) if (text := self.until(":")) else flags
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.fail("groups nested too deeply")
        node = self.alternation(flags)
        self.depth -= 1
        if not self.accept(")"):
            raise self.fail("missing ')'")
        return node

    def atom(self, flags: _Flags) -> Node:
        c = self.next()
        if c == "(":
            return self.group(flags)
        if c == "[":
            return ("char", self.char_class(flags))
        if c == ".":
            return ("char", (lambda c: True) if flags.dot_newline else (lambda c: c != "\n"))
        if c == "^":
            return ("assert", "line start" if flags.multi else "start")
        if c == "$":
            return ("assert", "line end" if flags.multi else "end")
        if c in "*+?":
            self.at -= 1
            raise self.fail(f"nothing to repeat before {c!r}")
        if c == "\\":
            kind = {"A": "start", "z": "end", "b": "word boundary", "B": "no word boundary"}.get(
                self.pattern[self.at : self.at + 1]
            )
            if kind is not None:
                self.at += 1
                return ("assert", kind)
            test = self.class_escape(flags)
            return ("char", test or _one(self.char_escape(), flags.fold))
        return ("char", _one(c, flags.fold))

    def bounds(self) -> tuple[int, int | None] | None:
        """A repetition operator, or None; a brace that begins no count is an ordinary character."""
        for operator, low, high in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self.accept(operator):
                return low, high
        close = self.pattern.find("}", self.at)
        if not self.ahead("{") or close < 0:
            return None
        first, comma, last = self.pattern[self.at + 1 : close].partition(",")
        if not _digits(first) or not (_digits(last) or (last == "" and (comma or not last))):
            return None
        low = int(first)
        high = low if not comma else int(last) if last else None
        if max(low, high or 0) > _MAX_REPEAT or (high is not None and high < low):
            raise self.fail(f"invalid repetition {self.pattern[self.at : close + 1]!r}")
        self.at = close + 1
        return low, high

    def repetition(self, node: Node) -> Node:
        bounds = self.bounds()
        if bounds is None:
            return node
        self.accept("?")
        if self.bounds() is not None:
            raise self.fail("a repetition can't be repeated without a group, before")
        return ("repeat", node, *bounds)

    def class_escape(self, flags: _Flags) -> Test | None:
        """After a backslash: ``\\d``, ``\\pL`` and the like; None if another escape stands here."""
        c = self.pattern[self.at : self.at + 1]
        if c and c in "dwsDWS":
            self.at += 1
            test = _PERL[c.lower()]
            return _negate(test) if c.isupper() else test
        if c and c in "pP":
            self.at += 1
            name = self.until("}") if self.accept("{") else self.next()
            negated = (c == "P") != name.startswith("^")
            test = self.property(name.removeprefix("^"))
            test = _any_of([test], fold=True) if flags.fold else test
            return _negate(test) if negated else test
        return None

    def property(self, name: str) -> Test:
        if name == "Any":
            return lambda c: True
        if not name or not any(category.startswith(name) for category in _CATEGORIES):
            raise self.fail(f"{name!r} is no general category of Unicode (scripts are not supported), found")
        return lambda c: unicodedata.category(c).startswith(name)

    def char_escape(self) -> str:
        """After a backslash: an escape that stands for one character."""
        c = self.next()
        if c in _CONTROL:
            return _CONTROL[c]
        if c in "01234567":
            digits = c
            while len(digits) < 3 and self.pattern[self.at : self.at + 1] in tuple("01234567"):
                digits += self.next()
            if c != "0" and len(digits) == 1:
                raise self.fail("RE2 has no backreferences, found")
            return chr(int(digits, 8))
        if c == "x":
            digits = self.until("}") if self.accept("{") else self.next() + self.next()
            if not digits or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
                raise self.fail(f"invalid escape \\x with {digits!r}")
            return chr(int(digits, 16))
        if c.isascii() and not c.isalnum():
            return c
        raise self.fail(f"invalid escape \\{c}")

    def class_char(self) -> str:
        return self.char_escape() if self.accept("\\") else self.next()

    def char_class(self, flags: _Flags) -> Test:
        """After the opening bracket."""
        negated = self.accept("^")
        tests: list[Test] = []
        while not tests or not self.ahead("]"):
            if self.accept("[:"):
                inverse = self.accept("^")
                name = self.until(":]")
                if name not in _POSIX:
                    raise self.fail(f"unknown class [:{name}:]")
                tests.append(_negate(_POSIX[name]) if inverse else _POSIX[name])
                continue
            if self.ahead("\\"):
                self.at += 1
                test = self.class_escape(flags)
                if test is not None:
                    tests.append(test)
                    continue
                self.at -= 1
            low = self.class_char()
            if self.ahead("-") and not self.ahead("-]"):
                self.at += 1
                high = self.class_char()
                if high < low:
                    raise self.fail(f"invalid range {low}-{high}")
                tests.append(_span(low, high))
            else:
                tests.append(_one(low, flags.fold))
        self.at += 1
        test = _any_of(tests, flags.fold)
        return _negate(test) if negated else test


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _holds(kind: object, before: str | None, after: str | None) -> bool:
    """Whether an assertion is true between two characters; None stands for either end of the text."""
    match kind:
        case "start":
            return before is None
        case "end":
            return after is None
        case "line start":
            return before is None or before == "\n"
        case "line end":
            return after is None or after == "\n"
        case "word boundary":
            return _word(before) != _word(after)
        case _:
            return _word(before) == _word(after)


class Regex:
    """A compiled pattern.

    Raises:
        RegexError: if the pattern is invalid or not supported.
    """

    def __init__(self, pattern: str) -> None:
        # A state is (test, target) for a character, (assertion, target), or (None, targets) for a free move.
        self._chars: dict[int, tuple[Test, int]] = {}
        self._asserts: dict[int, tuple[object, int]] = {}
        self._moves: dict[int, tuple[int, ...]] = {}
        self._count = 1
        self._start = self._compile(_Parser(pattern).parse(), 0)
        self._cache: dict[tuple[frozenset[int], str | None, str], frozenset[int]] = {}

    def _new(self) -> int:
        if self._count >= _MAX_STATES:
            raise RegexError("the pattern is too large once its repetitions are written out")
        self._count += 1
        return self._count - 1

    def _compile(self, node: Node, target: int) -> int:
        """Adds the states that match ``node`` and then go on to ``target``; returns the first. State 0 accepts."""
        match node:
            case ("char", test):
                state = self._new()
                self._chars[state] = (test, target)  # type: ignore[assignment]
                return state
            case ("assert", kind):
                state = self._new()
                self._asserts[state] = (kind, target)
                return state
            case ("cat", list() as nodes):
                for child in reversed(nodes):
                    target = self._compile(child, target)
                return target
            case ("alt", list() as nodes):
                state = self._new()
                self._moves[state] = tuple(self._compile(child, target) for child in nodes)
                return state
            case ("repeat", tuple() as child, int() as low, high):
                return self._repeat(child, low, high, target)  # type: ignore[arg-type]
        raise AssertionError(node)

    def _repeat(self, child: Node, low: int, high: int | None, target: int) -> int:
        entry = target
        if high is None:
            entry = self._new()
            self._moves[entry] = (self._compile(child, entry), target)
        else:
            for _ in range(high - low):
                state = self._new()
                self._moves[state] = (self._compile(child, entry), target)
                entry = state
        for _ in range(low):
            entry = self._compile(child, entry)
        return entry

    def _closure(self, states: Iterable[int], before: str | None, after: str | None) -> set[int]:
        """All states that can be reached without reading a character."""
        seen = set(states)
        pending = list(seen)
        while pending:
            state = pending.pop()
            reached = self._moves.get(state, ())
            if state in self._asserts:
                kind, target = self._asserts[state]
                reached = (target,) if _holds(kind, before, after) else ()
            for other in reached:
                if other not in seen:
                    seen.add(other)
                    pending.append(other)
        return seen

    def _step(self, states: frozenset[int], before: str | None, char: str) -> frozenset[int]:
        closed = self._closure(states, before, char)
        moves = (self._chars[state] for state in closed if state in self._chars)
        return frozenset(target for test, target in moves if test(char))

    def fullmatch(self, text: str) -> bool:
        """Whether the whole of ``text`` matches."""
        states = frozenset((self._start,))
        before: str | None = None
        for char in text:
            key = (states, before if self._asserts else None, char)
            following = self._cache.get(key)
            if following is None:
                if len(self._cache) >= _MAX_CACHE:
                    self._cache.clear()
                following = self._cache[key] = self._step(states, before, char)
            if not following:
                return False
            states, before = following, char
        return 0 in self._closure(states, before, None)
