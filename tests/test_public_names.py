"""The public names: a change here is a change for users."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hdcos
from hdcos import errors


def test_the_package_offers_what_it_promises() -> None:
    assert sorted(hdcos.__all__) == ["__version__", "connect", "data", "local", "nn", "sklearn", "tables"]
    assert callable(hdcos.local)
    with pytest.raises(AttributeError, match="no attribute 'connekt'"):
        hdcos.connekt  # noqa: B018


def test_the_error_tree_is_the_one_that_is_drawn() -> None:
    drawn = {word for word in (errors.__doc__ or "").split() if word in errors.NAMED}
    assert drawn == set(errors.NAMED)
    assert all(issubclass(kind, errors.HdcosError) for kind in errors.NAMED.values())
    assert issubclass(errors.RangeError, errors.InputError)
    assert isinstance(errors.remote("PeerLost", "x"), errors.PeerLost)
    assert type(errors.remote("Nonsense", "x")) is errors.HdcosError


def test_a_part_of_the_package_does_not_load_the_rest() -> None:
    program = "import sys, hdcos.ring; print('hdcos.cluster' in sys.modules, 'cryptography' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["False", "False"]
