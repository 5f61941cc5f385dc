"""Words that only this project used to know are not used again: tests/words.toml lists them, and what to say instead.

`python tests/test_words.py [FOLDER]` prints each place where one is left, and how many there are in every package.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = tomllib.loads((ROOT / "tests" / "words.toml").read_text())
LOOKED_AT = ("src", "cpp", "docs", "examples", "benchmarks", "paper", "scripts", "tests", "deploy", ".github", ".ci")
KINDS = {".py", ".pyi", ".cpp", ".h", ".cu", ".html", ".js", ".md", ".toml", ".yaml", ".yml", ".txt", ".sh", ""}
LEFT_OUT = ("*/test_words.py", "*/words.toml", "docs/javascripts/*")
"""Those that name the words, and what others wrote. The changelog is history, and not looked at either."""
BORDERS = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=[0-9])")


@dataclass(frozen=True)
class Word:
    """A word to avoid, looked for in names taken apart into words, or (`as_is`) in the text as it stands."""

    pattern: re.Pattern[str]
    as_is: bool
    say: str
    exceptions: tuple[tuple[re.Pattern[str] | None, tuple[str, ...]], ...]

    def count(self, line: str, path: str = "") -> int:
        line = self._without_exceptions(line, path)
        if not self.as_is:
            line = self._without_exceptions(BORDERS.sub(" ", line), path)
        return len(self.pattern.findall(line))

    def _without_exceptions(self, line: str, path: str) -> str:
        for text, where in self.exceptions:
            if not where or any(fnmatch(path, pattern) for pattern in where):
                line = text.sub(" ", line) if text else ""
        return line


def words() -> Iterator[Word]:
    for entry in TABLE["words"]:
        as_is = "text" in entry
        pattern = re.compile(entry["text"]) if as_is else re.compile(rf"\b(?:{entry['word']})\b", re.IGNORECASE)
        exceptions = [
            (re.compile(one["text"]) if "text" in one else None, tuple(one.get("where", ())))
            for one in entry.get("but", ())
        ]
        yield Word(pattern, as_is, entry["say"], tuple(exceptions))


WORDS = tuple(words())
SOME_TEXT = re.compile("|".join(entry["text"] for entry in TABLE["words"] if "text" in entry))
SOME_WORD = re.compile(rf"\b(?:{'|'.join(entry['word'] for entry in TABLE['words'] if 'word' in entry)})\b")
"""All patterns at once: most lines have none of them."""


def files() -> Iterator[Path]:
    found = [path for folder in LOOKED_AT for path in (ROOT / folder).rglob("*")]
    found += [path for path in ROOT.glob("*") if path.name != "CHANGELOG.md"]
    for path in sorted(found):
        name = path.relative_to(ROOT).as_posix()
        hidden = any(part in ("results", "__pycache__") or part.endswith(".egg-info") for part in path.parts)
        hidden = hidden or any(fnmatch(name, pattern) for pattern in LEFT_OUT)
        if path.is_file() and path.suffix in KINDS and not hidden:
            yield path


def package(name: str) -> str:
    """src/hdcos/party of a file below it; tests of tests/party/test_state.py; . of README.md."""
    parts = name.split("/")[:-1]
    return "/".join(parts[:3] if parts[:2] == ["src", "hdcos"] else parts[:1]) or "."


def found() -> Iterator[tuple[str, int, str, str]]:
    """File, line (0 for the file's name), what it says, and what it should say: once for each time."""
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        for number, line in enumerate([name, *path.read_text().splitlines()]):
            if SOME_WORD.search(BORDERS.sub(" ", line).lower()) or SOME_TEXT.search(line):
                for word in WORDS:
                    yield from [(name, number, line.strip(), word.say)] * word.count(line, name)


def test_words_that_need_a_glossary_are_not_used() -> None:
    told = [f"{name}:{number}: {line}  ->  {say}" for name, number, line, say in found()]
    assert not told, "\n".join(told)


@pytest.mark.parametrize(
    ("line", "times"),
    [
        ("def own_half(words): ...", 1),
        ("class MadeStock:", 2),
        ("both halves of the key, half of the mask", 2),
        ("rounds by half a unit, test_half_the_time", 0),
        ("with oblivious transfer", 0),
        ("bind_oblivious(m)", 1),
        ("model.stock, config.stock.mark", 0),
        ("stock = engine.open(plan)", 1),
        ("Which rows form a batch is public.", 0),
        ("for tensor in form.tensors:", 1),
        ("if node.dealt:", 1),
        ("what is dealt by the dealer", 0),
        ("aggregated, celebration, markers, prerequisites", 0),
    ],
)
def test_a_word_is_found_in_names_and_sentences_and_may_mean_something_else(line: str, times: int) -> None:
    assert sum(word.count(line) for word in WORDS) == times


def test_every_exception_says_why() -> None:
    for entry in TABLE["words"]:
        assert entry["say"]
        assert all(exception["why"] for exception in entry.get("but", ()))


if __name__ == "__main__":
    everything = [place for place in found() if len(sys.argv) < 2 or place[0].startswith(sys.argv[1])]
    for name, number, line, say in everything:
        print(f"{name}:{number}: {line}  ->  {say}")
    for each, count in sorted(Counter(package(name) for name, *_ in everything).items()):
        print(f"{count:5} {each}")
