"""The Prometheus metrics of a server."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one server, in their own registry."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # memory, CPU seconds, open files
        self._requests = Counter(
            "electra_requests", "Requests by endpoint and status", ["endpoint", "status"], registry=registry
        )
        self._seconds = Histogram(
            "electra_request_seconds", "Seconds from the headers of a request to the end of its response",
            ["endpoint"], buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._texts = Counter("electra_texts", "Texts that a model has processed", ["work"], registry=registry)
        self._characters = Counter("electra_characters", "Characters of these texts", ["work"], registry=registry)
        self._batches = Histogram(
            "electra_batch_texts", "Texts that were processed together", ["work"], buckets=TEXTS, registry=registry
        )
        self._model_seconds = Counter("electra_model_seconds", "Seconds in the model", ["work"], registry=registry)
        self.waiting = Gauge("electra_waiting_requests", "Requests that wait for the model", registry=registry)
        self.ready = Gauge("electra_ready", "1 while the server accepts requests", registry=registry)

    def observe_request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(endpoint, status).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def observe_batch(self, operation: str, *, texts: int, characters: int, seconds: float) -> None:
        """Count a batch of the model."""
        self._texts.labels(operation).inc(texts)
        self._characters.labels(operation).inc(characters)
        self._batches.labels(operation).observe(texts)
        self._model_seconds.labels(operation).inc(seconds)

    def render(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
