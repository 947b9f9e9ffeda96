"""Every key and its time to live.

A value that somebody else chose is percent-encoded, so that no tenant, thread or id can collide with another or reach a
foreign key. Keys of one thread share a hash tag: one script may touch them all, on a cluster too.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from urllib.parse import quote, unquote

# Longer than any topic keeps a record that could ask for the effect again.
EFFECT_TTL: Final = timedelta(days=90)  # longer than a decision or a dead letter can come again
# A fence must outlive every effect and checkpoint that could still be written under it.
FENCE_TTL: Final = timedelta(days=90)
# Decisions are kept for 30 days; each must still find what it decided.
APPROVAL_TTL: Final = timedelta(days=90)
# As long as people may still ask about an answer; a trace outlives the feedback topic by far.
FEEDBACK_TTL: Final = timedelta(days=90)
# As long as claims: no dead letter of before can be replayed later.
RETIRED_TTL: Final = timedelta(days=45)
# A record that waits for longer says it again with each try.
CALL_OFF_TTL: Final = timedelta(minutes=10)
PROBE_TTL: Final = timedelta(minutes=1)

_SAFE: Final = re.compile("[A-Za-z0-9_.~-]*")


def milliseconds(span: timedelta) -> int:
    """A span as Redis wants it."""
    return span // timedelta(milliseconds=1)


def encode(value: str) -> str:
    """Make a value safe inside a key; different values stay different."""
    # Our own ids need no change, and every record has several.
    return value if _SAFE.fullmatch(value) else quote(value, safe="")


def decode(encoded: str) -> str:
    """Undo `encode`."""
    return unquote(encoded)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys under one prefix, such as `staging`."""

    prefix: str = "sluice"

    def probe(self, name: str) -> str:
        """What `check_server` writes and deletes."""
        return f"{self.prefix}:probe:{encode(name)}"

    def durable(self) -> str:
        """What `wait_durable` touches, so that its connection has a write to wait for."""
        return f"{self.prefix}:durable"

    def lease(self, thread: str) -> str:
        """Who writes the thread: the holder's token."""
        return self._thread(thread, "lease")

    def fence(self, thread: str) -> str:
        """The newest grant's fence."""
        return self._thread(thread, "fence")

    def effect(self, key: str) -> str:
        """One effect: begun, or done with its result."""
        return f"{self.prefix}:effect:{{{encode(key)}}}"

    def claim(self, group: str, claim_id: str) -> str:
        """One record as a consumer group knows it."""
        return f"{self.prefix}:inbox:{{{encode(group)}}}:{encode(claim_id)}"

    def positions(self, group: str) -> str:
        """What a consumer group remembers of the positions it committed."""
        return f"{self.prefix}:positions:{{{encode(group)}}}:known"

    def position_changes(self, group: str) -> str:
        """Who set a group's positions, and why."""
        return f"{self.prefix}:positions:{{{encode(group)}}}:changes"

    def approval(self, tenant: str, approval_id: str) -> str:
        """One request and its verdict."""
        return f"{self.prefix}:{{approvals}}:one:{encode(tenant)}:{encode(approval_id)}"

    def approval_trace(self, tenant: str, approval_id: str) -> str:
        """The span that a request was made in."""
        return f"{self.prefix}:approval-trace:{encode(tenant)}:{encode(approval_id)}"

    def every_approval(self) -> str:
        """What the key of every approval begins with: what the index of open ones holds."""
        return f"{self.prefix}:{{approvals}}:one:"

    def approval_index(self) -> str:
        """The search index over open approvals."""
        return f"{self.prefix}:open-approvals"

    def approval_timers(self) -> str:
        """Open approvals by when something is to be done about them."""
        return f"{self.prefix}:{{approvals}}:timers"

    def open_approvals(self, tenant: str | None) -> str:
        """Open approvals by time, of one tenant or of all."""
        return f"{self.prefix}:{{approvals}}:open" + ("" if tenant is None else f":{encode(tenant)}")

    def chain_head(self, scope: str, tenant: str) -> str:
        """The last link of a tenant's chain of outcomes."""
        return self._chain(scope, tenant, "head")

    def chain_link(self, scope: str, tenant: str, identity: str) -> str:
        """One outcome as it was linked."""
        return self._chain(scope, tenant, f"link:{encode(identity)}")

    def chain_untold(self, scope: str, tenant: str) -> str:
        """Outcomes that have a link and may not be published yet, by number."""
        return self._chain(scope, tenant, "untold")

    def chain_seeded(self, scope: str) -> str:
        """Set once the chains of a scope are known."""
        return f"{self.prefix}:chains:{encode(scope)}:seeded"

    def every_chain_head(self, scope: str) -> str:
        """A pattern for the heads of all tenants."""
        return f"{self.prefix}:chain:{{{encode(scope)}:*}}:head"

    def tenant_of_chain(self, key: str) -> str:
        """The tenant that a chain's key belongs to."""
        return decode(key[key.index("{") + 1 : key.index("}")].partition(":")[2])

    def held_order(self, thread: str) -> str:
        """Ids of the questions that wait, first come first."""
        return self._thread(thread, "held:order")

    def held_queries(self, thread: str) -> str:
        """The questions that wait, by id."""
        return self._thread(thread, "held:queries")

    def called_off(self, thread: str) -> str:
        """Ids of the thread's questions that are called off, for whoever runs them."""
        return self._thread(thread, "called-off")

    def feedback(self, thread: str) -> str:
        """What people said of the thread's answers, by time."""
        return self._thread(thread, "feedback")

    def trace(self, thread: str, query_id: str) -> str:
        """Where the trace of one question is."""
        return self._thread(thread, f"trace:{encode(query_id)}")

    def checkpoints(self, thread: str) -> str:
        """What goes before `namespace:id` in the key of a checkpoint, which holds its values and what tasks wrote on top."""
        return self._thread(thread, "checkpoint:")

    def history(self, thread: str) -> str:
        """The index of a thread's checkpoints."""
        return self._thread(thread, "history")

    def histories(self) -> str:
        """A pattern for the indexes of all threads."""
        return f"{self.prefix}:thread:{{*}}:history"

    def thread_of(self, key: str) -> str:
        """The thread that a key belongs to."""
        return decode(key[key.index("{") + 1 : key.index("}")])

    def article(self, tenant: str, article_id: str) -> str:
        """An article's card: its revision, when its record was written, and how many passages it has."""
        return f"{self.prefix}:article:{{{encode(tenant)}:{encode(article_id)}}}"

    def retired(self, tenant: str, article_id: str) -> str:
        """What stays of an article that was taken out: when the record that said so was written."""
        return f"{self.prefix}:retired:{{{encode(tenant)}:{encode(article_id)}}}"

    def every_article(self) -> str:
        """A pattern for the cards of all articles."""
        return f"{self.prefix}:article:*"

    def passages(self, tenant: str, article_id: str) -> str:
        """What the keys of an article's passages begin with; the ordinal follows."""
        return f"{self.every_passage()}{{{encode(tenant)}:{encode(article_id)}}}:"

    def every_passage(self) -> str:
        """What the key of every passage begins with: what the search index holds."""
        return f"{self.prefix}:passage:"

    def article_index(self) -> str:
        """The search index over all passages."""
        return f"{self.prefix}:articles"

    def example(self, tenant: str, example_id: str = "") -> str:
        """One example of how a tenant sorts its tickets; without an id, what the keys of all of the tenant's begin with."""
        return f"{self.every_example()}{{{encode(tenant)}}}:{encode(example_id)}"

    def every_example(self) -> str:
        """What the key of every example begins with: what the search index holds."""
        return f"{self.prefix}:example:"

    def example_index(self) -> str:
        """The search index over all examples."""
        return f"{self.prefix}:examples"

    def example_set(self, tenant: str) -> str:
        """The ids of a tenant's examples, each with a hash of what it says."""
        return f"{self.prefix}:example-set:{{{encode(tenant)}}}"

    def example_version(self, tenant: str) -> str:
        """One hash over a tenant's examples."""
        return f"{self.prefix}:example-set:{{{encode(tenant)}}}:version"

    def pace(self, provider: str) -> str:
        """When a provider may be called next."""
        return f"{self.prefix}:pace:{{{encode(provider)}}}:next"

    def pace_waiting(self, provider: str) -> str:
        """Tenants that were told to wait for a provider, by when they are no longer counted."""
        return f"{self.prefix}:pace:{{{encode(provider)}}}:waiting"

    def pace_of(self, provider: str, tenant: str) -> str:
        """What a tenant has reserved of a provider's pace."""
        return f"{self.prefix}:pace:{{{encode(provider)}}}:of:{encode(tenant)}"

    def spent(self, tenant: str, day: str) -> str:
        """What a tenant has used on a day, such as 2026-01-31."""
        return f"{self.prefix}:spent:{{{encode(tenant)}}}:{day}"

    def run(self, tenant: str, query: str) -> str:
        """Set once a query counts as a run of its tenant."""
        return f"{self.prefix}:spent:{{{encode(tenant)}}}:run:{encode(query)}"

    def _chain(self, scope: str, tenant: str, what: str) -> str:
        return f"{self.prefix}:chain:{{{encode(scope)}:{encode(tenant)}}}:{what}"

    def _thread(self, thread: str, what: str) -> str:
        return f"{self.prefix}:thread:{{{encode(thread)}}}:{what}"
