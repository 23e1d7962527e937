"""The types that a service's own API makes: one row each, moto behind the call.

moto's CloudFormation has some of these too, but passes on only a few of their properties. What moto's own API does not
keep of a request is not here to be known; `docs/rehearsal.md` lists it.
"""

from local_aws.cloudformation.api_types.batch import BATCH
from local_aws.cloudformation.api_types.ecs import ECS
from local_aws.cloudformation.api_types.network import NETWORK
from local_aws.cloudformation.api_types.release import RELEASE
from local_aws.cloudformation.api_types.serving import SERVING
from local_aws.cloudformation.api_types.storage import STORAGE
from local_aws.cloudformation.api_types.watch import WATCH

API_TYPES = (*SERVING, *ECS, *NETWORK, *STORAGE, *WATCH, *BATCH, *RELEASE)
