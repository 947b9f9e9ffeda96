"""Running a dataset through the real graph, and telling what came of it."""
