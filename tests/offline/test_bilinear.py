"""Products and their gradients against autograd: the identity a layer's gradients must satisfy."""

import numpy as np
import pytest
import torch

from hdcos import ring
from hdcos.errors import InputError
from hdcos.offline.bilinear import Bilinear, circulant
from hdcos.ring import Blank

ROWS = 5
CASES = {
    "matmul": ((6,), (6, 4), {}),
    "circulant": ((6,), (7,), {}),
    "conv2d": ((2, 7, 7), (3, 2, 3, 3), {}),
    "conv2d padded": ((2, 7, 7), (3, 2, 3, 3), {"padding": 1}),
    "conv2d stride": ((2, 8, 8), (3, 2, 3, 3), {"stride": 2, "padding": 1}),
    "conv2d stride with a rest": ((1, 9, 8), (2, 1, 2, 2), {"stride": 3}),
}


def plain(operation, x, w, options):
    if operation == "matmul":
        return x @ w
    if operation == "circulant":
        n = len(w)
        index = (torch.arange(5)[None, :] - torch.arange(6)[:, None]) % n
        return x @ w[index]
    return torch.nn.functional.conv2d(x, w, **options)


@pytest.mark.parametrize("name", CASES)
def test_products_and_both_gradients_are_those_of_autograd(name):
    operation = name.split()[0]
    input_shape, weight_shape, options = CASES[name]
    generator = np.random.default_rng(0)
    x, w = (generator.integers(-9, 9, shape) for shape in ((ROWS, *input_shape), weight_shape))
    tensors = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (x, w)]
    y = plain(operation, *tensors, options)
    g = generator.integers(-9, 9, tuple(y.shape))
    (y * torch.from_numpy(g)).sum().backward()
    words = [v.astype(np.int64).view(np.uint64) for v in (x, w, g)]
    shape = tuple(y.shape[1:])
    results = {
        operation: (Bilinear(operation, shape, **options), words[0], words[1], y.detach().numpy()),
        "weight": (Bilinear(f"{operation}.weight", weight_shape, **options), words[0], words[2], tensors[1].grad),
        "input": (Bilinear(f"{operation}.input", input_shape, **options), words[2], words[1], tensors[0].grad),
    }
    for product, left, right, expected in results.values():
        made = product(left, right)
        np.testing.assert_array_equal(made.view(np.int64), np.asarray(expected))
        blank = product(Blank(left.shape), Blank(right.shape))
        assert blank.shape == made.shape


@pytest.mark.parametrize("options", [{"groups": 2}, {"groups": 4, "padding": 1}, {"dilation": 2, "stride": 2}])
def test_convolutions_with_groups_and_dilation_are_pytorchs_by_their_kernel_and_as_matrices(options):
    generator = np.random.default_rng(0)
    x, w = (generator.integers(-9, 9, shape) for shape in ((ROWS, 4, 8, 7), (8, 4 // options.get("groups", 1), 3, 3)))
    expected = torch.nn.functional.conv2d(torch.from_numpy(x).double(), torch.from_numpy(w).double(), **options)
    product = Bilinear("conv2d", tuple(expected.shape[1:]), **options)
    words = [v.astype(np.int64).view(np.uint64) for v in (x, w)]
    made = product.matrices(*words)
    for result in (product(*words), made.back(ring.matmul(made.A, made.B))):
        np.testing.assert_array_equal(result.view(np.int64), expected.numpy())
    blank = product.matrices(*(Blank(each.shape) for each in words))
    assert (blank.A.shape, blank.B.shape) == (made.A.shape, made.B.shape)
    assert product.fits(x.shape[1:], w.shape)
    assert not product.fits((6, 8, 7), w.shape)
    _, multiplications = product.work(x.shape[1:], w.shape)
    assert multiplications >= np.prod(expected.shape[1:]) * np.prod(w.shape[1:])


@pytest.mark.parametrize("shape", [(3,), (3, 4, 5)])
def test_a_product_by_channels_has_one_number_for_each(shape):
    generator = np.random.default_rng(0)
    x, w = (generator.integers(0, 99, each).astype(np.uint64) for each in ((ROWS, *shape), (3,)))
    product = Bilinear("channels", shape)
    expected = np.stack([x[:, channel] * w[channel] for channel in range(3)], axis=1)
    np.testing.assert_array_equal(product(x, w), expected)
    assert product(Blank(x.shape), Blank((3,))).shape == x.shape
    assert product.fits(shape, (3,))
    assert not product.fits(shape, (4,))


def test_gradients_have_neither_groups_nor_dilation():
    with pytest.raises(InputError, match=r"conv2d\.input has neither groups nor a dilation"):
        Bilinear("conv2d.input", (2, 8, 8), groups=2)


def test_a_circulant_matrix_repeats_its_weights():
    matrix = circulant(np.arange(4, dtype=np.uint64), 4, 3)
    assert matrix.tolist() == [[0, 1, 2], [3, 0, 1], [2, 3, 0], [1, 2, 3]]


def test_an_unknown_product_is_refused():
    with pytest.raises(InputError, match="xor"):
        Bilinear("xor", ())
