"""The query-intent workload's data: its grammar, the splits, and the files that train.py wrote."""

import collections
import itertools
import json
from pathlib import Path
from random import Random

import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from workloads import query_intent
from workloads.product_bert import phrasing
from workloads.query_intent.grammar import FILLERS, Query, intents, sample, vocabulary
from workloads.query_intent.queries import evaluation_queries, misspell, payload_texts, training_queries

FOLDER = Path(query_intent.__path__[0])
CHECKPOINT = FOLDER / "checkpoint"
BACKBONE = FOLDER.parent / "product_bert" / "checkpoint"
MAX_TOKENS = 128

seeds = st.integers(min_value=0, max_value=2**32)
queries = seeds.map(lambda seed: sample(Random(seed)))


def lines(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def trained() -> list[Query]:
    return list(itertools.islice(training_queries(Random(1)), 15_000))


class TestPhrasing:
    def test_a_choice_is_settled_and_an_empty_one_leaves_no_space(self) -> None:
        texts = {phrasing.settle("(track|find|) my {type} (now|)", Random(seed)) for seed in range(50)}
        assert texts == {f"{verb}my {{type}}{now}" for verb in ("track ", "find ", "") for now in (" now", "")}

    def test_sections_keep_their_templates_in_order_and_drop_comments(self, tmp_path: Path) -> None:
        file = tmp_path / "templates.txt"
        file.write_text("# about\n\n[b]\none {x}\ntwo\n[a]\n# not this\nthree\n", encoding="utf-8")
        assert phrasing.sections(file) == {"b": ("one {x}", "two"), "a": ("three",)}

    def test_about_a_tenth_is_held_out(self) -> None:
        assert 0.08 < sum(phrasing.is_held_out(str(at)) for at in range(5_000)) / 5_000 < 0.12


class TestGrammar:
    @given(seeds)
    def test_the_same_seed_gives_the_same_query(self, seed: int) -> None:
        assert sample(Random(seed)) == sample(Random(seed))

    @given(queries)
    def test_a_query_is_lower_case_with_single_spaces_and_no_open_slot(self, query: Query) -> None:
        assert query.text == " ".join(query.text.split()) == query.text.lower()
        assert not set(query.text) & set("{}|()")

    @given(queries)
    def test_every_plain_word_of_a_query_is_in_the_vocabulary(self, query: Query) -> None:
        words = {word for word in query.text.split() if word.isalpha()}
        assert words - {"am", "pm", "a", "gb", "no"} <= vocabulary() | {"days", "week", "weeks", "month", "ten", "two"}

    def test_there_are_ten_intents_and_every_slot_has_a_filler(self) -> None:
        assert len(intents()) == 10
        templates = [template for some in intents().values() for template in some]
        assert {slot for template in templates for slot in phrasing.slots(template)} <= FILLERS.keys()
        assert all(template.count("(") == template.count(")") for template in templates)

    def test_queries_are_many_so_that_the_model_cannot_learn_them_by_heart(self) -> None:
        rng = Random(0)
        assert len({sample(rng).text for _ in range(5_000)}) > 4_500


class TestMisspelling:
    @given(queries, seeds)
    def test_it_keeps_the_label_and_makes_no_other_word_of_the_grammar(self, query: Query, seed: int) -> None:
        typed = misspell(query, Random(seed))
        assert (typed.label, typed.phrasing) == (query.label, query.phrasing)
        assert not (set(typed.text.split()) - set(query.text.split())) & vocabulary()

    @given(queries, seeds)
    def test_at_most_two_words_change_and_none_with_digits(self, query: Query, seed: int) -> None:
        pairs = zip(query.text.split(), misspell(query, Random(seed)).text.split(), strict=True)
        changed = [word for word, typed in pairs if word != typed]
        assert len(changed) <= 2
        assert all(word.isalpha() for word in changed)

    def test_about_half_of_the_queries_are_misspelt(self, trained: list[Query]) -> None:
        known = vocabulary()
        misspelt = [any(word.isalpha() and word not in known for word in query.text.split()) for query in trained]
        assert 0.35 < sum(misspelt) / len(misspelt) < 0.6


class TestHeldOut:
    def test_no_phrasing_of_evaluation_is_trained_on(self, trained: list[Query]) -> None:
        evaluation = {query.phrasing for query in evaluation_queries()}
        assert all(phrasing.is_held_out(text) for text in evaluation)
        assert not evaluation & {query.phrasing for query in trained}

    def test_no_text_of_evaluation_is_trained_on(self, trained: list[Query]) -> None:
        assert not {line["query"] for line in lines("evaluation.jsonl")} & {query.text for query in trained}

    def test_a_rule_of_one_telling_word_per_query_is_wrong_in_one_of_ten(self, trained: list[Query]) -> None:
        """Else a keyword list would do, and no model were needed."""
        seen: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for query in trained:
            for word in set(query.text.split()):
                seen[word][query.label] += 1

        def rule(text: str) -> str:
            labels = [seen[word] for word in text.split() if seen[word].total() >= 10]
            best = max(labels, key=lambda some: max(some.values()) / some.total(), default=None)
            return best.most_common(1)[0][0] if best else "product_search"

        examples = lines("evaluation.jsonl")
        assert sum(rule(line["query"]) == line["label"] for line in examples) / len(examples) < 0.9


class TestFiles:
    def test_evaluation_is_what_its_seed_gives_with_every_intent_in_it(self) -> None:
        examples = lines("evaluation.jsonl")
        assert examples == [{"query": query.text, "label": query.label} for query in evaluation_queries()]
        assert len({line["query"] for line in examples}) == len(examples) == 800
        counts = collections.Counter(line["label"] for line in examples)
        assert counts.keys() == intents().keys()
        assert min(counts.values()) >= 40

    def test_payloads_are_256_different_queries_and_what_their_seed_gives(self) -> None:
        assert lines("payloads.jsonl") == [{"query": text} for text in payload_texts()]
        assert len({line["query"] for line in lines("payloads.jsonl")}) == 256

    @pytest.mark.parametrize("name", ["evaluation.jsonl", "payloads.jsonl"])
    def test_every_query_fits_the_model_and_has_no_unknown_piece(self, name: str) -> None:
        tokenizer = Tokenizer.from_file(str(BACKBONE / "tokenizer.json"))
        encodings = tokenizer.encode_batch([line["query"] for line in lines(name)])
        assert max(len(encoding.ids) for encoding in encodings) <= MAX_TOKENS
        assert not any(tokenizer.token_to_id("[UNK]") in encoding.ids for encoding in encodings)


class TestCheckpoint:
    def test_it_holds_a_head_and_no_backbone(self) -> None:
        assert {file.name for file in CHECKPOINT.iterdir()} == {"config.json", "head.safetensors"}
        with safetensors.safe_open(CHECKPOINT / "head.safetensors", "numpy") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        hidden = json.loads((BACKBONE / "config.json").read_text("utf-8"))["hidden_size"]
        assert shapes == {
            "pooler.dense.weight": [hidden, hidden],
            "pooler.dense.bias": [hidden],
            "classifier.weight": [10, hidden],
            "classifier.bias": [10],
        }

    def test_its_labels_are_the_intents_in_the_grammars_order(self) -> None:
        config = json.loads((CHECKPOINT / "config.json").read_text("utf-8"))
        assert config == {
            "architectures": ["BertForSequenceClassification"],
            "id2label": {str(at): label for at, label in enumerate(intents())},
            "label2id": {label: at for at, label in enumerate(intents())},
        }
