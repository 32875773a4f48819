"""Counters and histograms for Prometheus, under vLLM's names where the meaning is the same."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
FIRST_S = (0.01, 0.02, 0.04, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
BETWEEN_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10)
WHOLE_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240)


class Metrics:
    """All metrics of one server. Used by the event loop's thread alone."""

    def __init__(self, model: str) -> None:
        self.registry, self.model = CollectorRegistry(), model
        self.prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens of requests that were let in.")
        self.generation_tokens = self._counter("vllm:generation_tokens", "Tokens made.")
        self.first_s = self._histogram("vllm:time_to_first_token_seconds", "Arrival to first token.", FIRST_S)
        self.between_s = self._histogram("vllm:inter_token_latency_seconds", "From token to token.", BETWEEN_S)
        self.whole_s = self._histogram("vllm:e2e_request_latency_seconds", "Arrival to last token.", WHOLE_S)
        self.queue_s = self._histogram("vllm:request_queue_time_seconds", "Arrival to a slot.", FIRST_S)
        self.prompt = self._histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", TOKENS)
        self.answer = self._histogram("vllm:request_generation_tokens", "Tokens made for a request.", TOKENS)
        self._success = Counter(
            "vllm:request_success", "Answers that ended.", ["model_name", "finished_reason"], registry=self.registry
        )
        self._refused = Counter(
            "reforward_requests_refused",
            "Requests answered with an error.",
            ["model_name", "status"],
            registry=self.registry,
        )

    def ended(self, reason: str) -> None:
        """One more answer ended so."""
        self._success.labels(self.model, reason).inc()

    def refused(self, status: int) -> None:
        """One more error was the answer."""
        self._refused.labels(self.model, str(status)).inc()

    def follow(self, name: str, words: str, value: Callable[[], float]) -> None:
        """A gauge that is read when somebody asks."""
        Gauge(name, words, ["model_name"], registry=self.registry).labels(self.model).set_function(value)

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, words: str) -> Counter:
        return Counter(name, words, ["model_name"], registry=self.registry).labels(self.model)

    def _histogram(self, name: str, words: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, words, ["model_name"], registry=self.registry, buckets=buckets).labels(self.model)
