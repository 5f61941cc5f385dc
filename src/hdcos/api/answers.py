"""What a party answers over HTTPS. These are types of plain JSON objects: a type checker compares the code with them,
and OpenAPI is made from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from hdcos.link import Count


class Nothing(TypedDict):
    """Done."""


class Error(TypedDict):
    """Why a request was refused; `retryable` says whether the same may be asked again."""

    error: str
    name: str
    retryable: bool


class ServerParameters(TypedDict):
    """Which party this is."""

    party: int
    cluster: str
    time: float


class Server(TypedDict):
    """What this server is and can do."""

    name: str
    version: str
    extensions: list[str]
    parameters: ServerParameters


class Live(TypedDict):
    """Whether it lives."""

    live: bool


class Ready(TypedDict):
    """Whether it takes requests, and why not or what else is wrong."""

    ready: bool
    reason: str


class ModelState(TypedDict):
    """A model in the list of all."""

    name: str
    version: str
    ready: bool
    queries: int
    queries_allowed: int
    error: str


class ModelStatus(ModelState):
    """A model on the status page."""

    stock: int
    mark: int
    rows: int


class Models(TypedDict):
    """All models, and how many rows of each are answered in all: 0 for what its network allows."""

    models: list[ModelState]
    queries_per_model: int


class TensorShape(TypedDict):
    """A tensor that a model takes or gives; -1 is any number of rows."""

    name: str
    datatype: str
    shape: list[int]


class OutputScale(TypedDict):
    """How outputs are decoded."""

    scale_bits: int
    gain: float


class LabelDetails(TypedDict):
    """What labels take: rounds more than logits, and the rows of one request at most."""

    rounds: int
    most_rows: int


class ModelDetails(TypedDict):
    """What a client must know to use a model. Without a dealer, or classes, there are no labels."""

    party: int
    phase_bits: int
    has_dealer: bool
    architecture: Any
    scale_bits: int
    most_rows: int
    input_bits: int
    modes: list[str]
    rounds: dict[str, int]
    stock: dict[str, int]
    output: OutputScale
    labels: LabelDetails | None


class ModelMetadata(TypedDict):
    """A model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorShape]
    outputs: list[TensorShape]
    parameters: ModelDetails


class ModelReady(TypedDict):
    """Which version of a model is ready."""

    name: str
    ready: bool
    version: str


class AnswerScale(OutputScale):
    """How an answer is decoded."""

    bits: int


class Inferred(TypedDict):
    """A party's share of predictions: the tensor `output`."""

    model_name: str
    model_version: str
    id: str
    parameters: AnswerScale


class Masks(TypedDict):
    """A party's share of masks: the tensor `mask`, one row for each id."""

    mask_ids: list[str]
    expires_s: float


class Prepared(TypedDict):
    """Rows that material is here for, and rows that it is kept for."""

    stock: int
    ahead: int


class ModelKept(TypedDict):
    """A model that is kept."""

    name: str
    version: str


class Function(TypedDict):
    """A function that is open: executions that material is here for, and those that it is here or on its way for."""

    id: str
    function: str
    scale_bits: int
    stock: int
    left: int


class ResultScale(TypedDict):
    """How a result is decoded."""

    scale_bits: int
    bits: int


class Evaluated(TypedDict):
    """A party's share of a function's result: the tensor `output`."""

    id: str
    parameters: ResultScale


class Dataset(TypedDict):
    """A version of a data set. `number` counts the versions of its name; `allowed` are clients that may train on it,
    told to its owner alone; it is removed at `expires`, in seconds since 1970, or when its owner says so (0)."""

    name: str
    version: str
    number: int
    owner: str
    own: bool
    allowed: list[str]
    expires: float
    rows: int
    features: int
    outputs: int
    complete: bool
    bytes: int
    received: int
    columns: Sequence[str] | None
    join: str
    preparation: str


class Datasets(TypedDict):
    """Data sets that the client may train on."""

    datasets: list[Dataset]


class DatasetVersions(TypedDict):
    """All versions of a data set."""

    versions: list[Dataset]


class Attendance(TypedDict):
    """Whether the other client is at the meeting."""

    present: bool


class Tally(TypedDict):
    """Statistics over several owners' rows: who has contributed, under which ids, of how many owners."""

    name: str
    owners: int
    contributed: list[str]
    ids: list[str]
    complete: bool


class Received(TypedDict):
    """Bytes of an upload that are here, of all."""

    received: int
    bytes: int


class Interim(TypedDict):
    """The model as it was after an epoch."""

    epoch: int
    model: str
    version: str


class Job(TypedDict):
    """How a run of training stands."""

    id: str
    model: str
    state: str
    step: int
    total_steps: int
    epoch: int
    epochs: int
    error: str
    version: str
    report: dict[str, Any]
    interim: Interim


class Jobs(TypedDict):
    """The client's runs of training."""

    jobs: list[Job]


class Reveal(TypedDict):
    """How a reveal stands: waiting, approved (here), released (by both) or refused."""

    id: str
    model: str
    version: str
    state: str


class Revealed(TypedDict):
    """A party's share of a model, refreshed: its tensors by name."""

    model: str
    version: str


class PeerState(TypedDict):
    """The link to the other party."""

    up: bool
    rtt_ms: float | None


class DealerState(TypedDict):
    """The link to the dealer."""

    up: bool


class ConnectionState(TypedDict):
    """Connections of clients."""

    open: int
    most: int


class StorageState(TypedDict):
    """The disk of the state folder."""

    free_bytes: int
    full: bool


class Counters(TypedDict):
    """What happened since the process began."""

    requests: int
    rows: int
    batches: int
    rounds: int
    bytes_sent: int
    bytes_received: int
    material_bytes: int
    aborts: int
    errors: int


class Latency(TypedDict):
    """Of the last predictions."""

    p50: float | None
    p99: float | None


class WorkerStatus(TypedDict):
    """A worker of a party, with that of the other party: 0 is the node itself. `reason` says why it does not work now.

    Rates are those of the last minute.
    """

    index: int
    up: bool
    reason: str
    starts: int
    rows: int
    batches: int
    steps: int
    models: int
    available: int
    rows_per_s: float
    steps_per_s: float


class Status(TypedDict):
    """What the status page shows."""

    ready: bool
    reason: str
    party: int
    cluster: str
    version: str
    uptime_s: float
    session: int
    peer: PeerState
    dealer: DealerState
    workers: list[WorkerStatus]
    models: list[ModelStatus]
    functions: int
    jobs: list[Job]
    connections: ConnectionState
    storage: StorageState
    counters: Counters
    latency_ms: Latency


class MaterialSample(TypedDict):
    """The material of a model at a time."""

    name: str
    stock: int


class Sample(TypedDict):
    """How a party was some seconds ago."""

    age_s: float
    counters: Counters
    latency_ms: Latency
    models: list[MaterialSample]


class StatusHistory(TypedDict):
    """The last ten minutes, oldest first."""

    every_s: float
    samples: list[Sample]


class Costs(TypedDict):
    """Since the process began, for all clients."""

    online: Count
    offline: Count


class Audit(TypedDict):
    """Who did what, newest first."""

    records: list[dict[str, Any]]
