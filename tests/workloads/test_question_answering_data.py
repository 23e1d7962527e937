"""The question-answering workload's data: its grammar, the splits, and the files that train.py wrote."""

import itertools
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from workloads import question_answering
from workloads.product_bert.phrasing import is_held_out
from workloads.question_answering.grammar import VALUES, Question, facts, sample
from workloads.question_answering.questions import (
    evaluation_questions,
    mistype,
    payload_questions,
    training_questions,
)

FOLDER = Path(question_answering.__path__[0])
CHECKPOINT = FOLDER / "checkpoint"
MAX_TOKENS = 128

seeds = st.integers(min_value=0, max_value=2**32)
questions = seeds.map(lambda seed: sample(Random(seed)))


def lines(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def config(name: str) -> Any:
    return json.loads((CHECKPOINT / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))


@pytest.fixture(scope="module")
def trained() -> list[Question]:
    return list(itertools.islice(training_questions(Random(1)), 2_000))


@pytest.fixture(scope="module")
def evaluated() -> list[Question]:
    return evaluation_questions()


class TestGrammar:
    @given(seeds)
    def test_the_same_seed_gives_the_same_question(self, seed: int) -> None:
        assert sample(Random(seed)) == sample(Random(seed))

    @given(questions)
    def test_the_answer_occurs_in_the_description_exactly_once(self, question: Question) -> None:
        assert question.label
        assert question.context.count(question.label) == 1

    @given(questions)
    def test_question_and_description_are_sentences_with_no_open_slot(self, question: Question) -> None:
        assert question.question[-1] == "?"
        assert question.context[-1] in ".!"
        assert not set(question.question + question.context) & set("{}|()")

    def test_every_fact_has_a_twin_four_questions_and_four_sentences(self) -> None:
        assert all(len(pair) == 2 for pair in VALUES)
        assert all(len(fact.questions) == len(fact.sentences) == 4 for fact in facts().values())
        assert all("{answer}" in sentence for fact in facts().values() for sentence in fact.sentences)
        assert not any(sentence.startswith("{answer}") for fact in facts().values() for sentence in fact.sentences)
        assert len(facts()) == 22

    @given(questions, seeds)
    def test_a_typing_mistake_is_in_one_word_of_the_question_alone(self, question: Question, seed: int) -> None:
        typed = mistype(question, Random(seed))
        assert (typed.context, typed.label) == (question.context, question.label)
        words = zip(question.question.split(), typed.question.split(), strict=True)
        assert sum(word != as_typed for word, as_typed in words) <= 1


class TestHeldOut:
    def test_no_combination_of_phrasings_of_evaluation_is_trained_on(
        self, trained: list[Question], evaluated: list[Question]
    ) -> None:
        phrasings = {question.phrasing for question in evaluated}
        assert all(map(is_held_out, phrasings))
        assert not phrasings & {question.phrasing for question in trained}

    def test_no_description_of_evaluation_is_trained_on(self, trained: list[Question]) -> None:
        assert not {line["context"] for line in lines("evaluation.jsonl")} & {question.context for question in trained}


class TestFiles:
    def test_evaluation_is_what_its_seed_gives_with_its_answers_in_its_contexts(
        self, evaluated: list[Question]
    ) -> None:
        examples = lines("evaluation.jsonl")
        assert examples == [question.example() for question in evaluated]
        assert tuple(examples[0]) == ("question", "context", "label")
        assert all(line["label"] in line["context"] for line in examples)
        assert len({(line["question"], line["context"]) for line in examples}) == len(examples) == 600

    def test_payloads_are_256_different_questions_and_what_their_seed_gives(self) -> None:
        assert lines("payloads.jsonl") == [question.request() for question in payload_questions()]
        assert len({tuple(line.values()) for line in lines("payloads.jsonl")}) == 256

    def test_every_question_fits_the_model_and_has_no_unknown_piece(
        self, tokenizer: Tokenizer, trained: list[Question]
    ) -> None:
        pairs = [
            (line["question"], line["context"])
            for name in ("evaluation", "payloads")
            for line in lines(f"{name}.jsonl")
        ]
        pairs += [(question.question, question.context) for question in trained]
        # £ and € are the only characters of the data beyond ASCII.
        encodings = tokenizer.encode_batch(pairs)
        assert max(len(encoding.ids) for encoding in encodings) <= MAX_TOKENS
        assert not any(tokenizer.token_to_id("[UNK]") in encoding.ids for encoding in encodings)

    def test_every_answer_begins_and_ends_where_pieces_do(self, tokenizer: Tokenizer) -> None:
        for line in lines("evaluation.jsonl"):
            encoding = tokenizer.encode(line["question"], line["context"])
            offsets = [
                at for at, sequence in zip(encoding.offsets, encoding.sequence_ids, strict=True) if sequence == 1
            ]
            start = line["context"].index(line["label"])
            assert start in {first for first, _ in offsets}
            assert start + len(line["label"]) in {last for _, last in offsets}


class TestCheckpoint:
    def test_it_is_under_ten_megabytes_and_holds_no_pickle(self) -> None:
        assert {file.name for file in CHECKPOINT.iterdir()} == {
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        }
        assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) < 10e6

    def test_it_answers_questions_of_128_tokens(self, tokenizer: Tokenizer) -> None:
        assert config("config.json")["architectures"] == ["BertForQuestionAnswering"]
        assert config("config.json")["max_position_embeddings"] >= MAX_TOKENS
        assert config("config.json")["vocab_size"] == tokenizer.get_vocab_size()
        with safetensors.safe_open(CHECKPOINT / "model.safetensors", "numpy") as file:
            assert file.get_slice("qa_outputs.weight").get_shape() == [2, config("config.json")["hidden_size"]]

    @pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
    def test_it_remembers_no_path_of_the_machine_that_trained_it(self, name: str) -> None:
        text = (CHECKPOINT / name).read_text("utf-8")
        assert "_name_or_path" not in text
        assert '"/' not in text
