"""How a worker starts: with its settings, and as polite to its neighbours as they say."""

import pytest

from infra.settings import Settings
from workers.cli import worker as command


@pytest.mark.parametrize(("nice", "set_", "expected"), [(None, "", 0), (None, "7", 7), (10, "7", 10), (0, "7", 0)])
def test_a_worker_gives_way_as_it_is_told_before_it_starts(
    nice: int | None, set_: str, expected: int, monkeypatch: pytest.MonkeyPatch
):
    steps: list[object] = []

    async def run_workers(settings: Settings, names: object) -> None:
        steps.append((settings.nice, names))

    monkeypatch.setattr(command, "run_workers", run_workers)
    monkeypatch.setattr(command, "configure_logging", lambda *_, **__: None)
    monkeypatch.setattr(command, "give_way", steps.append)
    if set_:
        monkeypatch.setenv("SLUICE_NICE", set_)
    command.worker(["ingestion"], nice=nice)
    assert steps == [expected, (expected, ["ingestion"])]
