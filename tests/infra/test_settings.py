"""Settings: where they come from, and one sentence for each that is wrong."""

import json
from pathlib import Path

import pytest

from infra.kafka.retry import RetryPolicy
from infra.settings import ENDPOINTS_FILE, Settings, load_settings
from topics.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of the test's own, and no setting from outside."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SLUICE_{name.upper()}", raising=False)
    monkeypatch.setenv("SLUICE_DATA_DIR", str(tmp_path))
    return tmp_path


def problem(**overrides: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(**overrides)
    return str(caught.value)


def test_the_environment_is_stronger_than_the_running_stack_and_that_than_the_defaults(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    (folder / ENDPOINTS_FILE).write_text(json.dumps({"kafka_bootstrap": "stack:1", "slots": 7, "unknown": True}))
    monkeypatch.setenv("SLUICE_KAFKA_BOOTSTRAP", "environment:1")
    settings = load_settings(batch_size=5)
    assert (settings.batch_size, settings.kafka_bootstrap, settings.slots) == (5, "environment:1", 7)
    assert settings.redis_url == "redis://localhost:6379/0"


def test_a_folder_given_by_hand_is_the_one_that_is_read(tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    (other / ENDPOINTS_FILE).write_text('{"slots": 9}')
    assert load_settings(data_dir=other).slots == 9


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("slots", "many", "SLUICE_SLOTS: Input should be a valid integer"),
        ("slots", "0", "SLUICE_SLOTS: Input should be greater than or equal to 1"),
        ("drain_s", "inf", "SLUICE_DRAIN_S: Input should be a finite number"),
        ("min_similarity", "nan", "SLUICE_MIN_SIMILARITY: Input should be a finite number"),
        ("kafka_bootstrap", "localhost", "SLUICE_KAFKA_BOOTSTRAP: wants host:port"),
        ("kafka_bootstrap", "http://localhost:9092", "SLUICE_KAFKA_BOOTSTRAP: wants host:port"),
        ("kafka_bootstrap", "localhost:port", "SLUICE_KAFKA_BOOTSTRAP: wants host:port"),
        ("kafka_sasl_mechanism", "MAGIC", "SLUICE_KAFKA_SASL_MECHANISM: Input should be 'PLAIN'"),
        ("redis_url", "http://localhost", "SLUICE_REDIS_URL: wants a redis://"),
        ("model_base_url", "localhost/v1", "SLUICE_MODEL_BASE_URL: wants an http://"),
        ("log_level", "loud", "SLUICE_LOG_LEVEL: Input should be 'debug'"),
        ("toolsets", "retail", "SLUICE_TOOLSETS wants JSON"),
        ("toolsets", '{"acme": 1}', "SLUICE_TOOLSETS (acme): Input should be a valid string"),
        ("topic_prefix", "a b", "SLUICE_TOPIC_PREFIX"),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_wants(name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(f"SLUICE_{name.upper()}", value)
    assert problem().startswith(f"a setting is wrong: {says}")


@pytest.mark.parametrize("address", ["localhost:9092", "a:1,b-c.d:65535", "[::1]:9092"])
def test_addresses_of_brokers(address: str):
    assert load_settings(kafka_bootstrap=address).kafka().bootstrap == address


def test_every_wrong_setting_is_told_at_once_and_no_value_is(monkeypatch: pytest.MonkeyPatch):
    """P11."""
    monkeypatch.setenv("SLUICE_KAFKA_PASSWORD", "hunter2")
    monkeypatch.setenv("SLUICE_SLOTS", "hunter3")
    monkeypatch.setenv("SLUICE_REDIS_URL", "http://:hunter4@host")
    told = problem()
    assert "SLUICE_SLOTS" in told
    assert "SLUICE_REDIS_URL" in told
    assert "hunter" not in told


@pytest.mark.parametrize("content", [b"{", b"[1]", b"null", b"\xff\xfe", b"[" * 100_000])
def test_a_broken_file_of_endpoints_is_told_with_its_way_out(content: bytes, folder: Path):
    (folder / ENDPOINTS_FILE).write_bytes(content)
    told = problem()
    assert str(folder / ENDPOINTS_FILE) in told
    assert "remove it" in told


def test_a_data_folder_that_is_a_file_is_told(folder: Path):
    file = folder / "file"
    file.write_text("")
    assert str(file) in problem(data_dir=file)


def test_secrets_are_not_shown():
    settings = load_settings(kafka_password="hunter2", model_api_key="hunter3")
    assert "hunter" not in repr(settings)
    assert settings.kafka().password == "hunter2"


def test_a_tenant_has_the_toolset_of_its_own_or_the_default_one():
    settings = load_settings(toolsets={"acme": "pkg.module:tools"})
    assert (settings.toolset_of("acme"), settings.toolset_of("globex")) == ("pkg.module:tools", "retail")


def test_a_dead_workers_threads_are_free_within_the_time_that_a_takeover_may_take() -> None:
    """15 s (DESIGN section 10): its lease may have been renewed just before, and whoever waits for it looks only now and then."""
    longest_wait_s = RetryPolicy().lease_wait_s * 1.5
    assert load_settings().lease_s + longest_wait_s <= 15.0 - 2.0, "two seconds are for the rebalance and for starting the handler"
