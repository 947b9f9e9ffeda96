"""The agent: a graph that gates, then executes."""
