"""The options of `cluster.fit`, and what is checked of a run before anything of it is sent."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import Any, Required, TypedDict

from numpy.typing import ArrayLike

from hdcos.checks import check_name, check_whole
from hdcos.errors import InputError
from hdcos.nn import Network
from hdcos.nn.columns import Rows, column_names
from hdcos.nn.prepared import Prepared
from hdcos.ring import Array
from hdcos.secure.sizes import warn_of_equal_labels, warn_of_large_features
from hdcos.secure.training import training_plan
from hdcos.secure.training.augment import Augment
from hdcos.secure.training.plan import TrainingPlan
from hdcos.secure.training.rates import Rate, Schedule, epoch_rates
from hdcos.secure.training.rule import first_averaged
from hdcos.secure.training.shuffle import check_shuffle
from hdcos.secure.training.targets import OwnRows, named_sets, own_rows
from hdcos.secure.training.watch import SAMPLE, Watch
from hdcos.secure.training.weights import ClassWeight, class_weights

Data = Rows | str | list[str] | tuple[str, ...]
Labels = ArrayLike | None
Folder = str | os.PathLike[str]
UPLOADED = "uploaded"
"""As `sample_weight`: uploaded rows have their weights with them."""


class Options(TypedDict, total=False):
    """The options of `Cluster.fit`, for type checkers."""

    epochs: Required[int]
    batch_size: Required[int]
    lr: Required[Rate]
    loss: str
    momentum: float
    weight_decay: float
    scale_diagonals: bool
    flip: bool
    shift: int
    average: int
    shuffle: str
    schedule: Schedule
    warm_up: int
    validation: tuple[Rows, ArrayLike] | None
    watch: int
    patience: int | None
    class_weight: ClassWeight
    sample_weight: ArrayLike | None
    seed: int | None
    checkpoint: Folder | None
    checkpoint_every: int
    resume: Folder | None
    name: str | None
    progress: bool


@dataclass(frozen=True)
class Run:
    """A run of training that was found to make sense."""

    spec: dict[str, Any]
    """What both parties are told of it."""
    words: dict[str, Array]
    """Its first parameters."""
    watched: Watch | None
    own: OwnRows | None
    """Rows that came with the call; otherwise the data sets are named."""
    plan: TrainingPlan
    progress: bool
    patience: int | None
    """Epochs without a better one after which it stops, and the best one is kept; None for the last one."""
    every: int = 1
    """Epochs from one look at the watched rows to the next."""


def check_run(
    model: Network,
    x: Data,
    y: Labels,
    phase_bits: int,
    *,
    epochs: int,
    batch_size: int,
    lr: Rate,
    loss: str = "logistic",
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    scale_diagonals: bool = True,
    flip: bool = False,
    shift: int = 0,
    average: int = 0,
    shuffle: str = "rows",
    schedule: Schedule = None,
    warm_up: int = 0,
    validation: tuple[Rows, ArrayLike] | None = None,
    watch: int = SAMPLE,
    patience: int | None = None,
    class_weight: ClassWeight = None,
    sample_weight: ArrayLike | None = None,
    seed: int | None = None,
    checkpoint: Folder | None = None,
    checkpoint_every: int = 100,
    resume: Folder | None = None,
    name: str | None = None,
    progress: bool = True,
) -> Run:
    """A run as the parties will be told of it; whatever can be refused here is."""
    epochs, batch_size = check_whole(epochs, "epochs"), check_whole(batch_size, "batch_size")
    checkpoint_every = check_whole(checkpoint_every, "checkpoint_every")
    if seed is not None:
        seed = check_whole(seed, "seed", 0)
    if checkpoint is not None and resume is not None and os.path.abspath(checkpoint) != os.path.abspath(resume):
        raise InputError("a resumed run goes on in its own folder: leave `checkpoint` out")
    folder = resume if resume is not None else checkpoint
    number, name = secrets.token_hex(16), check_name(name or f"trained-{secrets.token_hex(4)}", "model name")
    model = model.remembering(column_names(x))
    if digests := getattr(x, "digests", ()):
        model = model.with_prepared([Prepared((), column_names(x) or (), digest) for digest in digests])
    weighted = class_weight is not None or sample_weight is not None
    plan = training_plan(model, loss, weighted)
    Augment.of(model, plan.front, flip, shift)
    first_averaged(average, epochs)
    check_shuffle(shuffle)
    watched = None if validation is None else Watch.validation(model, loss, validation)
    if patience is not None:
        patience = _check_patience(patience, watched, average, folder)
    rates = epoch_rates(
        model, loss, batch_size, lr, schedule, epochs, momentum, weight_decay, scale_diagonals, warm_up, weighted
    )
    named, own, column = named_sets(plan, x, y), None, False
    of_classes: tuple[float, ...] = ()
    if named is not None:
        of_classes, column = _named_weights(class_weight, sample_weight, plan.outputs, loss)
    else:
        own = own_rows(plan, model, x, y, loss, sample_weight, class_weight)
        column = own.weights is not None
        watched = watched or Watch.sample(model, loss, own.rows, own.targets, watch)
        if batch_size > len(own.rows):
            raise InputError(f"a batch of {batch_size} rows cannot be drawn from {len(own.rows)}")
        warn_of_large_features(own.shared, model.feature_names, stacklevel=4)
        warn_of_equal_labels(own.targets, stacklevel=4)
    names, join = named or ([f"rows-{number}"], "rows")
    spec = {
        "id": number,
        "model": name,
        "architecture": model.architecture(),
        "phase_bits": phase_bits,
        "datasets": names,
        "join": join,
        "loss": loss,
        "batch_size": batch_size,
        "rates": rates,
        "momentum": float(momentum),
        "weight_decay": float(weight_decay),
        "scale_diagonals": bool(scale_diagonals),
        "flip": flip,
        "shift": int(shift),
        "average": int(average),
        "shuffle": shuffle,
        # A run that goes on has its seed already.
        "seed": secrets.randbits(32) if seed is None and resume is None else seed,
        "checkpoint_every": checkpoint_every,
        "checkpoint": "" if folder is None else os.path.abspath(folder),
        "resume": resume is not None,
        "publish": "end" if watched is None else "epoch" if patience is None else "best",
    }
    if weighted:  # parties of earlier releases know nothing of weights, and need not be told that there are none
        spec |= {"weighted": column, "class_weight": list(of_classes)}
    return Run(spec, plan.words(model), watched, own, plan, progress, patience)


def _check_patience(patience: int, watched: Watch | None, average: int, folder: Folder | None) -> int:
    """How many epochs without a better one a run goes on for."""
    if watched is None:
        raise InputError("patience judges epochs by rows that are not trained on: pass validation=(rows, labels)")
    if average:
        raise InputError("patience takes the weights of the best epoch, average a mean of the last ones: leave one out")
    if folder is not None:
        raise InputError(
            "a run with patience cannot be resumed, as how its epochs did is known to the process that saw them alone: "
            "leave `checkpoint` and `resume` out"
        )
    return check_whole(patience, "patience")


def _named_weights(
    class_weight: ClassWeight, sample_weight: ArrayLike | None, outputs: int, loss: str
) -> tuple[tuple[float, ...], bool]:
    """Weights of classes of uploaded rows, and whether the rows bring weights of their own."""
    column = isinstance(sample_weight, str) and sample_weight == UPLOADED
    if sample_weight is not None and not column:
        raise InputError(
            f"weights of uploaded rows were uploaded with them: sample_weight={UPLOADED!r} says that they are used"
        )
    classes = class_weights(class_weight, outputs, loss)
    if column and classes:
        raise InputError("uploaded rows have weights of their own or of their classes, not both: multiply them before")
    return classes, column
