"""Seeds and streams."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hdcos.errors import InputError
from hdcos.ring import Blank, reference, streaming
from hdcos.sharing import Stream, derive, fresh_seed, prg
from hdcos.sharing.prg import expand

SEED = bytes(range(32))


@given(st.integers(1, 64), st.integers(0, 300), st.integers(0, 200))
def test_a_stream_read_in_pieces_is_the_stream(bits: int, offset: int, count: int) -> None:
    whole = Stream(SEED).words((offset + count,), bits)
    assert (Stream(SEED).words((count,), bits, offset) == whole[offset:]).all()
    assert whole.size == 0 or int(whole.max()) < 1 << bits


def test_a_stream_is_the_same_on_every_host() -> None:
    assert Stream(SEED).words((2,)).tolist() == [15032814528976949490, 9256919087594533801]
    assert derive(SEED, 1, "mask").hex() == ("bdc63f2b5d09f309baae27e220e312755f9fd131eb4db58b311842cbf824702b")


@pytest.mark.skipif(streaming() is None, reason="no vector AES here")
@given(st.binary(min_size=32, max_size=32), st.integers(0, 2**60 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2000))
def test_the_compiled_key_stream_is_that_of_the_library(key: bytes, block: int, keep: int, size: int) -> None:
    native = streaming()
    assert native is not None
    assert (native.keystream(key, block, keep, size) == reference.keystream(key, block, keep, size)).all()


def test_both_ways_of_expanding_a_seed_give_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = [(bits, offset, count) for bits in range(1, 65) for offset in (0, 1, 5, 64) for count in (0, 1, 7, 300)]
    fast = [Stream(SEED).words((count,), bits, offset) for bits, offset, count in reads]
    monkeypatch.setattr(prg, "streaming", lambda: None)
    slow = [Stream(SEED).words((count,), bits, offset) for bits, offset, count in reads]
    for one, other in zip(fast, slow, strict=True):
        assert one.dtype == other.dtype
        assert (one == other).all()


def test_pieces_longer_than_the_internal_buffer_join_seamlessly() -> None:
    long = Stream(SEED).words((300_000,))
    assert (long[131_060:131_090] == Stream(SEED).words((30,), offset=131_060)).all()


def test_different_labels_give_different_seeds() -> None:
    seeds = {derive(SEED, *labels) for labels in [(1, "a"), (1, "b"), (2, "a"), ("1", "a"), (1,), (), ("1a",)]}
    assert len(seeds) == 7


def test_a_stream_is_uniform_and_fresh_seeds_differ() -> None:
    values = Stream(fresh_seed()).words((100_000,), 8)
    assert stats.chisquare(np.bincount(values, minlength=256)).pvalue > 1e-9
    assert fresh_seed() != fresh_seed()


def test_a_seed_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(InputError, match="32 bytes"):
        Stream(b"short")


def test_while_planning_a_seed_expands_to_a_shape() -> None:
    assert isinstance(expand(Blank(32, np.uint8), (3, 4)), Blank)
