"""The embedded stack: broker, Redis, model server and back office, for a laptop and the tests."""
