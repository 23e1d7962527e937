"""The container image of an endpoint, and the host AMI that starts it.

On CPU and GPU it is Triton with packages (containers/triton), on Inferentia the server of containers/neuron.
"""

from dataclasses import replace

from aws_cdk import Annotations
from constructs import Construct

from stacks.own_image import OwnImage
from stacks.workload_stack import WorkloadStackProps
from workloads import CudaTarget, ModelArtifact, UsageError, own_images
from workloads.images import host_ami, starts
from workloads.instances import NEURON_FAMILIES


class ServingImage(Construct):
    """`image` for the model's container, with the host AMI that starts it."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        image_uri: str | None,
        triton_version: str | None,
        artifact: ModelArtifact,
        instance_types: tuple[str, ...],
        workload: WorkloadStackProps,
    ) -> None:
        super().__init__(scope, id)
        self._triton_version, self._instance_type, self._artifact = triton_version, instance_types[0], artifact
        self._workload = workload
        host: str | None = None
        kind = own_images.endpoint_kind(artifact.runtime, triton_version, self._instance_type)
        if artifact.runtime not in NEURON_FAMILIES:
            host = next(filter(None, (host_ami(triton_version, name) for name in instance_types)), None)
            for name in instance_types:
                self._check_driver(name, host)
            if image_uri is None:
                self._check_triton(kind)
        own = OwnImage(self, "Own", uri=image_uri, kind=kind, workload=workload)
        self.image = replace(own.image, host_ami=host)

    def _check_driver(self, instance_type: str, host: str | None) -> None:
        """Adds a warning if no source says that the image starts on the host: a container that fails logs nothing."""
        if starts(self._triton_version, instance_type, host) is True:
            return
        image = f"Triton {self._triton_version}" if self._triton_version else "the image of hosting.image_uri"
        Annotations.of(self).add_warning_v2(
            f"host-driver:{instance_type}",
            f"{self._workload.folder.file}: hosting: no source says whether {image} starts with the GPU driver of "
            f"{instance_type}. Check it with `python -m stacks preflight --probe {instance_type}`.",
        )

    def _check_triton(self, kind: str) -> None:
        """Raises `UsageError` for a version that our image cannot be built of. Its build checks the region."""
        file, version = self._workload.folder.file, self._triton_version
        if kind not in own_images.TRITON_LOCKS:
            raise UsageError(
                f"{file}: hosting.triton_version: got '{version}', for which containers/triton has no packages on "
                f"{self._instance_type}. It has them for {', '.join(own_images.TRITON_LOCKS)}. Choose one of these, or "
                "set hosting.image_uri to your own image."
            )
        target = self._workload.folder.workload.targets[self._artifact.target]
        if isinstance(target, CudaTarget) and target.execution == "eager" and not self._workload.options.local:
            Annotations.of(self).add_error(
                f"{file}: targets.{self._artifact.target}.execution: got 'eager', which only the local account serves: "
                "the image's PyTorch does not load what the build's exports. Choose traced or cuda-graphs, or set "
                "hosting.image_uri to your own image."
            )


def server_environment(artifact: ModelArtifact) -> dict[str, str]:
    """Returns nothing for containers/neuron, which reads all of its settings from the archive."""
    if artifact.runtime in NEURON_FAMILIES:
        return {}
    return {
        # An archive with more than one model directory answers /invocations with this one.
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": artifact.default_model,
        # The image's default logs every request.
        "SAGEMAKER_TRITON_LOG_VERBOSE": "false",
    }
