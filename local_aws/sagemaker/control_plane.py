"""moto's SageMaker with endpoints that answer, Inference Recommender jobs that run, and processing jobs.

The backend checks states in the service's words and leaves the work to `LocalEndpoint` and the jobs. The response class
checks requests by the service model and translates.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moto.applicationautoscaling.models import applicationautoscaling_backends
from moto.cloudwatch.models import cloudwatch_backends
from moto.core.responses import ActionResult, EmptyResult
from moto.ecr.models import ecr_backends
from moto.sagemaker.exceptions import ValidationError
from moto.sagemaker.models import FakeEndpointConfig, Model, SageMakerModelBackend
from moto.sagemaker.responses import SageMakerResponse

from local_aws import quotas as service_quotas
from local_aws import service_model
from local_aws.permissions.enforced import ECR_IMAGE
from local_aws.sagemaker.endpoint import LocalEndpoint
from local_aws.sagemaker.endpoint_fleet import EndpointVariant, instance_types_of
from local_aws.sagemaker.guardrails import Guardrails
from local_aws.sagemaker.model_host import ModelHost
from local_aws.sagemaker.processing_jobs import ProcessingJobs
from local_aws.sagemaker.recommendation_jobs import RecommendationJobs, tags_of
from local_aws.scaling.alarms import DIMENSION

_NOT_IN_MOTO = ("EnableNetworkIsolation", "ExecutionRoleArn", "MetricsConfig", "ShadowProductionVariants", "VpcConfig")
# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ProductionVariantServerlessConfig.html
_SERVERLESS_MB = range(1024, 6145, 1024)
_BUSY = ("Creating", "Updating", "RollingBack", "SystemUpdating", "Deleting")


class LocalEndpointConfig(FakeEndpointConfig):
    """An endpoint configuration with the members that moto does not store."""

    more: Mapping[str, Any] = {}

    def validate_production_variants(self, production_variants: list[dict[str, Any]]) -> None:
        """Checks models and the memory of serverless variants. The service model has checked the rest."""
        for number, variant in enumerate(production_variants, start=1):
            if "ModelName" not in variant:
                raise ValidationError(f"Variant {number} has no ModelName. This account runs no inference components.")
            memory = variant.get("ServerlessConfig", {}).get("MemorySizeInMB")
            if memory is not None and memory not in _SERVERLESS_MB:
                path = f"productionVariants.{number}.member.serverlessConfig.memorySizeInMB"
                raise ValidationError(
                    f"1 validation error detected: Value '{memory}' at '{path}' failed to satisfy constraint: "
                    f"Member must satisfy enum value set: {list(_SERVERLESS_MB)}"
                )

    def is_created(self) -> bool:
        return True

    @property
    def response_object(self) -> dict[str, Any]:
        return {**_without_empty(super().response_object), **self.more}


class LocalSageMakerBackend(SageMakerModelBackend):
    def __init__(self, region_name: str, account_id: str, host: ModelHost) -> None:
        super().__init__(region_name, account_id)
        self.host = host
        self.jobs = RecommendationJobs(host, region_name, self)
        self.processing = ProcessingJobs(host.settings, region_name, host.environment)
        self.processing_jobs = self.processing.all

    def close(self) -> None:
        """Stops the jobs and waits until none runs."""
        self.jobs.close()
        self.processing.close()

    def create_model(self, model_name: str, *arguments: Any, **named: Any) -> Model:
        if model_name in self._models:
            raise ValidationError(f'Cannot create already existing model "{self._models[model_name].arn}".')
        return super().create_model(model_name, *arguments, **named)

    def check_image(self, image: str) -> None:
        """Raises `ValidationError` for an image that is missing in the account's own registry."""
        own = ECR_IMAGE.fullmatch(image)
        if own is None or own["account"] != self.account_id:
            return
        repository = ecr_backends[self.account_id][own["region"]].repositories.get(own["repository"])
        pushed = repository.images if repository else []
        name = own["digest"] or own["tag"] or "latest"
        if not any(name in (*each.image_tags, each.get_image_digest()) for each in pushed):
            raise ValidationError(f"Requested image {image} not found.")

    def create_endpoint_config(
        self, endpoint_config_name: str, production_variants: list[dict[str, Any]], *_: Any, **named: Any
    ) -> FakeEndpointConfig:
        config = LocalEndpointConfig(
            account_id=self.account_id,
            region_name=self.region_name,
            endpoint_config_name=endpoint_config_name,
            production_variants=production_variants,
            **named,
        )
        if endpoint_config_name in self.endpoint_configs:
            raise ValidationError(
                f'Cannot create already existing endpoint configuration "{config.endpoint_config_arn}".'
            )
        self.validate_production_variants(production_variants)
        self.endpoint_configs[endpoint_config_name] = config
        return config

    def create_endpoint(
        self,
        endpoint_name: str,
        endpoint_config_name: str,
        tags: list[dict[str, str]],
        guardrails: Guardrails | None = None,
    ) -> LocalEndpoint:
        self._check_alarms(guardrails)
        variants = self._variants(endpoint_config_name)
        if endpoint_name in self.endpoints:
            raise ValidationError(f'Cannot create already existing endpoint "{self.endpoints[endpoint_name].arn}".')
        self.check_endpoint_quota(_instances(variants))
        about: Any = (endpoint_name, endpoint_config_name, variants, {}, tags)
        endpoint = LocalEndpoint(self.host, self.account_id, self.region_name, *about)
        endpoint.guardrails = guardrails
        self.endpoints[endpoint_name] = endpoint
        endpoint.create(self._resolver(variants), variants)
        return endpoint

    def update_endpoint(
        self, endpoint_name: str, config_name: str, *, retain: bool, guardrails: Guardrails | None
    ) -> LocalEndpoint:
        endpoint = self._idle_endpoint(endpoint_name)
        self._check_alarms(guardrails)
        variants = self._variants(config_name)
        self._check_scaled_variants(endpoint, variants)
        self.check_endpoint_quota(_instances(variants))  # both fleets run until the new one has taken over
        endpoint.guardrails = guardrails
        endpoint.update(self._resolver(variants), config_name, variants, retain=retain)
        return endpoint

    def update_endpoint_weights_and_capacities(
        self, endpoint_name: str, desired_weights_and_capacities: list[dict[str, Any]]
    ) -> str:
        endpoint = self._idle_endpoint(endpoint_name)
        desired = {each["VariantName"]: each for each in desired_weights_and_capacities}
        for name, count in Counter(each["VariantName"] for each in desired_weights_and_capacities).items():
            if count > 1:
                raise ValidationError(f'The variant name "{name}" was non-unique within the request.')
        if unknown := desired.keys() - {each["VariantName"] for each in endpoint.production_variants}:
            raise ValidationError(
                f'The variant name(s) "{", ".join(sorted(unknown))}" is/are not present within endpoint configuration '
                f'"{endpoint.endpoint_config_name}".'
            )
        endpoint.scale(desired)
        return str(endpoint.arn)

    def list_endpoints(self, *_: Any, **about: Any) -> Any:
        """Lists the newest first by default, as the service does, and not the oldest as moto."""
        return super().list_endpoints(**about | {"sort_order": about["sort_order"] or "Descending"})

    def list_endpoint_configs(self, *_: Any, **about: Any) -> Any:
        return super().list_endpoint_configs(**about | {"sort_order": about["sort_order"] or "Descending"})

    def delete_endpoint(self, endpoint_name: str) -> None:
        endpoint = self.endpoint(endpoint_name)
        if endpoint.endpoint_status != "Deleting":
            self._idle_endpoint(endpoint_name).delete(lambda: self.endpoints.pop(endpoint_name, None))

    def describe_endpoint(self, endpoint_name: str) -> dict[str, Any]:
        return self.endpoint(endpoint_name).response_object

    def endpoint(self, name: str) -> LocalEndpoint:
        """Raises `ValidationError` in the service's words."""
        endpoint = self.endpoints.get(name)
        if not isinstance(endpoint, LocalEndpoint):
            arn = LocalEndpoint.arn_formatter(name, self.account_id, self.region_name)
            raise ValidationError(f'Could not find endpoint "{arn}".')
        return endpoint

    def check_endpoint_quota(self, wanted: Mapping[str, int]) -> None:
        """Raises `ResourceLimitExceeded` for instances beyond a quota, beside those of endpoints and of jobs' tests."""
        fleets = [self._fleet(endpoint) for endpoint in self.endpoints.values()]
        service_quotas.check(
            self.host.settings.quotas, "endpoint", sum([*fleets, *self.jobs.instances()], Counter()), wanted
        )

    def _fleet(self, endpoint: Any) -> Counter[str]:
        """Returns instance type → instances of an endpoint, whose own variants have no types."""
        config = self.endpoint_configs.get(endpoint.endpoint_config_name)
        counts = {each["VariantName"]: each for each in endpoint.production_variants}
        return _instances(each | counts[each["VariantName"]] for each in (config.production_variants if config else []))

    def _idle_endpoint(self, name: str) -> LocalEndpoint:
        endpoint = self.endpoint(name)
        if endpoint.endpoint_status in _BUSY:
            raise ValidationError(f'Cannot update in-progress endpoint "{endpoint.arn}".')
        return endpoint

    def _check_alarms(self, guardrails: Guardrails | None) -> None:
        if missing := [name for name, alarm in guardrails.alarms.items() if alarm is None] if guardrails else []:
            raise ValidationError(
                f"AutoRollbackConfiguration names alarms that do not exist in {self.region_name}: "
                f"{', '.join(missing)}. Create them first."
            )

    def _check_scaled_variants(self, endpoint: LocalEndpoint, variants: list[dict[str, Any]]) -> None:
        """https://docs.aws.amazon.com/sagemaker/latest/dg/endpoint-scaling-update.html"""
        scaled = applicationautoscaling_backends[self.account_id][self.region_name].targets.get(DIMENSION, {})
        new = {each["VariantName"]: instance_types_of(each) for each in variants}
        now = self.endpoint_configs.get(endpoint.endpoint_config_name)
        for each in now.production_variants if now else []:
            name, types = each["VariantName"], instance_types_of(each)
            if f"endpoint/{endpoint.endpoint_name}/variant/{name}" in scaled and new.get(name) != types:
                raise ValidationError(
                    f"Variant {name} of endpoint {endpoint.endpoint_name} is registered with Application Auto Scaling, "
                    f"and the update would remove it or change its instance type {', '.join(types)}. Delete its "
                    "scaling policies and call DeregisterScalableTarget first."
                )

    def _get_resource_from_arn(self, arn: str) -> Any:
        return self.jobs.by_arn(arn) or super()._get_resource_from_arn(arn)

    def _variants(self, config_name: str) -> list[dict[str, Any]]:
        if config_name not in self.endpoint_configs:
            arn = FakeEndpointConfig.arn_formatter(config_name, self.account_id, self.region_name)
            raise ValidationError(f'Could not find endpoint configuration "{arn}".')
        return self.endpoint_configs[config_name].production_variants

    def model(self, name: str) -> Mapping[str, Any]:
        """Returns a description of a model, with the containers of its package in place of the package's name."""
        model: dict[str, Any] = self.describe_model(name).response_object
        if package := (model.get("PrimaryContainer") or {}).get("ModelPackageName"):
            specification = self.describe_model_package(package).inference_specification
            return {**model, "PrimaryContainer": None, "Containers": specification["Containers"]}
        return model

    def _resolver(self, variants: list[dict[str, Any]]) -> Callable[[Mapping[str, Any]], EndpointVariant]:
        # The models are read now, because they may be deleted while the endpoint starts, as the service allows.
        models = {item["ModelName"]: self.model(item["ModelName"]) for item in variants}
        return lambda item: EndpointVariant.of(item, models[item["ModelName"]])


class LocalSageMakerResponse(SageMakerResponse):
    @property
    def backend(self) -> LocalSageMakerBackend:
        return self.sagemaker_backend  # type: ignore[return-value]  # installed before the server starts

    def _checked(self) -> dict[str, Any]:
        request = dict(self._get_params())
        service_model.check("sagemaker", self._get_action(), request)
        return request

    def create_model(self) -> ActionResult:
        request = self._checked()
        if self.backend.host.settings.images_must_exist:
            for container in [request.get("PrimaryContainer") or {}, *(request.get("Containers") or [])]:
                self.backend.check_image(container.get("Image", ""))
        answer = super().create_model()
        model = self.backend._models[request["ModelName"]]
        model.enable_network_isolation = request.get("EnableNetworkIsolation", False)
        return answer

    def describe_model(self) -> ActionResult:
        """Leaves out empty members: an empty VpcConfig is invalid."""
        return ActionResult(_without_empty(self.backend.describe_model(self._checked()["ModelName"]).response_object))

    def create_endpoint_config(self) -> ActionResult:
        request = self._checked()
        answer = super().create_endpoint_config()
        config: Any = self.backend.endpoint_configs[request["EndpointConfigName"]]
        config.more = {name: request[name] for name in _NOT_IN_MOTO if name in request}
        return answer

    def create_endpoint(self) -> ActionResult:
        request = self._checked()
        about = (request["EndpointName"], request["EndpointConfigName"], request.get("Tags", []))
        return ActionResult({"EndpointArn": self.backend.create_endpoint(*about, self._guardrails(request)).arn})

    def update_endpoint(self) -> ActionResult:
        request = self._checked()
        name, config = request["EndpointName"], request["EndpointConfigName"]
        retain = bool(request.get("RetainAllVariantProperties", False))
        endpoint = self.backend.update_endpoint(name, config, retain=retain, guardrails=self._guardrails(request))
        return ActionResult({"EndpointArn": endpoint.arn})

    def list_endpoints(self) -> ActionResult:
        self._checked()
        return super().list_endpoints()

    def list_endpoint_configs(self) -> ActionResult:
        self._checked()
        return super().list_endpoint_configs()

    def update_endpoint_weights_and_capacities(self) -> ActionResult:
        request = self._checked()
        name, desired = request["EndpointName"], request["DesiredWeightsAndCapacities"]
        return ActionResult({"EndpointArn": self.backend.update_endpoint_weights_and_capacities(name, desired)})

    def _guardrails(self, request: Mapping[str, Any]) -> Guardrails | None:
        config = request.get("DeploymentConfig")
        return Guardrails(config, cloudwatch_backends[self.current_account][self.region]) if config else None

    def create_inference_recommendations_job(self) -> ActionResult:
        return ActionResult({"JobArn": self.backend.jobs.create(self._checked()).arn})

    def describe_inference_recommendations_job(self) -> ActionResult:
        return ActionResult(self.backend.jobs.get(self._checked()["JobName"]).described())

    def list_inference_recommendations_jobs(self) -> ActionResult:
        return ActionResult(self.backend.jobs.list(self._checked()))

    def list_inference_recommendations_job_steps(self) -> ActionResult:
        return ActionResult(self.backend.jobs.list_steps(self._checked()))

    def stop_inference_recommendations_job(self) -> EmptyResult:
        self.backend.jobs.stop(self._checked()["JobName"])
        return EmptyResult()

    def create_processing_job(self) -> ActionResult:
        request, jobs = self._checked(), self.backend.processing
        cluster = request["ProcessingResources"]["ClusterConfig"]
        wanted = {cluster["InstanceType"]: cluster["InstanceCount"]}
        service_quotas.check(self.backend.host.settings.quotas, "processing job", jobs.instances(), wanted)
        return ActionResult({"ProcessingJobArn": jobs.create(request).arn})

    def describe_processing_job(self) -> ActionResult:
        return ActionResult(self.backend.processing.get(self._checked()["ProcessingJobName"]).response_object)

    def stop_processing_job(self) -> EmptyResult:
        self.backend.processing.stop(self._checked()["ProcessingJobName"])
        return EmptyResult()

    def add_tags(self) -> ActionResult:
        """Overwrites a tag of the same name, where moto would keep both."""
        request = self._checked()
        resource = self.backend._get_resource_from_arn(request["ResourceArn"])
        tags = {tag["Key"]: tag["Value"] for tag in [*resource.tags, *request["Tags"]]}
        resource.tags = tags_of(tags)
        return ActionResult({"Tags": resource.tags})


def _instances(variants: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Returns instance type → instances of the variants, as many as each has or gets."""
    counted: Counter[str] = Counter()
    for each in variants:
        for instance_type in instance_types_of(each)[:1]:
            counted[instance_type] += each.get("DesiredInstanceCount") or each.get("InitialInstanceCount", 1)
    return counted


def _without_empty(response: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in response.items() if value not in ({}, [])}
