"""The chat proxy: OpenAI's chat completions, with memory."""
