"""The batch program: JSON lines in, predictions out, over every NeuronCore or CPU core of one or several machines.

Examples:

  python -m containers.batch --model build/duplicates/cpu/model.tar.gz --input rows.jsonl --output predictions
  python -m containers.batch --model s3://models/model.tar.gz --input s3://rows/today --output s3://answers/today \\
      --shard 1/4
  python -m containers.batch.account --input rows.jsonl --output predictions     after all shards: is every row there?

In: .jsonl or .jsonl.gz, one file or a folder of them, on disk or under s3://. A row is a line that is not blank: a JSON
object with an `id` (text or an integer, given back as it came, not checked for repeats) and the model's fields. Other
keys are ignored. A .jsonl may be empty; a .jsonl.gz of no bytes is an error, because gzip never writes one.

Out, every name under --output:
  job.json                  what this output was made from; a restart that differs is refused
  predictions-NNNNNN.jsonl  the answers of one chunk, in input order: {"id": …} and the answer's keys
  bad-NNNNNN.jsonl          the rows of it that could not be answered: file, line, id if it has one, reason; also those
                            for which the model's answer has a number that is not finite, which JSON cannot hold
  manifest.json             written last: every chunk's rows counted again in its files, with their sha256

Every row is in one of the two, once. The input is cut into chunks, always at the same places. A chunk's predictions
file appears whole or not at all and after its bad rows, so that the files that are there are the state: a killed run
loses the chunks it was on and a restart does those again, with the same bytes for the same batches. Shards share one
output: --shard I/N takes every Nth chunk.
"""
