"""A small OpenAI-compatible server for the demo and the tests: deterministic, and scriptable for every way a provider fails."""
