"""Images that are mirrored and shifted on shares are the mirrored and shifted images, word for word."""

import numpy as np
import pytest

from hdcos import nn
from hdcos.errors import InputError, ModelError
from hdcos.ring import encode
from hdcos.secure.training import training_plan
from hdcos.secure.training.augment import Augment
from hdcos.secure.training.plan import INPUT_SCALE
from hdcos.sharing import join
from hdcos.testing.pair import share_pair

SHAPE = (2, 4, 6)


def by_hand(image, mirrored, down, right):
    """One image, pixel by pixel."""
    found = np.zeros_like(image)
    _, height, width = image.shape
    for y in range(height):
        for x in range(width):
            from_y, from_x = y - down, x - right
            if 0 <= from_y < height and 0 <= from_x < width:
                found[:, y, x] = image[:, from_y, width - 1 - from_x if mirrored else from_x]
    return found


@pytest.mark.parametrize(("flip", "shift"), [(True, 0), (False, 2), (True, 3)])
def test_moved_shares_are_shares_of_the_moved_images(flip, shift) -> None:
    augment = Augment(flip, shift, SHAPE)
    images = np.random.default_rng(0).normal(size=(50, *SHAPE))
    drawn = augment.draw(7, 3, 50)
    expected = np.stack([by_hand(image, *moves) for image, moves in zip(images, drawn, strict=True)])
    assert np.array_equal(augment.move(images, drawn), expected)
    words = encode(images.reshape(50, -1), INPUT_SCALE)
    moved = join(*(augment.move(share.words, drawn) for share in share_pair(words, INPUT_SCALE)))
    assert np.array_equal(moved, encode(expected.reshape(50, -1), INPUT_SCALE))


def test_every_choice_is_drawn_and_each_epoch_has_its_own() -> None:
    augment = Augment(True, 2, SHAPE)
    drawn = augment.draw(7, 3, 2000)
    assert [sorted(set(column)) for column in drawn.T.tolist()] == [[0, 1], [-2, -1, 0, 1, 2], [-2, -1, 0, 1, 2]]
    assert np.array_equal(drawn, augment.draw(7, 3, 2000))
    assert not np.array_equal(drawn, augment.draw(7, 4, 2000))
    assert not np.array_equal(drawn, augment.draw(8, 3, 2000))
    assert not Augment(False, 0, SHAPE).draw(7, 3, 50).any()


def of(layers, input_shape, flip=True, shift=1):
    model = nn.Sequential(layers, 0, input_shape)
    return Augment.of(model, training_plan(model).front, flip, shift)


def test_rows_are_images_behind_pooling_and_flattening() -> None:
    head = [nn.HadamardDiagonal(16, 3)]
    assert of([nn.Flatten(), *head], (1, 4, 4)).shape == (1, 4, 4)
    assert of([nn.AvgPool2d(2), nn.Flatten(), *head], (1, 8, 8)).shape == (1, 4, 4)
    assert of([nn.Conv2d(1, 4, 3), nn.Cos(), nn.Flatten(), nn.Dense(16, 3)], (1, 4, 4)).shape == (1, 4, 4)
    assert of(head, (16,), False, 0) is None


@pytest.mark.parametrize(
    ("layers", "shape", "changes", "error", "words"),
    [
        ([nn.HadamardDiagonal(16, 3)], (16,), {}, ModelError, r"for images.*takes \(16,\)"),
        ([nn.Flatten(), nn.RandomProjection(16, 8), nn.Dense(8, 3)], (1, 4, 4), {}, ModelError, "RandomProjection"),
        ([nn.Flatten(), nn.Dense(16, 3)], (1, 4, 4), {"shift": 4}, InputError, "out of sight"),
        ([nn.Flatten(), nn.Dense(16, 3)], (1, 4, 4), {"shift": -1}, InputError, "shift must be a whole number"),
        ([nn.Flatten(), nn.Dense(16, 3)], (1, 4, 4), {"flip": 2}, InputError, "flip is True or False"),
    ],
)
def test_what_cannot_be_moved_is_refused_by_name(layers, shape, changes, error, words) -> None:
    with pytest.raises(error, match=words):
        of(layers, shape, **changes)
