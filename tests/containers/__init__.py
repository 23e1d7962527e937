"""The serving code, by itself and in a real Triton."""

import os

# As model_build's command line does, and for its reason; it must stand before the first import of torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
