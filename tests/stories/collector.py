"""An OpenTelemetry collector that keeps what it is sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """A span as it was sent. Ids are bytes; `links` are (trace id, span id), `events` (name, attributes)."""

    id: bytes
    trace: bytes
    parent: bytes
    name: str
    kind: int
    attributes: dict[str, Any]
    links: tuple[tuple[bytes, bytes], ...]
    failed: bool
    events: tuple[tuple[str, dict[str, Any]], ...] = ()


@dataclass
class Collector:
    """Where it listens, and what came."""

    endpoint: str
    bodies: list[bytes] = field(default_factory=list)

    def spans(self) -> list[Span]:
        return [span for body in list(self.bodies) for span in spans_of(body)]


def spans_of(body: bytes) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            for one in scope.spans:
                yield Span(
                    one.span_id,
                    one.trace_id,
                    one.parent_span_id,
                    one.name,
                    one.kind,
                    attributes_of(one),
                    tuple((link.trace_id, link.span_id) for link in one.links),
                    one.status.code == 2,
                    tuple((event.name, attributes_of(event)) for event in one.events),
                )


def attributes_of(one: Any) -> dict[str, Any]:
    return {pair.key: value_of(pair.value) for pair in one.attributes}


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [value_of(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}/v1/traces")
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
