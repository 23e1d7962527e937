"""moto's SageMaker with endpoints answered by Triton and Inference Recommender jobs that run."""
