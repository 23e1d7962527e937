"""The CloudFormation types that one call of a service's own API makes: one row each, moto behind the call.

moto's CloudFormation has some of these too, but passes on only a few of their properties. moto's API in turn does not
keep everything of a request.
"""

from local_aws.cloudformation.api_types.compute import COMPUTE
from local_aws.cloudformation.api_types.network import NETWORK
from local_aws.cloudformation.api_types.storage import STORAGE, WATCH

API_TYPES = (*COMPUTE, *NETWORK, *STORAGE, *WATCH)
