"""CDK entry: `cdk.json` names it. The stacks are in stacks/app.py."""

import gc
import sys

# A synthesis takes seconds, of which garbage collection over all that the imports create would be a tenth.
gc.disable()

from stacks.app import main

if __name__ == "__main__":
    sys.exit(main())
