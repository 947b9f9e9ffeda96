"""Chat and embedding models behind any OpenAI-compatible endpoint."""
