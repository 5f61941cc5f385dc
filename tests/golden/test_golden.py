"""What the parties say to each other, word for word: a move or a renaming must not change it.

Where the arithmetic is meant to change, `python tests/golden/cases.py` writes the file again, and the commit says why.
"""

from __future__ import annotations

import json

import pytest

from golden.cases import FILE, cases, measured

CASES = dict(cases())
GOLDEN = json.loads(FILE.read_text())


def test_every_case_is_in_the_file() -> None:
    assert set(GOLDEN) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_rounds_bytes_and_messages_are_what_they_were(name: str) -> None:
    assert measured(name, CASES[name]) == GOLDEN[name]
