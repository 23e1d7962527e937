"""The text-classification workload's data: its grammar, the splits, and the files that train.py wrote."""

import itertools
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from workloads import text_classification
from workloads.product_bert.phrasing import is_held_out
from workloads.text_classification import grammar
from workloads.text_classification.grammar import LABELS, Label, Review, sample, templates
from workloads.text_classification.reviews import (
    evaluation_reviews,
    fits,
    long_payload_texts,
    mistype,
    payload_texts,
    training_reviews,
)

FOLDER = Path(text_classification.__path__[0])
CHECKPOINT = FOLDER / "checkpoint"
MAX_TOKENS = 512

seeds = st.integers(min_value=0, max_value=2**32)
labels = st.sampled_from(LABELS)
reviews = st.builds(lambda label, seed: sample(label, Random(seed), lambda text: True), labels, seeds)


def lines(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def config(name: str) -> Any:
    return json.loads((CHECKPOINT / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))


class TestGrammar:
    @given(labels, seeds)
    def test_the_same_seed_gives_the_same_review(self, label: Label, seed: int) -> None:
        first, second = (sample(label, Random(seed), lambda text: True) for _ in range(2))
        assert first == second

    @given(reviews)
    def test_a_review_is_sentences_with_no_open_slot_or_choice(self, review: Review) -> None:
        assert review.text[-1] in ".!"
        assert not set(review.text) & set("{}|()")
        assert "  " not in review.text

    @given(reviews)
    def test_it_holds_an_opinion_and_says_nothing_twice(self, review: Review) -> None:
        assert review.opinions
        assert all(opinion in review.text for opinion in review.opinions)
        assert len(set(review.opinions)) == len(review.opinions)

    @given(labels, st.integers(min_value=1, max_value=40), seeds)
    def test_more_than_two_of_three_opinions_are_on_the_labels_side(self, label: Label, count: int, seed: int) -> None:
        kinds = grammar._kinds(label, count, Random(seed))
        opinions = [kind for kind in kinds if kind in LABELS]
        assert 3 * opinions.count(label) >= 2 * len(opinions) > 0
        assert {kind for kind in kinds if kind.endswith("verdict")} <= {f"{label}_verdict"}

    def test_every_template_has_its_brackets_closed(self) -> None:
        for template in itertools.chain.from_iterable(templates().values()):
            assert template.count("(") == template.count(")")
            assert template.count("{") == template.count("}")

    def test_words_of_praise_stand_in_blame_and_the_other_way_round(self) -> None:
        assert any("{bad}" in template for template in templates()["positive"])
        assert any("{good}" in template for template in templates()["negative"])

    @given(reviews, seeds)
    def test_typing_mistakes_keep_the_number_of_words_and_the_label(self, review: Review, seed: int) -> None:
        typed = mistype(review, Random(seed))
        assert len(typed.text.split(" ")) == len(review.text.split(" "))
        assert typed.label == review.label


class TestHeldOut:
    def test_every_opinion_of_evaluation_is_held_out_and_none_of_training(self) -> None:
        evaluated = {opinion for review in evaluation_reviews() for opinion in review.opinions}
        trained = {
            opinion for review in itertools.islice(training_reviews(Random(1)), 3_000) for opinion in review.opinions
        }
        assert all(map(is_held_out, evaluated))
        assert not any(map(is_held_out, trained))
        assert not evaluated & trained

    def test_no_review_of_evaluation_is_trained_on(self) -> None:
        trained = {review.text for review in itertools.islice(training_reviews(Random(2)), 3_000)}
        assert not {line["text"] for line in lines("evaluation.jsonl")} & trained


class TestFiles:
    def test_evaluation_is_what_its_seed_gives_half_of_it_positive(self) -> None:
        examples = lines("evaluation.jsonl")
        assert examples == [{"text": review.text, "label": review.label} for review in evaluation_reviews()]
        assert len({line["text"] for line in examples}) == len(examples) == 600
        assert sum(line["label"] == "positive" for line in examples) == 300

    def test_payloads_are_256_different_reviews_and_what_their_seed_gives(self) -> None:
        assert lines("payloads.jsonl") == [{"text": text} for text in payload_texts()]
        assert len({line["text"] for line in lines("payloads.jsonl")}) == 256

    def test_long_payloads_have_more_tokens_than_the_model_takes_whatever_the_tokenizer(self) -> None:
        assert lines("payloads-512.jsonl") == [{"text": text} for text in long_payload_texts()]
        assert all(len(re.findall(r"\w+|[^\w\s]", line["text"])) >= MAX_TOKENS for line in lines("payloads-512.jsonl"))

    @pytest.mark.parametrize("name", ["evaluation.jsonl", "payloads.jsonl"])
    def test_lengths_vary_widely_some_are_near_512_tokens_and_none_above(self, tokenizer: Tokenizer, name: str) -> None:
        lengths = sorted(
            len(encoding.ids) for encoding in tokenizer.encode_batch([line["text"] for line in lines(name)])
        )
        assert lengths[len(lengths) // 10] < 25
        assert lengths[len(lengths) * 9 // 10] > 180
        assert 450 <= lengths[-1] <= MAX_TOKENS

    def test_a_review_that_fits_by_its_words_fits_by_its_tokens(self, tokenizer: Tokenizer) -> None:
        some = itertools.islice(training_reviews(Random(3)), 2_000)
        assert max(len(encoding.ids) for encoding in tokenizer.encode_batch([review.text for review in some])) <= 512

    def test_a_review_of_too_many_words_does_not_fit(self) -> None:
        assert fits(Review("fine, really. " * 117, "positive", ("fine",)))
        assert not fits(Review("fine, really. " * 130, "positive", ("fine",)))


class TestCheckpoint:
    def test_it_is_under_ten_megabytes_and_holds_no_pickle(self) -> None:
        assert {file.name for file in CHECKPOINT.iterdir()} == {
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        }
        assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) < 10e6

    def test_it_is_a_classifier_of_512_positions_with_both_labels_by_name(self, tokenizer: Tokenizer) -> None:
        assert config("config.json")["architectures"] == ["BertForSequenceClassification"]
        assert config("config.json")["id2label"] == {"0": "negative", "1": "positive"}
        assert config("config.json")["label2id"] == {"negative": 0, "positive": 1}
        assert config("config.json")["max_position_embeddings"] == MAX_TOKENS
        assert config("config.json")["vocab_size"] == tokenizer.get_vocab_size()
        assert config("tokenizer_config.json")["model_max_length"] == MAX_TOKENS

    def test_its_weights_are_fp32(self) -> None:
        with safetensors.safe_open(CHECKPOINT / "model.safetensors", "numpy") as file:
            types = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        assert types == {"F32"}

    @pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
    def test_it_remembers_no_path_of_the_machine_that_trained_it(self, name: str) -> None:
        text = (CHECKPOINT / name).read_text("utf-8")
        assert "_name_or_path" not in text
        assert '"/' not in text
