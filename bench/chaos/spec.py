"""What a worker process is told: one JSON file."""

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from infra.kafka.connection import KafkaConnection
from infra.models.pacing import MARGIN, Pace, pace_of
from infra.redis.keys import Keys
from topics.catalogue import Catalogue

OURS: Final = "ours"


class Spec(BaseModel):
    """Engine, servers, names and bounds. `incarnation` is new for each start of a process.

    The times are shorter than in production (10 s session, 15 s lease), so that many kills fit in minutes; a run says so.
    """

    model_config = ConfigDict(frozen=True)

    incarnation: str
    engine: str = OURS
    kafka_bootstrap: str
    redis_url: str
    effects_port: int
    ledger_dir: Path
    topic_prefix: str
    group: str
    redis_prefix: str
    slots: int = 16
    max_buffered_records: int = 128
    session_timeout_s: float = 3.0
    lease_s: float = 3.0
    revoke_drain_s: float = 5.0
    drain_s: float = 10.0
    handler_timeout_s: float = 120.0
    max_failures: int = 8
    outage_wait_s: float = 1.0
    limit_requests: int | None = None
    limit_window_s: float = 60.0
    limit_margin: float = Field(default=MARGIN, ge=0, lt=1)

    @property
    def connection(self) -> KafkaConnection:
        """How to reach the broker."""
        return KafkaConnection(self.kafka_bootstrap)

    @property
    def pace(self) -> Pace:
        """How often the model may be called, by all workers together."""
        return pace_of(self.limit_requests, None, window_s=self.limit_window_s, margin=self.limit_margin)

    @property
    def catalogue(self) -> Catalogue:
        """The topics of this run."""
        return Catalogue(self.topic_prefix)

    @property
    def keys(self) -> Keys:
        """The keys of this run."""
        return Keys(self.redis_prefix)
