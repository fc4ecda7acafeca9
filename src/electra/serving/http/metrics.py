"""What a server counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # memory, CPU seconds, open files
        self._requests = Counter(
            "electra_requests", "Requests by endpoint and status", ["endpoint", "status"], registry=registry
        )
        self._seconds = Histogram(
            "electra_request_seconds", "From when the head of a request is in to the end of its answer",
            ["endpoint"], buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._texts = Counter("electra_texts", "Texts that went through a model", ["work"], registry=registry)
        self._characters = Counter("electra_characters", "Their characters", ["work"], registry=registry)
        self._batches = Histogram(
            "electra_batch_texts", "Texts that were computed together", ["work"], buckets=TEXTS, registry=registry
        )
        self._model_seconds = Counter("electra_model_seconds", "Time in the model", ["work"], registry=registry)
        self.waiting = Gauge("electra_waiting_requests", "Requests that wait for the model", registry=registry)
        self.ready = Gauge("electra_ready", "1 while requests are taken", registry=registry)

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(endpoint, status).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def computed(self, work: str, *, texts: int, characters: int, seconds: float) -> None:
        """Count a batch."""
        self._texts.labels(work).inc(texts)
        self._characters.labels(work).inc(characters)
        self._batches.labels(work).observe(texts)
        self._model_seconds.labels(work).inc(seconds)

    def page(self) -> bytes:
        """All figures, in Prometheus's text format."""
        return generate_latest(self.registry)
