"""Models on this machine: what embedding and reranking with an ONNX graph have in common."""
