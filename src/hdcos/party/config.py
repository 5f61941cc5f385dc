"""node.toml: what the operator of a node decides. A missing file, table or key means the default."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

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
model_mb = 2048                  # of memory for one model: parameters, material, a batch
models_mb = 8192                 # of memory for all models
job_mb = 8192                    # of memory for one training job: rows, parameters, material, a step
patience_s = 5                   # how long a request waits until the other party has it too
mask_s = 300                     # how long a mask may be used
dataset_gb = 64                  # of data that one client may keep here

[stock]
megabytes = 256                  # of material that is kept ahead for each model
mark = 0.1                       # not ready below this part of it
"""


@dataclass(frozen=True)
class Http:
    listen: str = ""
    certificate: str = ""
    key: str = ""
    cors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rules:
    reveal: bool = False
    queries_per_model: int = 0


@dataclass(frozen=True)
class Limits:
    body_mb: float = 64.0
    rows: int = 4096
    requests_per_s: float = 2000.0
    waiting: int = 4096
    client_mb: float = 256.0
    waiting_mb: float = 1024.0
    model_mb: float = 2048.0
    models_mb: float = 8192.0
    job_mb: float = 8192.0
    patience_s: float = 5.0
    mask_s: float = 300.0
    dataset_gb: float = 64.0


@dataclass(frozen=True)
class StockRules:
    megabytes: float = 256.0
    mark: float = 0.1


@dataclass(frozen=True)
class Config:
    http: Http = field(default_factory=Http)
    policy: Rules = field(default_factory=Rules)
    limits: Limits = field(default_factory=Limits)
    stock: StockRules = field(default_factory=StockRules)

    @classmethod
    def read(cls, folder: Path) -> Config:
        path = folder / FILE
        if not path.exists():
            return cls()
        record = read_toml(path, "an operator's settings")
        tables = {"http": Http, "policy": Rules, "limits": Limits, "stock": StockRules}
        unknown = sorted(set(record) - set(tables))
        if unknown:
            raise InputError(f"{path} has no use for {unknown}; its tables are {', '.join(tables)}")
        return cls(**{name: _table(kind, record.get(name, {}), f"[{name}] of {path}") for name, kind in tables.items()})


def _table(kind: type[Any], record: Any, where: str) -> Any:
    if not isinstance(record, dict):
        raise InputError(f"{where} is a table")
    defaults = {item.name: getattr(kind(), item.name) for item in fields(kind)}
    unknown = sorted(set(record) - set(defaults))
    if unknown:
        raise InputError(f"{where} has no use for {unknown}; it knows {', '.join(defaults)}")
    values: dict[str, Any] = {}
    for name, value in record.items():
        default = defaults[name]
        if isinstance(default, tuple):
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise InputError(f"{name} in {where} is a list of strings")
            values[name] = tuple(value)
        elif isinstance(default, bool | str):
            if type(value) is not type(default):
                raise InputError(f"{name} in {where} is a {type(default).__name__}, got {value!r}")
            values[name] = value
        else:
            allowed = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
            if not allowed or (value == 0 and default != 0):  # where nothing is a choice, it is the default
                raise InputError(f"{name} in {where} is a positive number, got {value!r}")
            values[name] = type(default)(value)
    return kind(**values)
