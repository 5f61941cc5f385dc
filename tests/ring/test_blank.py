"""A Blank has the shape and dtype that the real array would have."""

import operator
import tracemalloc

import numpy as np
import pytest

from hdcos import ring
from hdcos.ring import Blank


def like(x):
    return Blank(x.shape, x.dtype) if isinstance(x, np.ndarray) else x


def agree(blank, real):
    for b, r in zip(blank, real, strict=True) if isinstance(real, tuple) else [(blank, real)]:
        assert (b is None) == (r is None)
        if r is not None:
            assert isinstance(b, Blank)
            assert (b.shape, b.dtype, b.size, b.ndim, b.nbytes) == (
                r.shape,
                r.dtype,
                r.size,
                r.ndim,
                r.nbytes,
            )


U64, U16 = np.uint64, np.uint16
CALLS = [
    (ring.matmul, (np.ones((2, 3), U64), np.ones((3, 4), U64))),
    (ring.matmul, (np.ones((2, 3), U64), np.ones((3, 4), U64), np.ones((2, 4), U64))),
    (ring.conv2d, (np.ones((2, 3, 8, 9), U64), np.ones((5, 3, 3, 2), U64), 2, 1)),
    (ring.walsh_hadamard, (np.ones((2, 3, 8), U64),)),
    (ring.walsh_hadamard, (np.ones((2, 8), U64), np.ones((2, 8), U64))),
    (ring.round_open, (np.ones((2, 3), U64), np.ones((2, 3), U16), 20, 12)),
    (ring.round_open, (np.ones((2, 3), U64), None, 20, 40)),
    (ring.pack, (np.ones((5, 3), U16), 12)),
    (ring.pack, (np.ones(4, U64), 64)),
    (ring.unpack, (np.zeros(8, np.uint8), 5, 12)),
    (ring.trig_words, (np.ones((2, 3), U16), 16, 14)),
    (ring.rotate, (np.ones((2, 3), U16), np.ones((2, 3), U64), np.ones((2, 3), U64), 16, 14)),
    (ring.rotate, (np.ones((2, 3), U16), np.ones((2, 3), U64), np.ones((2, 3), U64), 16, 14, False, True)),
    (
        ring.trig_combine,
        (np.ones(4, U16), np.ones((4, 2), U64), np.ones((4, 2), U64), 16, 14, *np.ones((3, 2), np.int64)),
    ),
    (ring.sign_combine, (*np.ones((2, 4), np.uint8), np.ones(4, U16), np.ones(4, np.uint8), ring.sign_rules(4), True)),
    (ring.dcf_words, (*np.ones((3, 3, 2), U64), np.ones(3, np.uint32), 20)),
    (ring.dcf_share, (*np.ones((2, 3, 2), U64), np.ones((3, 13, 2), U64), np.ones(3, np.uint32), 20, True)),
    (ring.pick, (np.ones((2, 3, 4), U64), np.ones((2, 3), np.uint8))),
    (ring.encode, (np.ones((2, 3)), 16)),
    (ring.decode, (np.ones((2, 3), U64), 16)),
]


@pytest.mark.parametrize(("kernel", "arguments"), CALLS, ids=lambda x: getattr(x, "__name__", ""))
def test_every_kernel_plans_the_shape_it_computes(kernel, arguments):
    real = kernel(*arguments)
    agree(kernel(*map(like, arguments)), real)
    for position, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            agree(kernel(*arguments[:position], like(argument), *arguments[position + 1 :]), real)


@pytest.mark.parametrize("f", [operator.add, operator.mul, operator.sub, operator.and_, operator.rshift, operator.lt])
@pytest.mark.parametrize("other", [np.ones((3, 1), U16), 3, np.uint64(3), np.ones((2, 1, 4), U64)])
def test_operators_broadcast_and_promote_as_numpy_does(f, other):
    x = np.ones((3, 4), U64)
    agree(f(like(x), other), f(x, other))
    agree(f(like(x), like(other)), f(x, other))
    agree(f(other, like(x)), f(other, x))


def test_other_ufuncs_work():
    x = np.ones((3, 4), U64)
    agree(-like(x), -x)
    agree(np.divmod(like(x), 3), np.divmod(x, 3))
    agree(np.multiply(like(x), 0.5), np.multiply(x, 0.5))


def test_in_place_operators_keep_the_target():
    x = target = Blank((3, 4))
    x += np.ones(4, U64)
    assert x is target
    with pytest.raises(ValueError, match="shapes"):
        x += Blank((2, 3, 4))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.reshape(4, -1),
        lambda x: x.reshape((2, 12)),
        lambda x: x.ravel(),
        lambda x: x.copy(),
        lambda x: x.astype(np.uint8),
        lambda x: x.T,
        lambda x: x.transpose(1, 0, 2),
        lambda x: x.transpose((2, 0, 1)),
        lambda x: x.sum(0),
        lambda x: x.sum((0, -1)),
        lambda x: x.sum(axis=1, keepdims=True),
        lambda x: x[0],
        lambda x: x[..., None, 1],
        lambda x: x[:, ::2, -1],
        lambda x: x.astype(np.uint16).sum(0),
    ],
)
def test_methods_give_the_shape_of_the_real_ones(f):
    x = np.ones((2, 3, 4), U64)
    agree(f(like(x)), f(x))


def test_a_sum_over_everything_has_no_dimensions():
    assert Blank((2, 3)).sum().shape == ()
    assert np.sum(Blank((2, 3)), axis=0).shape == (3,)


def test_length_is_the_first_dimension():
    assert len(Blank((5, 2))) == 5
    with pytest.raises(TypeError):
        len(Blank(()))


def test_assignment_checks_the_shape_only():
    x = Blank((2, 3))
    x[0] = np.ones(3, U64)
    x[1] = 7
    with pytest.raises(ValueError, match="broadcast"):
        x[0] = np.ones(4, U64)


def test_a_large_blank_takes_no_memory():
    assert Blank((2**20, 2**20)).reshape(-1)[::2].nbytes == 2**42


def test_a_blank_never_becomes_values():
    with pytest.raises(TypeError, match="no values"):
        np.asarray(Blank((2,)))
    with pytest.raises(IndexError):
        Blank((2,))[5]


@pytest.mark.parametrize(
    "key",
    [
        np.array([3, 0, 3]),
        [1, 2],
        (slice(None), [0, 2, 2, 1]),
        (..., [1, 0]),
        (..., [[1, 0], [2, 2], [0, 0]], slice(None)),
        (slice(1, 3), np.array([2]), ...),
        (None, slice(None), [0, 1]),
        (..., [1], None),
        (1, [0, 2]),
        ([0, 1], slice(None), [0, 1]),
        np.array([True, False, True, True]),
    ],
)
def test_places_of_a_blank_are_chosen_as_those_of_an_array(key) -> None:
    assert Blank((4, 3, 5))[key].shape == np.zeros((4, 3, 5))[key].shape


def test_choosing_places_of_a_blank_makes_no_values() -> None:
    tracemalloc.start()
    assert Blank((1 << 40, 100))[:, [3] * 1000].shape == (1 << 40, 1000)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()
    with pytest.raises(IndexError):
        Blank((4, 3))[:, [3]]
