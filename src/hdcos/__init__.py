"""Train and serve neural networks on data that no single machine sees."""

from hdcos._version import __version__ as __version__
from hdcos.serve.local import local as local
