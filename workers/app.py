"""Where the parts meet: which worker reads which topic, and what each handler is given."""

import os
import signal
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, Final

import anyio
import structlog
from langchain_core.runnables import RunnableConfig

from infra.clock import SystemClock
from infra.collector import calm_collector
from infra.foreign_tracing import VARIABLES, refuse_foreign_tracing
from infra.kafka.board import RuntimeConfig
from infra.kafka.consumer import GroupConsumer
from infra.kafka.execution import Executor
from infra.kafka.publisher import DeadLetterTopic
from infra.kafka.retry import RetryPolicy
from infra.kafka.routes import Route
from infra.kafka.runtime import Runtime
from infra.redis.inbox import RedisInbox
from infra.redis.positions import RedisPositionMemory
from infra.settings import Settings, read_inherited
from infra.tracing.feedback import FeedbackSpans
from infra.tracing.provider import callbacks_of, tracer_of
from topics.catalogue import ARTICLES, DEAD_LETTERS, DECISIONS, FEEDBACK, QUERIES, TICKETS, TIMERS, Catalogue
from topics.envelope import encode
from topics.errors import ConfigError
from topics.events import ApprovalDue
from workers.approvals import handle_decision, handle_due
from workers.audited import audited
from workers.endpoints import serve_endpoints
from workers.feedback import handle_feedback, with_traces
from workers.ingestion import handle_article, handle_tickets
from workers.parts import Parts, build_parts, instance_name
from workers.query import handle_query, hear_query
from workers.scheduler import Scheduler

WORKERS: Final = ("ingestion", "query", "approvals", "feedback")
CLAIM_RETENTION_S: Final = 45 * 86_400  # longer than any topic, dead letters included, keeps a record

_log: Any = structlog.get_logger("sluice.app")


def topology(parts: Parts) -> dict[str, tuple[Route, ...]]:
    """Worker -> topic -> handler. This is the whole of it."""
    settings = parts.settings
    traced = RunnableConfig(callbacks=callbacks_of(parts.tracing))
    tickets = partial(handle_tickets, triage=parts.triage, examples=parts.examples, config=traced)
    articles = partial(handle_article, embedder=parts.embedder, index=parts.index)
    queries = with_traces(partial(handle_query, conversation=parts.conversation), book=parts.feedback)
    heard = partial(hear_query, call_offs=parts.call_offs.here)
    asking = {"registry": parts.approvals, "conversation": parts.conversation, "clock": SystemClock()}
    decisions = partial(handle_decision, agent=parts.agent, verifier=parts.verifier, **asking)
    moments = partial(handle_due, **asking)
    chained = partial(audited, chain=parts.chain)
    feedback = partial(handle_feedback, book=parts.feedback, traces=FeedbackSpans())
    return {
        "ingestion": (Route(TICKETS, batch_handler=tickets, batch_size=settings.batch_size), Route(ARTICLES, articles)),
        "query": (Route(QUERIES, chained(queries), on_arrival=heard),),
        "approvals": (Route(DECISIONS, chained(decisions)), Route(TIMERS, chained(moments))),
        "feedback": (Route(FEEDBACK, feedback),),
    }


async def run_workers(settings: Settings, names: Sequence[str]) -> None:
    """Run these workers in this process until SIGTERM or SIGINT; the first drains, the second stops at once.

    Raises:
        ConfigError: A name, a setting or a server is wrong.
        HaltError: A worker stopped for a reason that only a person can mend.
    """
    unknown = sorted(set(names) - set(WORKERS))
    if unknown:
        raise ConfigError(f"no worker {', '.join(unknown)}; there are: {', '.join(WORKERS)}")
    refuse_foreign_tracing(read_inherited(VARIABLES))  # before anything is connected, and again when all code is loaded
    async with build_parts(settings) as parts:
        if set(names) & {"query", "approvals"}:
            await parts.chain.prepare()
        runtimes = [_runtime(parts, name, topology(parts)[name]) for name in names]
        calm_collector()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signal, runtimes)
            if settings.http_port:
                tasks.start_soon(
                    partial(
                        serve_endpoints,
                        settings,
                        runtimes,
                        redis=parts.redis,
                        keys=parts.keys,
                        ledger=parts.ledger,
                        doors=parts.doors,
                    )
                )
            if set(names) & {"query", "approvals"}:
                tasks.start_soon(parts.call_offs.keep_hearing)
            if "approvals" in names:
                tasks.start_soon(_scheduler(parts).run)
            async with anyio.create_task_group() as running:
                for runtime in runtimes:
                    running.start_soon(runtime.run)
                _log.info("workers_started", workers=list(names), pid=os.getpid())
            tasks.cancel_scope.cancel()


def _runtime(parts: Parts, name: str, routes: tuple[Route, ...]) -> Runtime:
    settings, clock = parts.settings, SystemClock()
    catalogue = Catalogue(settings.topic_prefix)
    group = f"{settings.group_prefix}.{name}"
    config = RuntimeConfig(
        slots=settings.ingestion_slots if name == "ingestion" else settings.slots,
        max_buffered_records=settings.max_buffered_records,
        max_buffered_bytes=settings.max_buffered_bytes,
        stall_s=settings.stall_s,
        handler_timeout_s=settings.handler_timeout_s,
        drain_s=settings.drain_s,
        revoke_drain_s=settings.revoke_drain_s,
        retry=RetryPolicy(max_failures=settings.max_failures),
    )
    return Runtime(
        group=group,
        owner=instance_name(),
        routes=routes,
        catalogue=catalogue,
        consumer=GroupConsumer(
            settings.kafka(),
            group=group,
            topics=[topic for route in routes for topic in (catalogue.name(route.spec), catalogue.replay_name(route.spec))],
            memory=RedisPositionMemory(parts.redis, group=group, keys=parts.keys),
            new_group_reads_from=settings.new_group_reads_from,
            revoke_drain_s=settings.revoke_drain_s,
        ),
        inbox=RedisInbox(parts.redis, group=group, retention_s=CLAIM_RETENTION_S, keys=parts.keys),
        executor=Executor(
            parts.publisher, catalogue, clock, f"sluice/{name}", settings.handler_timeout_s, tracer_of(parts.tracing, group)
        ),
        dead_letters=DeadLetterTopic(parts.dead_letters, topic=catalogue.name(DEAD_LETTERS), redactor=parts.redactor),
        clock=clock,
        config=config,
    )


def _scheduler(parts: Parts) -> Scheduler:
    catalogue, clock = Catalogue(parts.settings.topic_prefix), SystemClock()

    async def publish(tenant: str, due: ApprovalDue) -> Awaitable[Any]:
        # One source for all workers: it is part of what makes two events the same.
        record = encode(due, catalogue=catalogue, tenant=tenant, source="sluice/approvals", now=clock.now(), ordinal="0")
        return await parts.publisher.send(record)

    return Scheduler(parts.approvals, publish, clock)


async def _stop_on_signal(runtimes: Sequence[Runtime]) -> None:
    asked = False
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            if asked:
                os._exit(1)
            asked = True
            _log.info("draining")
            for runtime in runtimes:
                runtime.request_stop()
