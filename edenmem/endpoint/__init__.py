"""OpenAI-compatible endpoints of language models and embedding models."""
