"""Local ONNX models: files, tokenizers and sessions, for embedding and reranking."""
