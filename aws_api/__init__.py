"""One way to call AWS: errors in plain sentences, retries, images, processing jobs, S3 and logs."""
