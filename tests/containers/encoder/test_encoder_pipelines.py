"""Answers are those of transformers' pipelines over the same network with seeded weights.

The network replaces the compiled model, so tokens, windows and the last step are compared. transformers 5 has no
pipeline for question answering: question_answering.json has the answers of 4.57.6 (tokenizers 0.22.2, huggingface_hub
0.36.2) for `seeded_bert.QUESTIONS`, with `align_to_words=False`, whole and in windows. Embeddings are compared with
sentence-transformers in tests/model_build/encoder/test_embeddings.py.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    PreTrainedTokenizerFast,
    pipeline,
)

from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor
from containers.encoder.row import Refusal
from containers.encoder.settings import Settings
from tests.containers.encoder.encoder_miniature import (
    CLASSIFICATION,
    LETTERS,
    MULTI_LABEL,
    QUESTION_ANSWERING,
    RANKING,
    REGRESSION,
    TAGGING,
)
from tests.containers.encoder.seeded_bert import QUESTIONS, SIZES, WHOLE, WINDOW, seed
from tests.model_build.miniatures.tiny_bert import make_tokenizer

TEXTS = ("red shoe", "a blue-ish 李 lamp, xl", "socks", "do you sell warm winter socks in size xl")
LONG = "red shoe with blue socks, a lamp 李 for the night and one more shoe in red or in blue-ish green"


@pytest.fixture(autouse=True)
def _serial_tokenizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline of transformers sets this variable in its process."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


class Network:
    """transformers' own network as the compiled model."""

    def __init__(self, network: Any, settings: Settings) -> None:
        self._network, self._settings = network.eval(), settings

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with torch.inference_mode():
            answer = self._network(**{name: torch.from_numpy(tensors[name]) for name in self._settings.inputs})
        return {name: answer[name].numpy() for name in self._settings.graph_outputs}


def network(kind: Any, vocabulary: int, **changes: Any) -> Any:
    config: Any = BertConfig
    return seed(kind(config(vocab_size=vocabulary, max_position_embeddings=WHOLE, pad_token_id=0, **SIZES, **changes)))


def fast(tokenizer: Tokenizer, longest: int = 64) -> Any:
    wrapper: Any = PreTrainedTokenizerFast
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    taken = ["input_ids", "token_type_ids", "attention_mask"]
    return wrapper(tokenizer_object=tokenizer, model_max_length=longest, model_input_names=taken, **special)


def pieces_of_sentences() -> Tokenizer:
    """Pieces that mark the beginning of a word, as XLM-RoBERTa's do, and say nothing of those that go on with it."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁", *LETTERS, "▁s", "▁re", "oe", "▁in", ",", "-"]
    tokenizer = Tokenizer(models.Unigram([(piece, -float(place)) for place, piece in enumerate(pieces)], unk_id=1))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    return tokenizer


def served(tokenizer: Tokenizer, model: Any, settings: Settings) -> Predictor:
    return Predictor(Preprocessor(Tokenizer.from_str(tokenizer.to_str()), settings), Network(model, settings))


def answers(predictor: Predictor, rows: list[dict[str, str]]) -> list[Any]:
    found = predictor.predict(rows)
    assert not any(isinstance(each, Refusal) for each in found)
    return found


@pytest.mark.parametrize("pieces", [make_tokenizer, pieces_of_sentences])
@pytest.mark.parametrize("aggregation", ["none", "simple", "first", "max", "average"])
@pytest.mark.parametrize("stride", [None, 0, 5])
def test_entities_are_those_of_the_pipeline(pieces: Any, aggregation: str, stride: int | None) -> None:
    if stride is not None and aggregation == "none":
        pytest.skip("the pipeline wants an aggregation for windows, and so does workload.toml")
    tokenizer = pieces()
    model = network(BertForTokenClassification, tokenizer.get_vocab_size(), id2label=dict(enumerate(TAGGING.labels)))
    settings = replace(TAGGING, aggregation=aggregation, stride=stride, max_input_tokens=64 if stride is None else 24)
    theirs: Any = pipeline(
        "token-classification",
        model=model,
        tokenizer=fast(tokenizer, settings.max_input_tokens),
        aggregation_strategy=aggregation,
        **({} if stride is None else {"stride": stride}),
    )
    texts = TEXTS if stride is None else (LONG, *TEXTS)
    found = answers(served(tokenizer, model, settings), [{"text": text} for text in texts])
    several = 0
    for text, answer in zip(texts, found, strict=True):
        expected = theirs(text)
        ours = json.loads(answer["ENTITIES"])
        assert [(each["label"], each["start"], each["end"], each["text"]) for each in ours] == [
            (each.get("entity_group") or each["entity"], each["start"], each["end"], text[each["start"] : each["end"]])
            for each in expected
        ]
        assert [each["score"] for each in ours] == pytest.approx([each["score"] for each in expected], abs=1e-5)
        several += len(ours)
    assert several > 3, "answers without entities would compare nothing"


def test_every_label_has_the_score_of_the_pipeline_and_those_that_apply_are_named() -> None:
    tokenizer = make_tokenizer()
    labels = dict(enumerate(MULTI_LABEL.labels))
    model = network(
        BertForSequenceClassification,
        tokenizer.get_vocab_size(),
        id2label=labels,
        problem_type="multi_label_classification",
    )
    theirs: Any = pipeline("text-classification", model=model, tokenizer=fast(tokenizer), top_k=None)
    found = answers(
        served(tokenizer, model, replace(MULTI_LABEL, max_input_tokens=64)), [{"text": each} for each in TEXTS]
    )
    for expected, answer in zip(theirs(list(TEXTS)), found, strict=True):
        by_label = {each["label"]: each["score"] for each in expected}
        assert answer["SCORES"] == pytest.approx([by_label[label] for label in MULTI_LABEL.labels], abs=1e-5)
        assert json.loads(answer["LABELS"]) == [label for label in MULTI_LABEL.labels if by_label[label] >= 0.4]
    assert len({answer["LABELS"] for answer in found}) > 1


@pytest.mark.parametrize(
    ("settings", "how"),
    [
        (CLASSIFICATION, {}),
        (REGRESSION, {}),
        (RANKING, {"function_to_apply": "sigmoid"}),
        (replace(RANKING, activation="none"), {"function_to_apply": "none"}),
    ],
    ids=["a label", "regression", "ranking", "ranking without activation"],
)
def test_a_score_is_that_of_the_pipeline(settings: Settings, how: dict[str, Any]) -> None:
    tokenizer = make_tokenizer()
    named: dict[str, Any] = {"id2label": dict(enumerate(settings.labels))} if settings.labels else {"num_labels": 1}
    problem = {"problem_type": settings.problem_type} if settings.problem_type else {}
    model = network(BertForSequenceClassification, tokenizer.get_vocab_size(), **named, **problem)
    theirs: Any = pipeline("text-classification", model=model, tokenizer=fast(tokenizer), **how)
    rows = [dict(zip(settings.fields, ("warm socks", text)[-len(settings.fields) :], strict=True)) for text in TEXTS]
    pairs = [{"text": row[settings.fields[0]], "text_pair": row[settings.fields[-1]]} for row in rows]
    expected = theirs(pairs if len(settings.fields) > 1 else list(TEXTS))
    found = answers(served(tokenizer, model, replace(settings, max_input_tokens=64)), rows)
    assert [answer["SCORE"] for answer in found] == pytest.approx([each["score"] for each in expected], abs=1e-5)
    if settings.labels:
        assert [answer["LABEL"] for answer in found] == [each["label"] for each in expected]


@pytest.mark.parametrize("stride", [None, 8])
def test_an_answer_is_that_of_transformers_4_in_one_window_or_in_many(stride: int | None) -> None:
    """Its pipeline takes the first of equals too. It is asked not to stretch an answer to whole words."""
    tokenizer = make_tokenizer()
    settings = replace(
        QUESTION_ANSWERING, stride=stride, max_answer_tokens=5, max_input_tokens=WHOLE if stride is None else WINDOW
    )
    model = network(BertForQuestionAnswering, tokenizer.get_vocab_size())
    predictor = served(tokenizer, model, settings)
    recorded = json.loads(Path(__file__).with_name("question_answering.json").read_text("utf-8"))
    expected = recorded["in windows" if stride else "whole"]
    found = answers(predictor, [{"question": question, "context": context} for question, context in QUESTIONS])
    assert [(answer["ANSWER"], answer["START"], answer["END"]) for answer in found] == [
        (each["answer"], each["start"], each["end"]) for each in expected
    ]
    if stride:  # without windows our score leaves out the first token, which says that there is no answer
        assert [answer["SCORE"] for answer in found] == pytest.approx([each["score"] for each in expected], abs=1e-5)
