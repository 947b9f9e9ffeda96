"""Run the model server: python -m infra.local.model_server --host 127.0.0.1 --port 8099."""

import argparse
import logging

import uvicorn

from infra.local.model_server.app import ModelServer, build_server
from infra.local.model_server.faults import Pace


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m infra.local.model_server", description="An OpenAI-compatible model server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--first-token-ms", type=float, default=0.0)
    parser.add_argument("--tokens-per-s", type=float, default=0.0, help="0: all at once")
    options = parser.parse_args()
    pace = Pace(first_token_ms=options.first_token_ms, tokens_per_s=options.tokens_per_s)
    uvicorn.Server(quiet_config(build_server(pace=pace), host=options.host, port=options.port)).run()


def quiet_config(server: ModelServer, *, host: str, port: int) -> uvicorn.Config:
    """How the server runs: only errors are logged, and scripted drops are none."""
    config = uvicorn.Config(
        server,
        host=host,
        port=port,
        log_level="error",
        access_log=False,
        backlog=4096,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=2,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_scripted_drop)
    return config


def _is_no_scripted_drop(record: logging.LogRecord) -> bool:
    """A scripted drop returns early, which uvicorn takes for a mistake of the application."""
    return "returned without completing response" not in record.getMessage()


if __name__ == "__main__":
    main()
