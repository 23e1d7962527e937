"""The start script of our Triton image, and the program that reports Triton's times to CloudWatch."""
