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
        gauges = {
            "hdcos_ready": ("whether this party is ready", float(status["ready"])),
            "hdcos_peer_up": ("whether the other party is connected", status["peer"]["up"]),
            "hdcos_dealer_up": ("whether the dealer is connected", status["dealer"]["up"]),
            "hdcos_disk_free_bytes": ("room on the disk of the state folder", status["storage"]["free_bytes"]),
            "hdcos_connections": ("connections of clients, idle ones among them", status["connections"]["open"]),
            "hdcos_functions": ("single functions that clients have open", status["functions"]),
            "hdcos_waiting": ("requests that wait", len(self._service.batcher)),
            "hdcos_held_bytes": ("bytes of requests and answers here", self._held()),
        }
        if status["peer"]["rtt_ms"] is not None:
            gauges["hdcos_round_trip_seconds"] = ("an empty round between the parties", status["peer"]["rtt_ms"] / 1e3)
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, value=value)
        families: dict[str, Any] = {
            "queries": CounterMetricFamily("hdcos_queries", "rows counted for the quota of a model", labels=["model"]),
            "queries_allowed": GaugeMetricFamily("hdcos_queries_allowed", "rows that are answered", labels=["model"]),
            "error": GaugeMetricFamily("hdcos_model_failed", "whether a model cannot be loaded", labels=["model"]),
            "stock": GaugeMetricFamily("hdcos_stock_rows", "rows that material is available for", labels=["model"]),
        }
        for model in status["models"]:
            for field, family in families.items():
                family.add_metric([model["name"]], float(bool(model[field])) if field == "error" else model[field])
        yield from families.values()
        workers: dict[str, Any] = {
            "up": GaugeMetricFamily("hdcos_worker_up", "whether a worker works; 0 is the node", labels=["worker"]),
            "available": GaugeMetricFamily("hdcos_worker_available_rows", "rows of material there", labels=["worker"]),
            "rows": CounterMetricFamily("hdcos_worker_rows", "rows that a worker computed", labels=["worker"]),
            "batches": CounterMetricFamily("hdcos_worker_batches", "batches that it computed", labels=["worker"]),
            "steps": CounterMetricFamily("hdcos_worker_steps", "steps of training it took part in", labels=["worker"]),
            "starts": CounterMetricFamily("hdcos_worker_starts", "how often a worker began", labels=["worker"]),
        }
        for worker in status["workers"]:
            for field, family in workers.items():
                family.add_metric([str(worker["index"])], float(worker[field]))
        yield from workers.values()


class Metrics:
    """The registry of one party."""

    def __init__(self, service: Service, held: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self.latency = Histogram(
            "hdcos_predict_seconds", "predict requests from arrival to answer", buckets=BUCKETS, registry=self._registry
        )
        self.evaluated = Histogram(
            "hdcos_evaluate_seconds", "calls of functions, arrival to answer", buckets=BUCKETS, registry=self._registry
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
