"""The batch program: JSON lines in, predictions out, over every NeuronCore or CPU core of one or several machines.

Examples:

  python -m containers.batch --model build/duplicates/cpu/model.tar.gz --input rows.jsonl --output predictions
  python -m containers.batch --model s3://models/model.tar.gz --input s3://rows/today --output s3://answers/today \\
      --shard 1/4
  python -m containers.batch.account --input rows.jsonl --output predictions     after all shards: is every row there?

Input: .jsonl or .jsonl.gz, one file or a folder of them, on disk or under s3://. Each line that is not blank is a row:
a JSON object with an `id` (text or an integer, returned unchanged, may repeat) and the model's fields. Other keys are
ignored. A .jsonl may be empty. An empty .jsonl.gz is an error, because gzip never writes one.

Output, all below --output:
  job.json                  what this output was made from; a restart that differs is refused
  predictions-NNNNNN.jsonl  the answers of one chunk, in input order: {"id": …} and the answer's keys
  bad-NNNNNN.jsonl          its rows without an answer: file, line, id if known, reason; also rows whose answer has a
                            number that is not finite, which JSON cannot hold
  manifest.json             written last: every chunk's rows, counted in its files, with their sha256

Each row is in one of the two, once. The input is cut into chunks, always at the same places. A chunk's predictions
file appears complete or not at all, and after its bad rows. A killed run loses its unfinished chunks. A restart
computes them again, with the same bytes for the same batches. Shards share one output: --shard I/N takes every Nth
chunk.
"""
