"""Builds TensorRT engines from portable ONNX graphs: profiles, precision, the command, and running it."""
