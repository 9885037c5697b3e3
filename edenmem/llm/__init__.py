"""Language models and their providers."""

#: The error of work without a language model.
NO_LLM = "no language model is configured"

#: Hint for commands that need a language model.
LLM_HINT = (
    "set OPENAI_API_KEY, or llm.base_url to an OpenAI-compatible endpoint (Ollama, vLLM, …);"
    " see 'edenmem help models'"
)
