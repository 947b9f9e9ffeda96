"""What handlers are given: every adapter of a process, connected, checked, and closed again."""

import os
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from flows.agent.call_offs import CallOffs
from flows.agent.threads import Agent, AgentLimits
from flows.examples import NearestExamples
from flows.rerank import MarginalRelevance
from flows.retrieval import FusionPolicy, HybridRetriever
from flows.triage import build_triage
from infra.clock import SystemClock
from infra.foreign_tracing import check_foreign_tracing
from infra.http_service import HttpToolService, open_client
from infra.identity.signatures import JwsVerifier
from infra.kafka.publisher import EventPublisher, RawProducer, event_broker, raw_producer
from infra.models.door import Door
from infra.models.guarded import GuardedEmbedder
from infra.redaction import Redactor, load_redactor
from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.call_offs import RedisCallOffNotes
from infra.redis.chain import RedisAuditChain
from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.client import check_server, connect
from infra.redis.effects import RedisEffectLedger
from infra.redis.examples import RedisExamples
from infra.redis.feedback import RedisFeedback
from infra.redis.held import RedisHeldQueries
from infra.redis.keys import Keys
from infra.redis.leases import RedisLeases
from infra.redis.search import RedisArticleIndex
from infra.settings import Settings
from infra.tracing.approvals import TracedApprovals
from infra.tracing.provider import Tracing, callbacks_of, open_tracing
from workers.audit import audit_chain
from workers.call_offs import SharedCallOffs
from workers.conversation import Conversation
from workers.ingestion import tell_loss
from workers.metering import build_budgets, build_meter
from workers.models import build_models
from workers.policy import load_policy
from workers.toolsets import load_toolset

_log: Any = structlog.get_logger("sluice.app")


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything handlers are given, built once per process."""

    settings: Settings
    agent: Agent
    approvals: RedisApprovalRegistry
    verifier: JwsVerifier
    chain: RedisAuditChain
    conversation: Conversation
    call_offs: SharedCallOffs
    feedback: RedisFeedback
    triage: Any
    examples: RedisExamples
    embedder: GuardedEmbedder
    doors: Sequence[Door[Any]]
    index: RedisArticleIndex
    publisher: EventPublisher
    dead_letters: RawProducer
    redis: Any
    keys: Keys
    ledger: RedisEffectLedger
    tracing: Tracing | None
    redactor: Redactor


@asynccontextmanager
async def build_parts(settings: Settings) -> AsyncGenerator[Parts]:
    """Connect to everything, check it, and close it again.

    Raises:
        ConfigError: A server is missing or would lose data. One sentence says which.
    """
    for name in {settings.toolset, *settings.toolsets.values()}:
        load_toolset(name)
    redactor = load_redactor(settings.redactor)
    traced_elsewhere = check_foreign_tracing(redactor)
    keys, clock = Keys(settings.redis_prefix), SystemClock()
    loaded = load_policy(settings)
    async with AsyncExitStack() as stack:
        tracing = await stack.enter_async_context(open_tracing(settings, redactor, instance=instance_name()))
        redis = connect(settings.redis_url, timeout_s=10.0, max_connections=settings.redis_connections)
        stack.push_async_callback(redis.aclose)
        for warning in await check_server(redis, keys=keys):
            _log.warning("redis_setting", why=warning)
        index = RedisArticleIndex(redis, keys, dimensions=settings.embedding_dimensions)
        await index.prepare()
        examples = RedisExamples(redis, keys, dimensions=settings.embedding_dimensions)
        await examples.prepare()
        budgets = build_budgets(settings, redis=redis, keys=keys)
        models = build_models(settings, stack=stack, meter=build_meter(settings, redis=redis, keys=keys, budgets=budgets))
        http = await stack.enter_async_context(open_client())
        ledger = RedisEffectLedger(redis, keys=keys)
        call_offs = SharedCallOffs(CallOffs(), RedisCallOffNotes(redis, keys=keys))
        agent = Agent(
            model=models.chat,
            checkpointer=HardenedRedisSaver(redis, keys=keys),
            toolset_for=lambda tenant: load_toolset(settings.toolset_of(tenant)),
            service=HttpToolService(settings.back_office_url, http),
            retriever=HybridRetriever(
                branches=index,
                embedder=models.embedder,
                policy=FusionPolicy(min_similarity=settings.min_similarity),
                reranker=MarginalRelevance(relevance=1 - settings.passage_diversity) if settings.passage_diversity else None,
            ),
            ledger=ledger,
            clock=clock,
            policy=loaded.policy,
            limits=AgentLimits(delta_interval_s=settings.delta_interval_s),
            call_offs=call_offs.here,
            link_hosts_for=settings.link_hosts_of,
            callbacks=callbacks_of(tracing),
        )
        approvals = (TracedApprovals if tracing else RedisApprovalRegistry)(redis, keys=keys)
        await approvals.prepare()
        broker = await stack.enter_async_context(event_broker(settings.kafka(), client_id=settings.group_prefix))
        if traced_elsewhere:
            _log.warning("foreign_tracing", why=traced_elsewhere)
        for warning in loaded.warnings:
            _log.warning("policy", why=warning)  # after the checks: a start that fails says one sentence
        yield Parts(
            settings=settings,
            agent=agent,
            approvals=approvals,
            verifier=JwsVerifier(loaded.trust, clock),
            chain=audit_chain(settings, redis),
            conversation=Conversation(
                agent,
                RedisLeases(redis, lease_ms=int(settings.lease_s * 1000), keys=keys),
                approvals,
                RedisHeldQueries(redis, keys=keys),
                call_offs,
            ),
            call_offs=call_offs,
            feedback=RedisFeedback(redis, keys=keys),
            triage=build_triage(
                models.chat,
                max_concurrency=settings.triage_concurrency,
                examples=NearestExamples(examples, models.embedder, on_loss=tell_loss),
            ),
            examples=examples,
            embedder=models.embedder,
            doors=models.doors,
            index=index,
            publisher=EventPublisher(broker),
            dead_letters=await stack.enter_async_context(raw_producer(settings.kafka())),
            redis=redis,
            keys=keys,
            ledger=ledger,
            tracing=tracing,
            redactor=redactor,
        )


def instance_name() -> str:
    """This process, told apart from every other."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
