"""One way to call AWS: sessions and their retries, errors in plain sentences, S3, processing jobs and logs.

boto3 is imported when a session makes its first client, so importing these modules is quick.
"""
