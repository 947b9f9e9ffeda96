"""OpenTelemetry spans: of records, of LangChain's runs, of calls to providers. The door to the SDK.

Nothing is global: whoever begins to handle a record puts its span into the context (`scope.py`), and what happens inside finds its
parent there. Without that, nothing is traced and nothing is paid for.
"""
