"""The HTTP server of the encoder tasks on Inferentia, for SageMaker endpoints and for ECS services.

  serve                               in the container; `python -m containers.neuron` in this checkout

A launcher looks at the model and the NeuronCores and starts one worker for each core, one for each group of pipeline
cores, or few for the chips of a data-parallel model (`cores.shares`). A worker is a process with its own copy of the
model, its own dynamic batching and its own listening socket: they share the port (SO_REUSEPORT), and the kernel gives
each connection to one. Requests and answers are KServe v2, in JSON or binary, as Triton takes and gives them, so that
the same request works on both.

The model's folder holds server.json (`server_settings.ServerSettings`) beside the files of `containers.encoder`. It
serves a model for CPU, too, which is how the tests run the server. Runs on Python 3.10, with httptools and uvloop.
"""
