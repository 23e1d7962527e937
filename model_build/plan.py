"""What a build would do, decided before anything is done.

In: a workload's folder and the name of a target. Out: a frozen `BuildPlan`. Reads the workload and its checkpoint (a
remote one is fetched into the cache); writes nothing into the target's folder and needs no torch.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from containers.text2text.settings import Settings
from model_build import config_pbtxt, repository
from model_build.checkpoint import Checkpoint, resolve
from workloads import Example, OnnxRuntimeTarget, Workload, WorkloadFolder, artifact_file
from workloads.errors import InvalidDocument

ARCHIVE = "model.tar.gz"


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildPlan:
    root: Path
    workload: Workload
    target_name: str
    target: OnnxRuntimeTarget
    checkpoint: Checkpoint
    evaluation_file: Path
    examples: tuple[Example, ...]
    settings: Settings
    config_pbtxt: str

    @property
    def model(self) -> str:
        """The Triton model's name."""
        return self.workload.name

    @property
    def artifact(self) -> Path:
        return artifact_file(self.root, self.workload.name, self.target_name)

    @property
    def folder(self) -> Path:
        return self.artifact.parent

    @property
    def archive(self) -> Path:
        return self.folder / ARCHIVE

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    @property
    def warmup_text(self) -> str:
        """The longest real text there is, so that the first long request finds its memory allocated."""
        return max((example.text for example in self.examples), key=len)

    def document(self) -> dict[str, Any]:
        """As `plan --json` prints it."""
        return {
            "workload": self.workload.name,
            "target": self.target_name,
            "runtime": self.target.runtime,
            "precision": self.target.precision,
            "checkpoint": str(self.checkpoint.folder),
            "checkpoint_sha256": self.checkpoint.sha256,
            "settings": asdict(self.settings),
            "artifact": str(self.artifact),
            "archive": str(self.archive),
            "archive_files": repository.files(self.model),
            "config_pbtxt": self.config_pbtxt,
        }


def plan(folder: WorkloadFolder, target_name: str, root: Path) -> BuildPlan:
    """Raises the errors of the workload's files and of its checkpoint."""
    target = folder.target(target_name)
    examples = tuple(folder.evaluation())
    evaluation_file = folder.path / "evaluation.jsonl"
    if not any(example.text == example.label for example in examples):
        raise InvalidDocument(
            evaluation_file,
            [f"none of its {len(examples)} pairs has a text equal to its label, so left_alone cannot be measured."],
        )
    checkpoint = resolve(folder, root / "build" / "checkpoints")
    settings = decoding_settings(folder.workload, target, checkpoint)
    return BuildPlan(
        root=root,
        workload=folder.workload,
        target_name=target_name,
        target=target,
        checkpoint=checkpoint,
        evaluation_file=evaluation_file,
        examples=examples,
        settings=settings,
        config_pbtxt=config_pbtxt.render(folder.workload.name, folder.workload.serving, settings),
    )


def decoding_settings(workload: Workload, target: OnnxRuntimeTarget, checkpoint: Checkpoint) -> Settings:
    return Settings(
        max_input_tokens=workload.model.max_input_tokens,
        max_output_tokens=workload.model.max_output_tokens,
        decoder_start_token_id=checkpoint.decoder_start_token_id,
        eos_token_ids=checkpoint.eos_token_ids,
        pad_token_id=checkpoint.pad_token_id,
        threads=target.threads,
    )
