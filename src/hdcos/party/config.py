"""node.toml: what the operator of a node decides. A missing file, table or key means the default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hdcos.api.bodies import convert, explain
from hdcos.errors import InputError
from hdcos.files import read_toml

FILE = "node.toml"
TEMPLATE = """\
# What this node's operator decides. Every line may be left out; these are the defaults.

[http]
# listen = "0.0.0.0:8443"        # if not the address in the cluster file
# certificate = "/path/chain.pem"  # if clients (browsers) need a public certificate; the node's own is used otherwise
# key = "/path/key.pem"
cors = []                        # origins whose pages may ask, e.g. ["https://party0.example:8443"]

[policy]
reveal = false                   # true: models are revealed without asking the operator (`hdcos approve`)
queries_per_model = 0            # rows of each model that are answered, for all clients (`hdcos quota`); 0: a
                                 # thousandth of what docs/security.md states for its network

[limits]
body_mb = 64                     # of one request
rows = 4096                      # of one predict request, and of one batch
requests_per_s = 2000            # of one client
waiting = 4096                   # requests that may wait at once
client_mb = 256                  # of requests and answers of one client that are here at once
waiting_mb = 1024                # of requests and answers of all clients that are here at once
model_mb = 2048                  # of memory for one model: parameters, material, a batch; for the functions of a client
models_mb = 8192                 # of memory for all models and functions
job_mb = 8192                    # of memory for one training job: rows, parameters, material, a step
patience_s = 5                   # how long a request waits until the other party has it too
mask_s = 300                     # how long a mask may be used, and a function that nobody uses stays open
dataset_gb = 64                  # of data, with the names of columns, that one client may keep here
datasets = 256                   # that one client may keep here, with uploads that are not complete
uploads = 32                     # of one client that are not complete, or wait until others are
names_mb = 16                    # of names of columns in all data sets of one client
grants = 1024                    # that one client may give to others who train on its data sets
meeting_gb = 16                  # that two clients may send each other through this party (`hdcos join --meet`)
keep_days = 0                    # that a data set is kept, unless its owner says less; 0: until its owner forgets it

[storage]
datasets = ""                    # where data sets are kept, if not in state/datasets: a folder, or an address such as
                                 # s3://bucket/folder, which the other party must not be able to read

[stock]
megabytes = 256                  # of material that is kept ahead for each model
mark = 0.1                       # not ready below this part of it
"""


Amount = Annotated[float, Meta(gt=0, lt=1e9)]
Whole = Annotated[int, Meta(gt=0, lt=10**9)]


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class Http(Table, frozen=True):
    listen: str = ""
    certificate: str = ""
    key: str = ""
    cors: tuple[str, ...] = ()


class Rules(Table, frozen=True):
    reveal: bool = False
    queries_per_model: Annotated[int, Meta(ge=0, lt=10**9)] = 0


class Limits(Table, frozen=True):
    body_mb: Amount = 64.0
    rows: Whole = 4096
    requests_per_s: Amount = 2000.0
    waiting: Whole = 4096
    client_mb: Amount = 256.0
    waiting_mb: Amount = 1024.0
    model_mb: Amount = 2048.0
    models_mb: Amount = 8192.0
    job_mb: Amount = 8192.0
    patience_s: Amount = 5.0
    mask_s: Amount = 300.0
    dataset_gb: Amount = 64.0
    datasets: Whole = 256
    uploads: Whole = 32
    names_mb: Amount = 16.0
    grants: Whole = 1024
    meeting_gb: Amount = 16.0
    keep_days: Annotated[float, Meta(ge=0, lt=36500)] = 0.0


class StockRules(Table, frozen=True):
    megabytes: Amount = 256.0
    mark: Amount = 0.1


class Storage(Table, frozen=True):
    datasets: str = ""


class Config(Table, frozen=True):
    http: Http = Http()
    policy: Rules = Rules()
    limits: Limits = Limits()
    storage: Storage = Storage()
    stock: StockRules = StockRules()

    @classmethod
    def read(cls, folder: Path) -> Config:
        path = folder / FILE
        if not path.exists():
            return cls()
        record = read_toml(path, "an operator's settings")
        try:
            return convert(record, cls)
        except msgspec.ValidationError:
            raise InputError(f"{path}: {explain(cls, record)}") from None
