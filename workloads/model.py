"""`[model]` of workload.toml: the task, where the weights are, and how requests become the model's input.

A request has text fields. A text2text model has one, `text`; an encoder's are put together into one or two segments.
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator
from typing_extensions import Self

from workloads.document import Document, PositiveInt

Architecture = Literal["t5-small", "t5-base", "bert-base-uncased", "bert-large-uncased"]
FieldName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]
Label = Annotated[str, Field(min_length=1, max_length=60)]
Padding = Literal["longest", "max_length"]
Segments = tuple[tuple[FieldName, ...], ...]
ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
Share = Annotated[float, Field(ge=0, le=1)]
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
        "folder or a .tar.gz, or a model id of the Hugging Face hub. @ and a commit pin a model id. "
        "For Inferentia also a local TorchScript file that ends with .pt, with tokenizer.json in its folder. "
        "It takes `inputs` in order and returns a tuple of the outputs.",
    ),
]


def _source(value: Any) -> str:
    return "RandomWeights" if isinstance(value, (dict, RandomWeights)) else "Location"


Checkpoint = Annotated[
    Annotated[Location, Tag("Location")] | Annotated[RandomWeights, Tag("RandomWeights")], Discriminator(_source)
]


class Generation(Document):
    """Decoding settings with transformers' names. A missing one has the value of the checkpoint's
    generation_config.json."""

    num_beams: Annotated[int, Field(ge=1, le=32)] | None = None
    length_penalty: Annotated[float, Field(ge=-10, le=10)] | None = None
    early_stopping: bool | Literal["never"] | None = None
    do_sample: bool | None = Field(default=None, description="Draw tokens by their likelihood.")
    temperature: Annotated[float, Field(gt=0, le=100)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_length: Annotated[int, Field(ge=0)] | None = None
    no_repeat_ngram_size: Annotated[int, Field(ge=0)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    forced_bos_token: Annotated[str, Field(min_length=1, max_length=60)] | None = Field(
        default=None, description="The token that every answer begins with: of a multilingual model, its language."
    )
    guided: Literal["off", "input", "ngram"] = Field(
        default="off",
        description="Check several tokens of the input in one pass. input: an answer resembles its input, as in "
        "spelling correction. ngram: it repeats parts of it, as a summary does. The answers are those of greedy "
        "decoding, which it requires. Only on onnxruntime: other runtimes decode token by token.",
    )


class TextToText(Document):
    """An encoder and a decoder that writes an answer: T5 and BART, and their kin."""

    task: Literal["text2text-generation"]
    checkpoint: Checkpoint
    max_input_tokens: PositiveInt = Field(description="Longer requests are refused, never cut.")
    max_output_tokens: PositiveInt = Field(description="Decoding stops here at the latest, end-of-sequence included.")
    answer: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,30}$")] = Field(
        default="CORRECTED", description="The name of the output that an answer is returned in."
    )
    generation: Generation | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        return ("text",)


class Encoder(Document):
    """The keys that the encoder tasks share: an encoder with a head."""

    checkpoint: Checkpoint
    backbone: Location | None = Field(
        default=None,
        description="Where the encoder's own weights are when several workloads share them; the checkpoint "
        "then holds only a head. None: the checkpoint holds all weights.",
    )
    framework: Literal["pytorch"] = "pytorch"
    preprocess: Annotated[str, Field(pattern=r"^(\./|\.\./|/).+\.pt$")] | None = Field(
        default=None,
        description="For Inferentia, a local TorchScript module that tokenises in the place of tokenizer.json, which "
        "stays beside the checkpoint for the padding: takes List[List[str]], the texts of each row, and returns their "
        "token ids and types. Not for question answering and token classification, which need the place of each token "
        "in the text.",
    )
    segments: Segments = Field(
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

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the head's outputs, in order; none where they are numbers and no labels."""
        return getattr(self, "labels", ())

    @property
    def head_size(self) -> int:
        """How many numbers the head gives for a row, or for question answering and tagging for a token; 0: no head."""
        return len(self.label_names)

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
    """Answers with one of `labels` and how sure the model is; or with all that apply; or, as regression, with a number.

    The head is trained for one of the three, and its config.json says for which by the same words.
    """

    task: Literal["text-classification"]
    problem_type: ProblemType = Field(
        default="single_label_classification",
        description="single_label_classification: one of labels, by softmax. multi_label_classification: every label "
        "whose own sigmoid reaches threshold, or none. regression: the head's one number, unchanged.",
    )
    segments: Segments = Field(default=(("text",),), min_length=1, max_length=2)
    labels: tuple[Label, ...] = Field(
        default=(), description="In the order of the head's outputs; none for regression, whose output is a number."
    )
    threshold: Share = Field(
        default=0.5, description="For multi_label_classification: a label of at least this score is in the answer."
    )

    @property
    def head_size(self) -> int:
        return len(self.labels) or 1

    @model_validator(mode="after")
    def _labels_are_the_problems(self) -> Self:
        if self.problem_type == "regression" and self.labels:
            raise ValueError("labels: a regression answers with a number; leave them out.")
        least = {"regression": 0, "multi_label_classification": 1}.get(self.problem_type, 2)
        if len(self.labels) < least:
            raise ValueError(f"labels: got {len(self.labels)}; {self.problem_type} needs at least {least}.")
        if self.threshold != 0.5 and self.problem_type != "multi_label_classification":
            raise ValueError(f"threshold: is for multi_label_classification, and problem_type is {self.problem_type}.")
        return self


class TextPairScoring(Encoder):
    """Answers how alike two texts are, 0 to 1, and with one of `labels` how they relate."""

    task: Literal["text-pair-scoring"]
    segments: Segments = Field(min_length=2, max_length=2)
    labels: tuple[Label, ...] = Field(min_length=2, description="In the order of the head's outputs.")


class TextRanking(Encoder):
    """Answers how relevant a text is to a query: a cross-encoder, which reads both at once. A request has one pair."""

    task: Literal["text-ranking"]
    segments: Segments = Field(
        default=(("query",), ("text",)), min_length=2, max_length=2, description="The query, and the text to rank."
    )
    activation: Literal["sigmoid", "none"] = Field(
        default="sigmoid",
        description="sigmoid: the score is 0 to 1. none: it is the head's number, as rerankers that were trained on "
        "differences of scores give it. The order of texts is the same.",
    )

    @property
    def head_size(self) -> int:
        return 1


class Windowed(Encoder):
    """The keys of tasks that read a long request in windows."""

    stride: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="Read a longer request in windows of max_input_tokens, which overlap by this many tokens; the best "
        "answer of all windows is given. Without it, longer requests are refused, or with truncation cut.",
    )

    @model_validator(mode="after")
    def _windows_overlap(self) -> Self:
        if self.stride is None:
            return self
        if self.truncation:
            raise ValueError("stride: a long request is read in windows or cut (truncation), not both.")
        if self.stride >= self.max_input_tokens // 2:
            raise ValueError(
                f"stride: got {self.stride}; windows of max_input_tokens = {self.max_input_tokens} overlap by less "
                "than half."
            )
        return self


class TokenClassification(Windowed):
    """Answers with the entities in a text: their labels, scores and places in characters."""

    task: Literal["token-classification"]
    segments: Segments = Field(default=(("text",),), min_length=1, max_length=1)
    labels: tuple[Label, ...] = Field(
        min_length=2,
        description="In the order of the head's outputs. B- begins an entity, I- continues it, and O is no entity.",
    )
    aggregation: Literal["none", "simple", "first", "max", "average"] = Field(
        default="simple",
        description="How tokens become entities, as transformers' aggregation_strategy. none: each token by itself. "
        "simple: neighbours of one label. first, max, average: the same of whole words, each of which has the label of "
        "its first token, of its surest, or of its tokens' mean.",
    )

    @model_validator(mode="after")
    def _windows_have_an_aggregation(self) -> Self:
        if self.stride is not None and self.aggregation == "none":
            raise ValueError(
                "stride: what two windows both say of an entity becomes one answer; that needs an aggregation other "
                "than none."
            )
        return self


class FeatureExtraction(Encoder):
    """Answers with the embedding of a text: one vector, made of those of its tokens."""

    task: Literal["feature-extraction"]
    segments: Segments = Field(default=(("text",),), min_length=1, max_length=1)
    pooling: Literal["mean", "cls", "max", "last"] = Field(
        default="mean",
        description="How the vectors of the tokens become one. mean, max: over all tokens of the text. cls: the first "
        "token's. last: the last token's. The model was trained with one of them: sentence-transformers keeps it in "
        "1_Pooling/config.json.",
    )
    normalize: bool = Field(
        default=True, description="Scale the vector to length 1, so that a dot product is the cosine similarity."
    )
    dimensions: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Keep the first of the vector's numbers, for a model that was trained for it (Matryoshka); then "
        "normalize. 0 keeps all.",
    )


class QuestionAnswering(Windowed):
    """Answers a question with a span of a context."""

    task: Literal["question-answering"]
    segments: Segments = Field(
        default=(("question",), ("context",)), min_length=2, max_length=2, description="The answer is in the second."
    )
    max_answer_tokens: PositiveInt = 30

    @property
    def head_size(self) -> int:
        return 2


EncoderModel = (
    TextClassification | TextPairScoring | TextRanking | TokenClassification | FeatureExtraction | QuestionAnswering
)
Model = Annotated[TextToText | EncoderModel, Field(discriminator="task")]

METRICS: dict[str, tuple[str, ...]] = {
    "text2text-generation": ("exact_match", "unchanged_rate"),
    "text-classification": ("accuracy", "macro_f1"),
    "multi_label_classification": ("micro_f1", "macro_f1"),
    "regression": ("pearson", "spearman"),
    "text-pair-scoring": ("accuracy", "macro_f1", "score_correlation"),
    "text-ranking": ("ndcg_at_10", "mrr_at_10", "spearman"),
    "token-classification": ("entity_f1",),
    "feature-extraction": ("cosine_spearman", "cosine_to_original"),
    "question-answering": ("exact_match", "f1"),
}
"""The metrics that are measured on evaluation.jsonl, by task, or by the problem of a classification that has others:
shares of 0 to 1, correlations and cosines of -1 to 1."""


def metrics_of(model: TextToText | EncoderModel) -> tuple[str, ...]:
    """Returns the names of the metrics that a model is measured by."""
    problem = model.problem_type if isinstance(model, TextClassification) else ""
    return METRICS.get(problem) or METRICS[model.task]
