"""Metrics for Prometheus: counters that the service keeps anyway, and latency histograms."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hdcos.service.service import Service

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class _State(Collector):
    """Reads the service when it is asked."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterable[Metric]:
        status = self._service.status()
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
        yield GaugeMetricFamily("hdcos_waiting", "requests that wait", value=len(self._service.desk))
        if status["peer"]["rtt_ms"] is not None:
            seconds = status["peer"]["rtt_ms"] / 1e3
            yield GaugeMetricFamily("hdcos_round_trip_seconds", "an empty round between the parties", value=seconds)
        stock = GaugeMetricFamily("hdcos_stock_rows", "rows that material is in stock for", labels=["model"])
        for model in status["models"]:
            stock.add_metric([model["name"]], model["stock"])
        yield stock


class Metrics:
    """The registry of one party."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self.latency = Histogram(
            "hdcos_predict_seconds", "predict requests from arrival to answer", buckets=BUCKETS, registry=self._registry
        )
        self.refused = Counter("hdcos_refused", "requests not answered", ["status"], registry=self._registry)
        self._registry.register(_State(service))

    def text(self) -> bytes:
        return generate_latest(self._registry)
