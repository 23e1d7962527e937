"""Lines of real starts: Triton 2.51 of nvidia-pytriton with the archive of spellcheck, and what the account wrote
before. Tables and the lines of single requests are left out; the account's moments of the first start are made up.
"""

from datetime import UTC, datetime

from inference_recommender.measure.start_stages import LogLine

OWN = """\
I1123 09:16:40.100000 0 local_aws] "fetching s3://models/spellcheck/model.tar.gz"
I1123 09:16:40.125000 0 local_aws] "unpacking 1,234,567 bytes"
I1123 09:16:40.200000 0 local_aws] "starting the server"
"""
QUIET = """\
W1123 09:16:40.861430 28381 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory, pinned memory pool \
will not be available: CUDA driver version is insufficient for CUDA runtime version"
I1123 09:16:40.861527 28381 cuda_memory_manager.cc:117] "CUDA memory pool disabled"
E1123 09:16:40.861649 28381 server.cc:241] "CudaDriverHelper has not been initialized."
I1123 09:16:40.863204 28381 model_lifecycle.cc:472] "loading: spellcheck:1"
I1123 09:16:42.617473 28381 python_be.cc:2249] "TRITONBACKEND_ModelInstanceInitialize: spellcheck_0_0 (CPU device 0)"
I1123 09:16:43.522044 28381 model_lifecycle.cc:839] "successfully loaded 'spellcheck'"
I1123 09:16:43.522316 28381 server.cc:604]
I1123 09:16:43.522896 28381 http_server.cc:4713] "Started HTTPService at unix:/private/http:1"
"""
VERBOSE = """\
I1123 09:16:46.005892 28702 cache_manager.cc:480] "Create CacheManager with cache_dir: '/opt/tritonserver/caches'"
I1123 09:16:46.007796 28702 model_lifecycle.cc:472] "loading: spellcheck:1"
I1123 09:16:48.274483 28702 backend_model_instance.cc:363] "Generating warmup sample data for 'batch of 1'"
I1123 09:16:48.275683 28702 backend_model_instance.cc:783] "Starting backend thread for spellcheck_0_0 at nice 0 on \
device 0..."
I1123 09:16:48.275728 28702 backend_model_instance.cc:608] "model 'spellcheck' instance spellcheck_0_0 is running \
warmup sample 'batch of 1' for iteration 1"
I1123 09:16:48.318545 28702 backend_model_instance.cc:608] "model 'spellcheck' instance spellcheck_0_0 is running \
warmup sample 'batch of 4' for iteration 1"
I1123 09:16:48.403644 28702 model_lifecycle.cc:839] "successfully loaded 'spellcheck'"
I1123 09:16:48.404343 28702 http_server.cc:4713] "Started HTTPService at unix:/private/http:1"
I1123 09:16:55.000000 28702 model_lifecycle.cc:839] "successfully loaded 'another'"
"""
READ_AT = datetime(2026, 11, 23, 9, 16, 49, tzinfo=UTC).timestamp()


def at(second: float, minute: int = 16) -> float:
    """Returns Unix seconds of a moment in the recorded minute."""
    return datetime(2026, 11, 23, 9, minute, tzinfo=UTC).timestamp() + second


def lines(text: str, written_at: float = READ_AT) -> list[LogLine]:
    return [LogLine(written_at=written_at, text=line) for line in text.splitlines()]
