import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import uvicorn
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from infra.local.model_server.__main__ import quiet_config
from infra.local.model_server.app import ModelServer, build_server


class Server:
    """The model server over real HTTP, and the real clients for it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.url, timeout=20)

    def control(self, what: str, body: object = None) -> dict:
        response = self.http.post(f"/control/{what}", json=body if body is not None else {})
        assert response.status_code == 200, response.text
        return response.json()

    def journal(self) -> dict:
        return self.http.get("/control/requests").json()

    def chat(self, **options) -> ChatOpenAI:
        return ChatOpenAI(model="sluice-demo", base_url=f"{self.url}/v1", api_key="any", max_retries=0, timeout=20, **options)

    def embeddings(self, **options) -> OpenAIEmbeddings:
        return OpenAIEmbeddings(
            model="all-MiniLM-L6-v2",
            base_url=f"{self.url}/v1",
            api_key="any",
            check_embedding_ctx_length=False,
            max_retries=0,
            **options,
        )


@pytest.fixture(scope="session")
def application() -> ModelServer:
    return build_server()


@pytest.fixture(scope="session")
def running(application: ModelServer) -> Iterator[Server]:
    with serving(application) as port:
        server = Server(port)
        yield server
        server.http.close()


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    running.control("reset")
    yield running
    running.control("reset")


@pytest.fixture
async def connections() -> AsyncIterator[httpx.AsyncClient]:
    """Connections of this test's event loop; by default the client shares them between loops."""
    async with httpx.AsyncClient(timeout=20) as client:
        yield client


@contextlib.contextmanager
def serving(application: ModelServer) -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        uvicorn_server = uvicorn.Server(quiet_config(application, host="127.0.0.1", port=0))
        thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 10
        while not uvicorn_server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        assert uvicorn_server.started
        yield listener.getsockname()[1]
        uvicorn_server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()
