"""Policies of networks: over vectors, from ONNX files, and in chunks of actions."""
