"""`[model]` of workload.toml: the task, where the weights are, and how requests become the model's input.

A request has text fields. A text2text model has one, `text`; an encoder's are put together into one or two segments.
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator
from typing_extensions import Self

from workloads.document import Document

PositiveInt = Annotated[int, Field(ge=1)]
Architecture = Literal["t5-small", "t5-base", "bert-base-uncased", "bert-large-uncased"]
FieldName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]
Label = Annotated[str, Field(min_length=1, max_length=60)]
Padding = Literal["longest", "max_length"]
ModelInput = Literal["input_ids", "attention_mask", "position_ids", "valid_length", "token_type_ids"]


class RandomWeights(Document):
    """A published architecture with seeded random weights: built, compiled and timed with no hub.

    It has nothing to be right about: the parity gate holds it to the original's numbers, and to no label.
    """

    architecture: Architecture
    weights: Literal["random"]
    seed: int = 0
    shrink: PositiveInt = Field(
        default=1, description="Divides layers, attention heads and width; 1 is the architecture's true size."
    )


Location = Annotated[
    str,
    Field(
        title="Location",
        min_length=1,
        description="A folder (begins with ./, ../ or /; relative to the workload's folder), an s3:// URI of a "
        "folder, or else a model id of the Hugging Face hub. For Inferentia also a local TorchScript file, which ends "
        "with .pt and has tokenizer.json beside it: it takes `inputs` in order and returns a tuple of the outputs.",
    ),
]


def _source(value: Any) -> str:
    return "RandomWeights" if isinstance(value, (dict, RandomWeights)) else "Location"


Checkpoint = Annotated[
    Annotated[Location, Tag("Location")] | Annotated[RandomWeights, Tag("RandomWeights")], Discriminator(_source)
]


class TextToText(Document):
    """An encoder and a decoder that writes an answer: T5."""

    task: Literal["text2text-generation"]
    checkpoint: Checkpoint
    max_input_tokens: PositiveInt = Field(description="Longer requests are refused, never cut.")
    max_output_tokens: PositiveInt = Field(description="Decoding stops here at the latest, end-of-sequence included.")

    @property
    def fields(self) -> tuple[str, ...]:
        return ("text",)


class Encoder(Document):
    """The keys that the encoder tasks share: a BERT with a head."""

    checkpoint: Checkpoint
    backbone: Location | None = Field(
        default=None,
        description="Where the encoder's own weights are when several workloads share them; the checkpoint "
        "then holds a head alone. None where the checkpoint holds all.",
    )
    framework: Literal["pytorch"] = "pytorch"
    preprocess: Annotated[str, Field(pattern=r"^(\./|\.\./|/).+\.pt$")] | None = Field(
        default=None,
        description="For Inferentia, a local TorchScript module that tokenises in the place of tokenizer.json, which "
        "stays beside the checkpoint for the padding: takes List[List[str]], the texts of each row, and returns their "
        "token ids and types. Not for question answering, which needs the place of each token in the text.",
    )
    segments: tuple[tuple[FieldName, ...], ...] = Field(
        min_length=1, max_length=2, description="The request's text fields. Those of one segment are joined by a space."
    )
    max_input_tokens: PositiveInt = Field(
        description="Tokens of both segments, special ones included. Longer requests are refused, or with truncation "
        "cut."
    )
    truncation: bool = Field(
        default=False, description="Cut longer requests, the longer segment first, instead of refusing them."
    )
    padding: Padding = Field(
        default="longest",
        description="longest: to the longest request of a batch, or where the runtime wants few lengths to the next "
        "of these. max_length: every request to max_input_tokens.",
    )
    inputs: tuple[ModelInput, ...] = Field(
        default=("input_ids", "attention_mask", "token_type_ids"),
        min_length=1,
        description="The tensors of the compiled model, in order.",
    )

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field for segment in self.segments for field in segment)

    @field_validator("framework", mode="before")
    @classmethod
    def _framework_is_supported(cls, value: Any) -> Any:
        if value == "tensorflow":
            raise ValueError(
                "TensorFlow on Inferentia has had no support from AWS since Neuron 2.31, and nothing here serves a "
                "SavedModel: save the model as PyTorch's, with safetensors, and leave framework out."
            )
        return value

    @model_validator(mode="after")
    def _fields_and_inputs_are_whole(self) -> Self:
        if not all(self.segments):
            raise ValueError("segments: each needs a field.")
        for key, names in (("segments", self.fields), ("inputs", self.inputs)):
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{key}: {', '.join(twice)} is named twice.")
        if "input_ids" not in self.inputs:
            raise ValueError("inputs: input_ids is missing.")
        return self


class TextClassification(Encoder):
    """Answers with one of `labels` and how sure the model is."""

    task: Literal["text-classification"]
    segments: tuple[tuple[FieldName, ...], ...] = Field(default=(("text",),), min_length=1, max_length=2)
    labels: tuple[Label, ...] = Field(min_length=2, description="In the order of the head's outputs.")


class TextPairScoring(Encoder):
    """Answers how alike two texts are, 0 to 1, and with one of `labels` how they relate."""

    task: Literal["text-pair-scoring"]
    segments: tuple[tuple[FieldName, ...], ...] = Field(min_length=2, max_length=2)
    labels: tuple[Label, ...] = Field(min_length=2, description="In the order of the head's outputs.")


class QuestionAnswering(Encoder):
    """Answers a question with a span of a context."""

    task: Literal["question-answering"]
    segments: tuple[tuple[FieldName, ...], ...] = Field(
        default=(("question",), ("context",)), min_length=2, max_length=2, description="The answer is in the second."
    )
    max_answer_tokens: PositiveInt = 30


EncoderModel = TextClassification | TextPairScoring | QuestionAnswering
Model = Annotated[TextToText | TextClassification | TextPairScoring | QuestionAnswering, Field(discriminator="task")]

METRICS: dict[str, tuple[str, ...]] = {
    "text2text-generation": ("exact_match", "unchanged_rate"),
    "text-classification": ("accuracy", "macro_f1"),
    "text-pair-scoring": ("accuracy", "macro_f1", "score_correlation"),
    "question-answering": ("exact_match", "f1"),
}
"""The metrics that are measured on evaluation.jsonl, by task: shares of 0 to 1, correlations of -1 to 1."""
