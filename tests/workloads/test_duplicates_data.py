"""The duplicates workload's data: its catalogue, its wordings, the splits, and the files that train.py wrote.

The backbone that it shares with query_intent is looked at here too, for the same train.py writes it.
"""

import collections
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

from workloads import duplicates
from workloads.duplicates import catalogue
from workloads.duplicates.listings import SYNONYMS, word
from workloads.duplicates.pairs import FIELDS, Pair, evaluation_pairs, pairs, payload_pairs, training_pairs
from workloads.product_bert.phrasing import is_held_out

FOLDER = Path(duplicates.__path__[0])
CHECKPOINT = FOLDER / "checkpoint"
PRODUCT_BERT = FOLDER.parent / "product_bert"
BACKBONE = PRODUCT_BERT / "checkpoint"
MAX_TOKENS = 128

seeds = st.integers(min_value=0, max_value=2**32)
products = seeds.map(lambda seed: catalogue.sample_product(Random(seed)))


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def texts(pair: Pair) -> tuple[str, ...]:
    return tuple(pair.request().values())


def listing(**values: str) -> catalogue.Listing:
    stated = {"brand": "pacemont", "type": "sandals", **values}
    return tuple(stated.get(name) for name in catalogue.ATTRIBUTES)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(BACKBONE / "tokenizer.json"))


class TestRelation:
    @given(products, seeds)
    def test_two_listings_of_one_product_are_duplicates(self, product: catalogue.Listing, seed: int) -> None:
        rng = Random(seed)
        first, second = catalogue.state(product, rng), catalogue.state(product, rng)
        assert catalogue.relation(first, second) == "duplicate"
        assert catalogue.score(first, second) > 0.85

    @given(products)
    def test_a_listing_is_wholly_like_itself(self, product: catalogue.Listing) -> None:
        assert catalogue.score(product, product) == 1.0

    @given(products, products)
    def test_relation_and_score_do_not_depend_on_the_order(
        self, first: catalogue.Listing, second: catalogue.Listing
    ) -> None:
        assert catalogue.relation(first, second) == catalogue.relation(second, first)
        assert catalogue.score(first, second) == catalogue.score(second, first)
        assert 0 <= catalogue.score(first, second) <= 1

    def test_another_colour_makes_a_variant_and_another_brand_or_type_a_different_product(self) -> None:
        navy = listing(colour="navy")
        assert catalogue.relation(navy, listing(colour="black")) == "variant"
        assert catalogue.relation(navy, listing(colour="navy", brand="solevia")) == "different"
        assert catalogue.relation(navy, listing(colour="navy", type="loafers")) == "different"

    def test_what_one_listing_leaves_unsaid_makes_no_variant_but_a_lower_score(self) -> None:
        assert catalogue.relation(listing(colour="navy"), listing()) == "duplicate"
        assert catalogue.score(listing(colour="navy"), listing()) == pytest.approx(0.9664, abs=1e-4)

    def test_the_score_falls_from_duplicate_to_variant_to_another_brand_to_another_product(self) -> None:
        navy = listing(colour="navy", size="small")
        scores = [
            catalogue.score(navy, other)
            for other in (
                navy,
                listing(colour="navy", size="large"),
                listing(colour="black", size="large"),
                listing(colour="navy", size="small", brand="solevia"),
                listing(colour="black", size="large", brand="pawsley", type="fish tank"),
            )
        ]
        assert scores == sorted(scores, reverse=True)
        assert len(set(scores)) == 5
        assert scores[-1] == 0.0

    @given(products, seeds)
    def test_a_variant_keeps_brand_and_type_and_changes_at_most_two_others(
        self, product: catalogue.Listing, seed: int
    ) -> None:
        variant = catalogue.sample_variant(product, Random(seed))
        assert variant[:2] == product[:2]
        assert sum(one != other for one, other in zip(product, variant, strict=True)) <= 2


class TestWording:
    @given(products, seeds)
    def test_the_same_seed_words_a_listing_the_same(self, product: catalogue.Listing, seed: int) -> None:
        assert word(product, Random(seed)) == word(product, Random(seed))

    @given(products, seeds)
    def test_the_brand_field_begins_with_the_brand(self, product: catalogue.Listing, seed: int) -> None:
        _, brand = word(product, Random(seed))
        assert brand.lower().startswith(str(product[catalogue.BRAND]))

    def test_no_synonym_is_another_value_of_the_lexicon(self) -> None:
        values = {value for pool in catalogue._pools() for some in pool for value in some}
        assert not values & {synonym for some in SYNONYMS.values() for synonym in some}

    def test_no_synonym_stands_for_two_values(self) -> None:
        synonyms = [synonym for some in SYNONYMS.values() for synonym in some]
        assert len(synonyms) == len(set(synonyms))

    def test_every_synonym_is_of_a_value_of_the_lexicon(self) -> None:
        values = {value for pool in catalogue._pools() for some in pool for value in some}
        assert values >= SYNONYMS.keys()


class TestPairs:
    def test_the_same_seed_gives_the_same_pairs_and_a_longer_run_begins_alike(self) -> None:
        assert list(pairs(100, seed=3)) == list(pairs(300, seed=3))[:100]
        assert list(pairs(100, seed=3)) != list(pairs(100, seed=4))

    def test_all_pairs_of_a_run_differ(self) -> None:
        assert len({texts(pair) for pair in pairs(20_000, seed=5)}) == 20_000

    def test_every_relation_makes_up_a_fifth_or_more(self) -> None:
        counts = collections.Counter(pair.label for pair in pairs(5_000, seed=6))
        assert counts.keys() == set(catalogue.RELATIONS)
        assert min(counts.values()) > 1_000

    def test_titles_are_of_mixed_lengths(self) -> None:
        lengths = sorted(len(pair.title.split()) for pair in pairs(2_000, seed=7))
        assert lengths[100] <= 4
        assert lengths[-100] >= 16

    def test_a_request_has_the_four_text_fields(self) -> None:
        (pair,) = pairs(1, seed=8)
        assert tuple(pair.request()) == FIELDS
        assert pair.segments == (f"{pair.title} {pair.brand}", f"{pair.other_title} {pair.other_brand}")


class TestHeldOut:
    def test_the_first_listing_of_an_evaluation_pair_is_never_trained_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        keys: list[str] = []

        def remember(key: str) -> bool:
            keys.append(key)
            return is_held_out(key)

        monkeypatch.setattr("workloads.duplicates.pairs.is_held_out", remember)
        evaluation_pairs()
        evaluated = {key for key in keys if is_held_out(key)}
        keys.clear()
        list(itertools.islice(training_pairs(Random(1)), 5_000))
        trained = {key for key in keys if not is_held_out(key)}
        assert len(evaluated) >= 800
        assert not evaluated & trained

    def test_no_pair_and_no_segment_of_evaluation_is_trained_on(self) -> None:
        evaluated = {f"{line['title']} {line['brand']}" for line in lines("evaluation.jsonl")}
        trained = {text for pair in itertools.islice(training_pairs(Random(2)), 10_000) for text in pair.segments}
        assert not evaluated & trained


class TestFiles:
    def test_evaluation_is_what_its_seed_gives(self) -> None:
        examples = lines("evaluation.jsonl")
        assert examples == [pair.example() for pair in evaluation_pairs()]
        assert tuple(examples[0]) == (*FIELDS, "label", "score")
        assert len(examples) == 800

    def test_evaluation_has_every_relation_and_scores_between_nought_and_one(self) -> None:
        counts = collections.Counter(line["label"] for line in lines("evaluation.jsonl"))
        assert counts.keys() == set(catalogue.RELATIONS)
        assert min(counts.values()) >= 150
        assert all(0 <= line["score"] <= 1 for line in lines("evaluation.jsonl"))
        assert len({line["score"] for line in lines("evaluation.jsonl")}) > 100

    def test_payloads_are_256_different_pairs_and_what_their_seed_gives(self) -> None:
        assert lines("payloads.jsonl") == [pair.request() for pair in payload_pairs()]
        assert len({tuple(line.values()) for line in lines("payloads.jsonl")}) == 256

    def test_every_pair_fits_the_model_and_has_no_unknown_piece(self, tokenizer: Tokenizer) -> None:
        encodings = tokenizer.encode_batch([pair.segments for pair in pairs(5_000, seed=9)])
        assert max(len(encoding.ids) for encoding in encodings) <= MAX_TOKENS
        assert not any(tokenizer.token_to_id("[UNK]") in encoding.ids for encoding in encodings)


class TestCheckpoint:
    def test_it_holds_a_head_with_a_scorer_and_no_backbone(self) -> None:
        assert {file.name for file in CHECKPOINT.iterdir()} == {"config.json", "head.safetensors"}
        with safetensors.safe_open(CHECKPOINT / "head.safetensors", "numpy") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        hidden = json.loads((BACKBONE / "config.json").read_text("utf-8"))["hidden_size"]
        assert shapes == {
            "pooler.dense.weight": [hidden, hidden],
            "pooler.dense.bias": [hidden],
            "classifier.weight": [3, hidden],
            "classifier.bias": [3],
            "scorer.weight": [1, hidden],
            "scorer.bias": [1],
        }

    def test_its_labels_are_the_relations(self) -> None:
        assert json.loads((CHECKPOINT / "config.json").read_text("utf-8")) == {
            "architectures": ["BertForPairScoring"],
            "id2label": {"0": "duplicate", "1": "variant", "2": "different"},
            "label2id": {"duplicate": 0, "variant": 1, "different": 2},
        }


class TestBackbone:
    def test_it_is_stored_once_under_ten_megabytes_and_without_a_pooler(self) -> None:
        assert {file.name for file in BACKBONE.iterdir()} == {
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        }
        assert sum(file.stat().st_size for file in BACKBONE.iterdir()) < 10e6
        with safetensors.safe_open(BACKBONE / "model.safetensors", "numpy") as file:
            names = list(file.keys())
        assert "embeddings.word_embeddings.weight" in names
        assert not [name for name in names if "pooler" in name]

    def test_its_folder_is_no_workload(self) -> None:
        assert not (PRODUCT_BERT / "workload.toml").exists()

    def test_it_is_a_bert_model_of_128_positions_that_agrees_with_its_tokenizer(self, tokenizer: Tokenizer) -> None:
        config = json.loads((BACKBONE / "config.json").read_text("utf-8"))
        assert config["architectures"] == ["BertModel"]
        assert config["max_position_embeddings"] >= MAX_TOKENS
        assert config["vocab_size"] == tokenizer.get_vocab_size()
        assert config["pad_token_id"] == tokenizer.token_to_id("[PAD]") == 0

    @pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
    def test_it_remembers_no_path_of_the_machine_that_trained_it(self, name: str) -> None:
        text = (BACKBONE / name).read_text("utf-8")
        assert "_name_or_path" not in text
        assert '"/' not in text

    def test_a_pair_is_encoded_as_bert_does_it(self, tokenizer: Tokenizer) -> None:
        encoding = tokenizer.encode("Navy Sofa", "navy couch")
        assert encoding.tokens[0] == "[CLS]"
        assert encoding.tokens.count("[SEP]") == 2
        first = encoding.tokens.index("[SEP]") + 1
        assert encoding.type_ids == [0] * first + [1] * (len(encoding.ids) - first)
        assert encoding.tokens[1] == "navy" == encoding.tokens[first]

    @given(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="["), max_size=40))
    def test_no_printable_ascii_is_an_unknown_piece(self, tokenizer: Tokenizer, text: str) -> None:
        """`[` stands aside, for `[UNK]` typed by a user is the special token."""
        assert tokenizer.token_to_id("[UNK]") not in tokenizer.encode(text).ids
