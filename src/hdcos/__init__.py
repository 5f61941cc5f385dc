"""Train and serve neural networks on data that no single machine sees.

local    a cluster of three processes on this machine, for the length of a `with` block
connect  a cluster whose nodes run elsewhere
nn       networks as plain specifications
data     readers of data sets
tables   tables of any columns, declared and prepared
sklearn  estimators of scikit-learn; needs hdcos[sklearn]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hdcos._version import __version__ as __version__

if TYPE_CHECKING:
    from hdcos import data as data
    from hdcos import nn as nn
    from hdcos import sklearn as sklearn
    from hdcos import tables as tables
    from hdcos.cluster.connect import connect as connect
    from hdcos.cluster.local import local as local

__all__ = ["__version__", "connect", "data", "local", "nn", "sklearn", "tables"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for: a part of the package is quick to import by itself."""
    if name == "local":
        return import_module("hdcos.cluster.local").local
    if name == "connect":
        return import_module("hdcos.cluster.connect").connect
    if name in ("data", "nn", "sklearn", "tables"):
        return import_module(f"hdcos.{name}")
    raise AttributeError(f"module 'hdcos' has no attribute {name!r}")
