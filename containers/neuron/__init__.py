"""The HTTP server of the encoder tasks on Inferentia, for SageMaker endpoints and ECS services.

A launcher (`__main__`) starts one worker per core, per group of pipeline cores, or per few chips of a data-parallel
model. A worker has its own copy of the model, dynamic batching and listening socket. The sockets share a port
(SO_REUSEPORT), and the kernel distributes connections. Requests and answers are KServe v2 in JSON or binary.

Tests run the server with a model for CPU. It runs on Python 3.10 with httptools and uvloop.
"""
