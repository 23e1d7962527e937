"""The default model of a Triton archive with several models: passes each request on to the model that it names."""
