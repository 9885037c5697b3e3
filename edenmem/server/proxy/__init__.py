"""The chat proxy: OpenAI chat completions with memory."""
