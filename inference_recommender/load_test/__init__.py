"""The same experiment by our own generator: beyond 500 requests per second, faster ramps, any host image, any server.

    served       what is measured: a SageMaker endpoint by name, or a server at a URL
    plan         a workload's traffic and what is served → the generator's plan. Pure
    measured     what a generator, or several merged, came to → a Measurement with its course. Pure but for its files
    run          measure, keep, decide and report, as a job's run does
    fleet        several generators as one SageMaker Processing job; `request` is its request, `entry` what it runs

No Processing job has been run by those who wrote this: the request is held to botocore's service model, and `entry`,
the meeting of the generators and the merging run in the tests as several processes on loopback.
"""
