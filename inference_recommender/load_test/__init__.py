"""A workload's traffic by our own generator instead of a job: over 500 requests per second, any ramp, host or server.

served             what is measured, an endpoint or a server at a URL, and the generator's plan against it. Pure
measured           the result of a generator, or of several merged, as a Measurement with its time series
target             the endpoint or server that is asked, and what is known of it; its AWS adapter
load_test          the use case: drive the load, keep what it measured, decide and report, as a job's run does
generator_request  several generators as one SageMaker Processing job. Pure
generator_fleet    sends that job, waits, and merges what each host measured; `generator_entry` is the program it runs
open_arrivals      the open-loop search after a test: --search, or the check of an estimate that is far too low
probe              a probe of that search: the generator at a fixed rate, repeated if this machine stalled
aws                the AWS adapter

No Processing job has been run against AWS: the request is held to botocore's service model; the entry program, the
meeting of the generators and the merging run in the tests as several processes on loopback.
"""
