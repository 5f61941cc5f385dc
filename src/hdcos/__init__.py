"""Train and serve neural networks on data that no single machine sees.

local   a cluster of three processes on this machine, for the length of a `with` block
"""

from typing import TYPE_CHECKING, Any

from hdcos._version import __version__ as __version__

if TYPE_CHECKING:
    from hdcos.serve.local import local as local

__all__ = ["__version__", "local"]


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for: a part of the package is quick to import by itself."""
    if name == "local":
        from hdcos.serve.local import local

        return local
    raise AttributeError(f"module 'hdcos' has no attribute {name!r}")
