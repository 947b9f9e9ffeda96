"""An audit of records that are at hand."""

from collections.abc import Iterable
from typing import Any

from flows.approvals.chain import Audit, Findings, Written


def verify(records: Iterable[Written], **asked: Any) -> Findings:
    audit = Audit()
    for record in records:
        audit.add(record)
    return audit.findings(**asked)
