"""OpenAI-compatible endpoints: what language models and embeddings ask of them alike."""
