"""Portable ONNX graphs to TensorRT engines: profiles, precision, operators, the command, and running it."""
