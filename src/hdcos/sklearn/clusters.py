"""The clusters that the estimators of this process use, and what is left at them by estimators that are gone.

A fitted estimator is copied, pickled and sent to other processes; a connection cannot be. So an estimator holds the
name of its model, and the connection is found here: by default one cluster on this machine, started by the first `fit`
and ended with the process; for `cluster="cluster.toml"` a connection to these parties, with the token of HDCOS_TOKEN.

A model that was not named is deleted once its estimator is gone or fitted again: when the cluster is next used, or by
`close()`. That is not done where estimators are collected, which may be in the middle of another request. A copy may
outlive its original, in another process even: the model of an estimator that was ever copied or pickled stays.

Security  nothing secret is kept here. Each process has clusters of its own: a forked one does not speak on the
          connections of its parent.
"""

from __future__ import annotations

import atexit
import os
from collections import deque
from contextlib import ExitStack, suppress
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

from hdcos.cluster.cluster import Cluster
from hdcos.cluster.connect import connect
from hdcos.cluster.link_transport import LinkTransport
from hdcos.cluster.local import local
from hdcos.errors import DataMissing, HdcosError, InputError, PeerLost

_LOCK = RLock()
_OPENED: dict[tuple[int, str], tuple[Cluster, ExitStack]] = {}
"""By process and cluster file; that of the cluster on this machine is empty."""
_UNWANTED: WeakKeyDictionary[Cluster, deque[str]] = WeakKeyDictionary()
"""Models whose estimators are gone."""


def start_cluster(wanted: Any) -> Cluster:
    """The cluster that a `cluster` parameter means, started or connected to if this process has not done so yet."""
    if isinstance(wanted, Cluster):
        return _tidy(wanted)
    key = _key(wanted)
    with _LOCK:
        cluster = _find(key)
        if cluster is None:
            stack = ExitStack()
            cluster = stack.enter_context(connect(key[1]) if key[1] else local())
            _OPENED[key] = (cluster, stack)
            atexit.unregister(_leave)  # it must run before what the cluster has registered, so behind that
            atexit.register(_leave)
    return _tidy(cluster)


def find_cluster(wanted: Any) -> Cluster:
    """The cluster of an estimator that was fitted. One on this machine is not started for it: it would be empty."""
    if wanted is not None:
        return start_cluster(wanted)
    with _LOCK:
        cluster = _find(_key(None))
    if cluster is None:
        raise DataMissing(
            "the model of this estimator was in the shares of a cluster that another process started, or that has "
            "ended: fit it again here, or train with parties that stay, as cluster='cluster.toml'"
        )
    return _tidy(cluster)


def unwanted_models(cluster: Cluster) -> deque[str]:
    """Names put here are deleted at the cluster when it is next used."""
    with _LOCK:
        return _UNWANTED.setdefault(cluster, deque())


def close() -> None:
    """Delete what estimators that are gone have left, and end the cluster on this machine and all connections."""
    with _LOCK:
        for key in [key for key in _OPENED if key[0] == os.getpid()]:
            cluster, stack = _OPENED[key]
            del _OPENED[key]
            with suppress(PeerLost), stack:  # parties that are gone have left nothing
                _tidy(cluster)


def _key(wanted: Any) -> tuple[int, str]:
    if wanted is not None and not isinstance(wanted, str | os.PathLike):
        raise InputError(
            f"`cluster` is a cluster file, a cluster of hdcos.local() or hdcos.connect(), or None for one on this "
            f"machine, not {type(wanted).__name__}"
        )
    return os.getpid(), "" if wanted is None else os.path.abspath(wanted)


def _find(key: tuple[int, str]) -> Cluster | None:
    """A cluster that was opened and whose parties were not lost since."""
    if key not in _OPENED:
        return None
    cluster, stack = _OPENED[key]
    links = cluster.transport
    if not (isinstance(links, LinkTransport) and all(pair.lost for pair in links.pairs)):
        return cluster
    del _OPENED[key]
    with suppress(PeerLost):  # that is why it is closed
        stack.close()
    return None


def _tidy(cluster: Cluster) -> Cluster:
    names = unwanted_models(cluster)
    while names:
        with suppress(IndexError, HdcosError):  # taken by another thread; or the parties have forgotten it already
            cluster.model(names.popleft()).delete()
    return cluster


def _leave() -> None:
    """The process ends: so do the parties on this machine. No thread can be started any more to ask them to."""
    for key in [key for key in _OPENED if key[0] == os.getpid()]:
        _, stack = _OPENED.pop(key)
        stack.__exit__(SystemExit, SystemExit(), None)
