"""What a client may send to a party over HTTPS: every body and query, field by field, with its limits.

They are declared here and nowhere else: parties check by them what arrives, and OpenAPI and the tables of docs/http.md
are made from them. Limits that an operator sets (`[limits]` of node.toml) come on top. Fields that are not declared are
refused by name, except in predictions: there the Open Inference Protocol wants them ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from hdcos.api.bodies import Tensor
from hdcos.checks import ID, ID_WORDS, NAME, NAME_WORDS, OWNED, OWNED_WORDS
from hdcos.secure.compile import MOST_PHASE_BITS, PHASE_BITS, WHOLE_TURN

MOST_EPOCHS = 10_000
MOST_AUDITED = 1000
Id = Annotated[str, Meta(pattern=ID, description=ID_WORDS)]
Name = Annotated[str, Meta(pattern=NAME, description=NAME_WORDS)]
Owned = Annotated[str, Meta(pattern=OWNED, description=OWNED_WORDS)]
Client = Annotated[str, Meta(min_length=1, max_length=100)]
Mode = Literal["shares", "masked"]
Output = Literal["logits", "label"]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)", description="64 hexadecimal digits, a SHA-256")]
Rows = Annotated[int, Meta(ge=1, le=1 << 40)]
Columns = Annotated[int, Meta(ge=1, le=1 << 24)]
Epoch = Annotated[int, Meta(ge=1, le=MOST_EPOCHS)]
Real = Annotated[float, Meta(ge=-1e9, le=1e9)]
Coefficient = Annotated[int, Meta(ge=-(10**15), le=10**15)]
MaskIds = Annotated[list[str], Meta(min_length=1)]
Architecture = Annotated[Any, Meta(description="the layers of a network, as `model.architecture()` gives them")]
if TYPE_CHECKING:
    PhaseBits = int
else:  # a type checker wants the numbers of a Literal written out
    PhaseBits = Annotated[
        Literal[(*range(8, MOST_PHASE_BITS + 1), WHOLE_TURN)],
        Meta(description=f"a whole number from 8 to {MOST_PHASE_BITS}, or {WHOLE_TURN} for whole turns"),
    ]


class Request(Struct, frozen=True, forbid_unknown_fields=True):
    """What has these fields and no others."""


class InferParameters(Struct, frozen=True):
    """How the rows come, and what is wanted of them. `mode` masked needs `mask_ids`, one for each row."""

    request_id: Id | UnsetType = UNSET
    mode: Mode = "shares"
    mask_ids: MaskIds | UnsetType = UNSET
    scale_bits: Annotated[int, Meta(ge=0, le=64)] | UnsetType = UNSET
    version: Id | UnsetType = UNSET
    output: Output = "logits"


class InferRequest(Struct, frozen=True):
    """Rows to predict: one tensor, `input`. The request id is a parameter, or the protocol's own `id`."""

    inputs: list[Tensor]
    parameters: InferParameters = InferParameters()
    id: str = ""
    outputs: list[Any] = []


class MasksRequest(Request, frozen=True):
    """Party 0 is asked for `rows`, party 1 for the `mask_ids` that party 0 gave."""

    rows: Rows | UnsetType = UNSET
    mask_ids: MaskIds | UnsetType = UNSET


class PrepareRequest(Request, frozen=True):
    """Rows to keep material for; with `output` label, that of their labels as well."""

    rows: Rows
    mode: Mode = "masked"
    output: Output = "logits"


class ModelParameters(Request, frozen=True):
    """What a model is; the version is drawn by the client and is the same at both parties."""

    architecture: Architecture
    version: Id
    phase_bits: PhaseBits = PHASE_BITS


class ModelRequest(Request, frozen=True):
    """A party's share of a model: its tensors by name."""

    inputs: list[Tensor]
    parameters: ModelParameters


class SeriesParameters(Request, frozen=True):
    """A trigonometric series: one cosine and one sine coefficient per harmonic, as integers over 2^20."""

    period_bits: Annotated[int, Meta(ge=0, le=20)]
    harmonics: Annotated[list[Annotated[int, Meta(ge=1, le=1024)]], Meta(min_length=1, max_length=64)]
    constant: Coefficient
    cos: Annotated[list[Coefficient], Meta(min_length=1, max_length=64)]
    sin: Annotated[list[Coefficient], Meta(min_length=1, max_length=64)]
    interval_bits: Annotated[int, Meta(ge=0, le=12)] = 2


class FunctionParameters(Request, frozen=True):
    """Of a function, those that it has; what is left out is as the catalogue has it."""

    phase_bits: Annotated[int, Meta(ge=1, le=40)] | UnsetType = UNSET
    drop: Annotated[int, Meta(ge=0, le=63)] | UnsetType = UNSET
    bits: Annotated[int, Meta(ge=2, le=63)] | UnsetType = UNSET
    coefficients: Annotated[list[Real], Meta(min_length=3, max_length=4)] | UnsetType = UNSET
    coefficient_scale: Annotated[int, Meta(ge=0, le=63)] | UnsetType = UNSET
    stride: Annotated[int, Meta(ge=1, le=1 << 16)] | UnsetType = UNSET
    padding: Annotated[int, Meta(ge=0, le=1 << 16)] | UnsetType = UNSET
    series: SeriesParameters | UnsetType = UNSET
    way: Literal["tables", "dcf"] | UnsetType = UNSET
    threshold: Real | UnsetType = UNSET
    slope: Real | UnsetType = UNSET
    low: Real | UnsetType = UNSET
    high: Real | UnsetType = UNSET


class FunctionRequest(Request, frozen=True):
    """A function of the catalogue, and the shapes of its inputs; both parties are told the same."""

    function: Annotated[str, Meta(max_length=40)]
    shapes: Annotated[
        list[Annotated[list[Annotated[int, Meta(ge=1, le=1 << 24)]], Meta(min_length=1, max_length=8)]],
        Meta(min_length=1, max_length=4),
    ]
    parameters: FunctionParameters = FunctionParameters()
    ahead: Annotated[int, Meta(ge=0, le=1 << 24)] = 0
    """Executions that material is kept available for."""


class PrepareFunctionRequest(Request, frozen=True):
    """Executions to have material made for, all that were asked for before included; `wait` until it is here."""

    executions: Annotated[int, Meta(ge=1, le=1 << 53)]
    wait: bool = True


class EvaluateParameters(Request, frozen=True):
    """The id is drawn by the client for this call, and is the same at both parties."""

    request_id: Id


class EvaluateRequest(Request, frozen=True):
    """A party's share of a function's inputs: the tensors `input0`, `input1` and so on."""

    inputs: list[Tensor]
    parameters: EvaluateParameters


class DatasetRequest(Request, frozen=True):
    """An upload that begins; the version is drawn by the client and is the same at both parties."""

    name: Name
    version: Id
    features: Columns
    outputs: Annotated[int, Meta(ge=0, le=1 << 24)]
    rows: Annotated[int, Meta(ge=1, le=1 << 32)] | None = None
    """May be left out by_rows: the bytes tell when the upload is complete."""
    columns: list[Annotated[str, Meta(min_length=1, max_length=200)]] | None = None
    by_rows: bool = False
    """Whether the bytes are those of the rows, each its features, then its targets; else all features come first."""
    join: Id | None = None
    """The join that put the rows into their order, if one did: the same with both owners of the columns."""
    keep_days: Annotated[float, Meta(gt=0, le=36500)] | None = None
    """Until it is removed; otherwise as long as the operator keeps data sets."""
    job: Id | None = None
    """The job whose rows these are: they go when it ends."""
    preparation: Digest | None = None
    """Of what made the features of a table, where something did: rows that are joined must have the same."""


class UploadQuery(Request, frozen=True):
    """Where in an upload the bytes of a body belong."""

    offset: Annotated[int, Meta(ge=0, le=10**15)]


class CompleteRequest(Request, frozen=True):
    """The hash of all bytes of an upload; `number` is the larger one of those that the parties gave it."""

    sha256: Annotated[str, Meta(max_length=100)]
    number: Annotated[int, Meta(ge=0, le=10**9)] = 0


class MeetingQuery(Request, frozen=True):
    """The other client at a meeting."""

    guest: Client


class MessageQuery(Request, frozen=True):
    """The other client at a meeting, and the number of a message to it, from 0."""

    guest: Client
    number: Annotated[int, Meta(ge=0, le=1 << 40)]


class ReceiveQuery(Request, frozen=True):
    """The other client at a meeting, the number of a message from it, and how long to wait for that."""

    guest: Client
    number: Annotated[int, Meta(ge=0, le=1 << 40)]
    wait_s: Annotated[float, Meta(ge=0, le=20)] = 0.0


class StatisticsParameters(Request, frozen=True):
    """What the owners agreed on; the id is drawn by the client for its contribution and is the same at both parties."""

    name: Name
    id: Id
    agreement: Digest
    """Of the declaration of columns."""
    numbers: Annotated[int, Meta(ge=1, le=1 << 16)]
    owners: Annotated[int, Meta(ge=2, le=1000)]
    clients: Annotated[list[Client], Meta(max_length=1000)] = []
    """Who the owners are, if that is agreed; anybody otherwise who may upload."""


class StatisticsRequest(Request, frozen=True):
    """A party's share of an owner's sums: the tensor `share`, eight words for each number."""

    inputs: list[Tensor]
    parameters: StatisticsParameters


class GrantRequest(Request, frozen=True):
    """Who else may train on a data set."""

    dataset: Name
    client: Client


class JobParameters(Request, frozen=True):
    """A run of training. Both parties must be told the same."""

    id: Id
    model: Name
    architecture: Architecture
    datasets: Annotated[list[Owned], Meta(min_length=1, max_length=100)]
    batch_size: Annotated[int, Meta(ge=1, le=1 << 24)]
    rates: Annotated[list[Real], Meta(min_length=1, max_length=MOST_EPOCHS)]
    """One per epoch."""
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    phase_bits: PhaseBits = PHASE_BITS
    join: Literal["rows", "columns"] = "rows"
    loss: Literal["logistic", "softmax", "squared"] = "logistic"
    momentum: Real = 0.0
    weight_decay: Real = 0.0
    scale_diagonals: bool = True
    """Whether diagonals learn at sqrt(n) times the rate."""
    flip: bool = False
    shift: Annotated[int, Meta(ge=0, le=1 << 16)] = 0
    """How images are moved, otherwise in every epoch."""
    average: Annotated[int, Meta(ge=0, le=MOST_EPOCHS)] = 0
    """Over how many last epochs the weights of the model are the mean."""
    shuffle: Literal["rows", "blocks"] = "rows"
    """What is shuffled in every epoch: all rows, or blocks of them."""
    checkpoint_every: Annotated[int, Meta(ge=1, le=1 << 32)] = 100
    publish: Literal["end", "epoch", "best"] = "end"
    """Whether every epoch's model may be looked at; with best, the one that the client preferred is kept."""
    weighted: bool = False
    """Whether the last target of each row is its weight."""
    class_weight: Annotated[list[Annotated[float, Meta(ge=0, le=256)]], Meta(max_length=256)] = []
    """Weights of classes, one for each; none for none."""


class JobRequest(Request, frozen=True):
    """A run of training and a party's share of its first parameters."""

    inputs: list[Tensor]
    parameters: JobParameters


class LookRequest(Request, frozen=True):
    """The epoch whose model the client has seen, whether it is the best so far, and whether training may stop."""

    epoch: Epoch
    best: bool = False
    stop: bool = False


class CancelRequest(Request, frozen=True):
    """Whether the model so far is kept."""

    keep: bool = True


class RevealRequest(Request, frozen=True):
    """A model to be revealed; the id is drawn by the client and is the same at both parties."""

    id: Id
    model: Name


class AuditQuery(Request, frozen=True):
    """How many records are wanted, newest first."""

    limit: Annotated[int, Meta(ge=1, le=MOST_AUDITED)] = 100
