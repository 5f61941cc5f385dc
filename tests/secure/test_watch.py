"""What predictions of the caller's own rows say: the loss that is trained, the accuracy, and that training diverged."""

import numpy as np
import pytest
import torch

from hdcos import nn
from hdcos.errors import RangeError
from hdcos.secure.training.targets import one_hot
from hdcos.secure.training.watch import Watch, class_accuracy, mean_loss

GENERATOR = np.random.default_rng(0)
ROWS, LABELS = GENERATOR.uniform(-1, 1, (50, 6)), GENERATOR.integers(0, 3, 50)
TARGETS = one_hot(LABELS, 3)
MODEL = nn.models.mlp([6, 8, 3])


def test_the_loss_is_the_one_that_is_trained() -> None:
    scores = GENERATOR.normal(size=(50, 3))
    z, t = torch.from_numpy(scores), torch.from_numpy(TARGETS)
    logistic = torch.nn.functional.binary_cross_entropy_with_logits(z, t, reduction="sum") / 50
    assert mean_loss(scores, TARGETS, "logistic") == pytest.approx(logistic.item())
    assert mean_loss(scores, TARGETS, "squared") == pytest.approx((0.5 * (z - t) ** 2).sum().item() / 50)
    two = scores[:, :2]
    entropy = torch.nn.functional.cross_entropy(torch.from_numpy(two), torch.from_numpy(LABELS % 2))
    assert mean_loss(two, one_hot(LABELS % 2, 2), "softmax") == pytest.approx(entropy.item()), "exact for two classes"


def test_accuracy_is_that_of_classes() -> None:
    assert class_accuracy(TARGETS, TARGETS, "logistic") == 1.0
    assert class_accuracy(np.array([[0.4], [0.6]]), np.array([[1.0], [1.0]]), "squared") == 0.5
    assert class_accuracy(np.array([[-1.0], [1.0]]), np.array([[0.0], [1.0]]), "logistic") == 1.0
    assert class_accuracy(TARGETS, TARGETS * 2.5, "squared") is None


@pytest.mark.parametrize(
    ("loss", "size", "words"),
    [
        ("logistic", 25.0, r"the loss of your training rows was .* at the start, now it is 75"),
        ("logistic", 60.0, "beyond the 56"),
        ("softmax", 29.0, "beyond the 56"),
        ("softmax", 15.0, "now it is"),
        ("squared", 20.0, "now it is"),
        ("squared", 1e200, "beyond the 256"),
        ("logistic", np.nan, "now it is nan"),
    ],
)
def test_divergence_is_one_sentence_with_a_remedy(loss, size, words) -> None:
    watched = Watch.sample(MODEL, loss, ROWS, TARGETS, 256)
    with pytest.raises(RangeError, match=words) as said:
        watched.epoch(7, 1.0, size * (1 - 2 * watched.targets))
    assert "training diverged in epoch 7" in str(said.value)
    assert "use a smaller learning rate" in str(said.value)
    assert "\n" not in str(said.value)


def test_a_single_layer_has_more_room_for_its_logits() -> None:
    one, several = (Watch.sample(nn.models.mlp(sizes), "logistic", ROWS, TARGETS, 256) for sizes in ([6, 3], [6, 8, 3]))
    assert one.epoch(1, 1.0, 200.0 * one.targets - 100.0).loss < 1e-6
    with pytest.raises(RangeError, match="beyond the 56"):
        several.epoch(1, 1.0, 200.0 * several.targets - 100.0)


def test_a_good_start_that_gets_somewhat_worse_has_not_diverged() -> None:
    watched = Watch(ROWS, TARGETS, "training rows", "logistic", start=1e-4, largest=56)
    assert watched.epoch(1, 1.0, 0.1 * TARGETS).loss > 1.0


def test_rows_that_are_not_trained_on_may_have_a_large_loss() -> None:
    """Being too sure of itself is not divergence."""
    watched = Watch.validation(MODEL, "logistic", (ROWS, LABELS))
    assert watched.epoch(1, 1.0, 25.0 * (1 - 2 * TARGETS)).loss > 70


def test_a_sample_is_bounded_and_mixed() -> None:
    ordered = np.repeat([0, 1, 2], 1000)
    watched = Watch.sample(MODEL, "logistic", np.zeros((3000, 6)), one_hot(ordered, 3), 256)
    assert watched.rows.shape == (256, 6)
    assert (watched.targets.sum(0) > 50).all(), "rows sorted by class are no sample of one class"
    assert Watch.sample(MODEL, "logistic", ROWS, TARGETS, 0) is None
