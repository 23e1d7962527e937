"""The spelling-correction workload's data: its grammar, its typos, and the files that train.py wrote."""

import itertools
import json
import math
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from workloads.spellcheck import typos
from workloads.spellcheck.grammar import MAX_WORDS, families, sample_query, vocabulary
from workloads.spellcheck.pairs import evaluation_pairs, is_held_out, payload_texts, training_pairs

FOLDER = Path(typos.__file__).parent
CHECKPOINT = FOLDER / "checkpoint"
TRAINING_SAMPLE = 20_000

seeds = st.integers(min_value=0, max_value=2**32)
queries = seeds.map(lambda seed: sample_query(Random(seed)))


def edits(first: str, second: str) -> float:
    """Returns the edit distance in which swapping two neighbours is one edit (optimal string alignment)."""
    rows = [[math.inf] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, j in itertools.product(range(len(first) + 1), range(len(second) + 1)):
        if i == 0 or j == 0:
            rows[i][j] = i + j
            continue
        substitution = rows[i - 1][j - 1] + (first[i - 1] != second[j - 1])
        rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, substitution)
        if i > 1 and j > 1 and first[i - 2 : i] == second[j - 2 : j][::-1]:
            rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]


def lines(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))


class TestGrammar:
    @given(seeds)
    def test_the_same_seed_gives_the_same_query(self, seed: int) -> None:
        assert sample_query(Random(seed)) == sample_query(Random(seed))

    @given(queries)
    def test_a_query_has_one_to_five_lower_case_words_of_the_vocabulary(self, query: str) -> None:
        assert query == " ".join(query.split()) == query.lower()
        assert 1 <= len(query.split()) <= MAX_WORDS
        assert set(query.split()) <= vocabulary()

    def test_the_vocabulary_has_400_to_700_words_of_plain_letters(self) -> None:
        assert 400 <= len(vocabulary()) <= 700
        assert all(word.isascii() and word.isalpha() and word.islower() for word in vocabulary())

    def test_every_family_has_a_type_for_the_templates_to_name(self) -> None:
        assert all(family["type"] for family in families())

    def test_queries_are_many_so_that_the_model_cannot_learn_them_by_heart(self) -> None:
        rng = Random(0)
        assert len({sample_query(rng) for _ in range(5_000)}) > 4_000


class TestTypoKinds:
    @given(queries, st.sampled_from(list(typos.KINDS)), seeds)
    def test_one_mistake_is_at_most_one_edit_and_the_seed_decides_it(
        self, query: str, kind: typos.Typo, seed: int
    ) -> None:
        text = kind(query, Random(seed))
        assert edits(text, query) <= 1
        assert text == kind(query, Random(seed))

    @given(queries, seeds)
    def test_insert_adds_a_keyboard_neighbour_of_the_letter_beside_it(self, query: str, seed: int) -> None:
        text = typos.insert_letter(query, Random(seed))
        places = [at for at in range(len(text)) if text[:at] + text[at + 1 :] == query]
        assert any(
            text[at] in typos.KEYBOARD_NEIGHBOURS.get(beside, "")
            for at in places
            for beside in text[max(0, at - 1) : at] + text[at + 1 : at + 2]
        )

    @given(queries, seeds)
    def test_delete_leaves_one_letter_out_and_keeps_the_spaces(self, query: str, seed: int) -> None:
        text = typos.delete_letter(query, Random(seed))
        assert len(text) == len(query) - 1
        assert text.count(" ") == query.count(" ")

    @given(queries, seeds)
    def test_swap_changes_two_neighbouring_letters_and_no_other(self, query: str, seed: int) -> None:
        text = typos.swap_letters(query, Random(seed))
        first, second = (at for at in range(len(query)) if text[at] != query[at])
        assert second == first + 1
        assert text[first] + text[second] == query[second] + query[first]

    @given(queries, seeds)
    def test_replace_puts_a_keyboard_neighbour_in_one_place(self, query: str, seed: int) -> None:
        text = typos.replace_letter(query, Random(seed))
        (at,) = (at for at in range(len(query)) if text[at] != query[at])
        assert len(text) == len(query)
        assert text[at] in typos.KEYBOARD_NEIGHBOURS[query[at]]

    @given(queries, seeds)
    def test_double_repeats_a_letter(self, query: str, seed: int) -> None:
        text = typos.double_letter(query, Random(seed))
        assert text in {query[:at] + query[at] + query[at:] for at in range(len(query)) if query[at] != " "}

    @given(queries, seeds)
    def test_split_adds_a_space_and_leaves_no_single_letter(self, query: str, seed: int) -> None:
        text = typos.split_word(query, Random(seed))
        assert text.replace(" ", "") == query.replace(" ", "")
        assert len(text) - len(query) in {0, 1}
        assert min(map(len, text.split())) >= typos.SHORTEST_FRAGMENT

    @given(queries, seeds)
    def test_join_drops_a_space_where_there_is_one(self, query: str, seed: int) -> None:
        text = typos.join_words(query, Random(seed))
        assert text.replace(" ", "") == query.replace(" ", "")
        assert text.count(" ") == max(0, query.count(" ") - 1)

    @pytest.mark.parametrize(("kind", "query"), [(typos.split_word, "mat"), (typos.join_words, "sofa")])
    def test_a_mistake_that_cannot_be_made_leaves_the_query(self, kind: typos.Typo, query: str) -> None:
        assert kind(query, Random(0)) == query

    def test_keyboard_neighbours_are_mutual(self) -> None:
        table = typos.KEYBOARD_NEIGHBOURS
        assert all(letter in table[neighbour] for letter in table for neighbour in table[letter])


class TestMisspelling:
    @given(queries, seeds, st.sampled_from([1, 2]))
    def test_corrupting_changes_the_query_by_no_more_edits_than_asked(
        self, query: str, seed: int, mistakes: int
    ) -> None:
        # Two mistakes in one place, a swap and then a letter between, are three edits of this distance.
        assert 1 <= edits(typos.corrupt(query, mistakes, Random(seed)), query) <= (1 if mistakes == 1 else 3)

    @given(queries, seeds)
    def test_a_misspelling_never_holds_a_word_of_the_grammar_that_the_query_has_not(
        self, query: str, seed: int
    ) -> None:
        new_words = set(typos.misspell(query, Random(seed)).split()) - set(query.split())
        assert not new_words & vocabulary()

    def test_a_word_that_could_be_meant_makes_a_misspelling_ambiguous(self) -> None:
        assert typos.is_ambiguous("coffee tablet", "coffee table")
        assert not typos.is_ambiguous("coffee tabel", "coffee table")

    def test_words_under_four_letters_are_left_alone_beside_longer_ones(self) -> None:
        letter_kinds = [kind for kind in typos.KINDS if kind is not typos.join_words]
        texts = {kind("cat tree", Random(seed)) for kind in letter_kinds for seed in range(50)}
        assert all(text.startswith("cat ") for text in texts)

    def test_about_a_quarter_of_the_training_texts_are_already_correct(self) -> None:
        pairs = list(itertools.islice(training_pairs(Random(0)), 4_000))
        assert 0.25 <= sum(pair.text == pair.label for pair in pairs) / len(pairs) <= 0.31


class TestHeldOut:
    def test_no_label_of_the_evaluation_file_can_be_drawn_for_training(self) -> None:
        labels = {line["label"] for line in lines("evaluation.jsonl")}
        trained = {pair.label for pair in itertools.islice(training_pairs(Random(1)), TRAINING_SAMPLE)}
        assert all(is_held_out(label) for label in labels)
        assert not any(is_held_out(label) for label in trained)
        assert not labels & trained

    def test_training_texts_that_are_correct_are_not_evaluation_labels_either(self) -> None:
        pairs = itertools.islice(training_pairs(Random(2)), TRAINING_SAMPLE)
        labels = {line["label"] for line in lines("evaluation.jsonl")}
        assert not labels & {pair.text for pair in pairs}


class TestFiles:
    def test_evaluation_has_600_misspelt_and_200_correct_pairs_with_different_labels(self) -> None:
        pairs = lines("evaluation.jsonl")
        assert all(pair.keys() == {"text", "label"} for pair in pairs)
        assert sum(pair["text"] != pair["label"] for pair in pairs) == 600
        assert sum(pair["text"] == pair["label"] for pair in pairs) == 200
        assert len({pair["label"] for pair in pairs}) == 800

    def test_evaluation_is_what_its_seed_gives(self) -> None:
        pairs = evaluation_pairs()
        assert lines("evaluation.jsonl") == [{"text": pair.text, "label": pair.label} for pair in pairs]

    def test_payloads_are_256_different_texts_and_what_their_seed_gives(self) -> None:
        texts = [line["text"] for line in lines("payloads.jsonl")]
        assert len(set(texts)) == 256
        assert texts == payload_texts()


class TestCheckpoint:
    def test_it_is_under_ten_megabytes_and_holds_no_pickle(self) -> None:
        names = {file.name for file in CHECKPOINT.iterdir()}
        assert names == {
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        }
        assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) < 10e6

    @pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
    def test_it_remembers_no_path_of_the_machine_that_trained_it(self, name: str) -> None:
        text = (CHECKPOINT / name).read_text(encoding="utf-8")
        assert "_name_or_path" not in text
        assert '"/' not in text

    def test_its_ids_agree_with_the_tokenizer(self, tokenizer: Tokenizer) -> None:
        config = json.loads((CHECKPOINT / "config.json").read_text(encoding="utf-8"))
        assert [tokenizer.token_to_id(token) for token in ("<pad>", "</s>", "<unk>")] == [0, 1, 2]
        assert (config["pad_token_id"], config["eos_token_id"], config["decoder_start_token_id"]) == (0, 1, 0)
        assert config["vocab_size"] == tokenizer.get_vocab_size()


class TestTokenizer:
    def test_every_evaluation_line_comes_back_exactly_and_ends_in_eos(self, tokenizer: Tokenizer) -> None:
        for text in {text for line in lines("evaluation.jsonl") for text in line.values()}:
            ids = tokenizer.encode(text).ids
            assert tokenizer.decode(ids) == text
            assert ids[-1] == 1
            assert 2 not in ids

    @given(queries, seeds)
    def test_no_typo_gives_unk(self, tokenizer: Tokenizer, query: str, seed: int) -> None:
        assert 2 not in tokenizer.encode(typos.corrupt(query, 2, Random(seed))).ids

    @given(st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="<"), max_size=40))
    def test_printable_ascii_comes_back_in_lower_case(self, tokenizer: Tokenizer, text: str) -> None:
        """`<` stands aside, for `</s>` typed by a user is the special token; so does a leading space."""
        query = text.lstrip()
        ids = tokenizer.encode(query).ids
        assert 2 not in ids
        assert tokenizer.decode(ids) == query.lower()
