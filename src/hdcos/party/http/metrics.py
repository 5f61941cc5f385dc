"""Metrics for Prometheus and OpenMetrics: counters that the service keeps anyway, and latency histograms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from hdcos.party.service import Service

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class _State(Collector):
    """Reads the service when it is asked."""

    def __init__(self, service: Service, held: Callable[[], int]) -> None:
        self._service, self._held = service, held

    def collect(self) -> Iterable[Metric]:
        status: Any = self._service.status()
        for name, value in status["counters"].items():
            yield CounterMetricFamily(f"hdcos_{name}", f"{name.replace('_', ' ')} since the start", value=value)
        yield CounterMetricFamily("hdcos_sessions", "sessions with the other party", value=status["session"])
        yield GaugeMetricFamily("hdcos_ready", "whether this party is ready", value=float(status["ready"]))
        yield GaugeMetricFamily("hdcos_peer_up", "whether the other party is connected", value=status["peer"]["up"])
        yield GaugeMetricFamily("hdcos_dealer_up", "whether the dealer is connected", value=status["dealer"]["up"])
        free = status["storage"]["free_bytes"]
        yield GaugeMetricFamily("hdcos_disk_free_bytes", "room on the disk of the state folder", value=free)
        held = status["connections"]["open"]
        yield GaugeMetricFamily("hdcos_connections", "connections of clients, idle ones among them", value=held)
        yield GaugeMetricFamily("hdcos_waiting", "requests that wait", value=len(self._service.batcher))
        if status["peer"]["rtt_ms"] is not None:
            seconds = status["peer"]["rtt_ms"] / 1e3
            yield GaugeMetricFamily("hdcos_round_trip_seconds", "an empty round between the parties", value=seconds)
        yield GaugeMetricFamily("hdcos_held_bytes", "bytes of requests and answers here", value=self._held())
        queries = CounterMetricFamily("hdcos_queries", "rows counted for the quota of a model", labels=["model"])
        allowed = GaugeMetricFamily("hdcos_queries_allowed", "rows that are answered for a model", labels=["model"])
        failed = GaugeMetricFamily("hdcos_model_failed", "whether a model cannot be loaded", labels=["model"])
        for model in status["models"]:
            queries.add_metric([model["name"]], model["queries"])
            allowed.add_metric([model["name"]], model["queries_allowed"])
            failed.add_metric([model["name"]], float(bool(model["error"])))
        yield from (queries, allowed, failed)
        stock = GaugeMetricFamily("hdcos_stock_rows", "rows that material is in stock for", labels=["model"])
        for model in status["models"]:
            stock.add_metric([model["name"]], model["stock"])
        yield stock


class Metrics:
    """The registry of one party."""

    def __init__(self, service: Service, held: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self.latency = Histogram(
            "hdcos_predict_seconds", "predict requests from arrival to answer", buckets=BUCKETS, registry=self._registry
        )
        self.refused = Counter("hdcos_refused", "requests not answered", ["status"], registry=self._registry)
        self._registry.register(_State(service, held))

    def text(self, accept: str) -> tuple[bytes, str]:
        """All metrics and their media type: OpenMetrics for clients that accept it, else Prometheus' own format.

        The library's negotiation fails on versions that are no numbers, so only the kind is read here.
        """
        kinds = {accepted.partition(";")[0].strip().lower() for accepted in accept.split(",")}
        if "application/openmetrics-text" in kinds:
            text: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
            return text, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4
