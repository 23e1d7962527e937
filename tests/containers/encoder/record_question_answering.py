"""Asks the question-answering pipeline of transformers 4 and writes its answers to question_answering.json.

transformers 5 has no such pipeline. With 4.57.6 first on the path:

    pip install --target OLD --no-deps transformers==4.57.6 tokenizers==0.22.2 huggingface_hub==0.36.2
    PYTHONPATH=OLD:. python -m tests.containers.encoder.record_question_answering
"""

import json
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Tokenizer
from transformers import BertConfig, BertForQuestionAnswering, PreTrainedTokenizerFast, pipeline

from tests.containers.encoder.seeded_bert import LONGEST_ANSWER, QUESTIONS, SIZES, STRIDE, WHOLE, WINDOW, seed


def main(tokenizer: Tokenizer) -> None:
    config: Any = BertConfig
    shape = config(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=WHOLE, pad_token_id=0, **SIZES)
    network: Any = BertForQuestionAnswering
    wrapper: Any = PreTrainedTokenizerFast
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = wrapper(tokenizer_object=tokenizer, model_max_length=WHOLE, **special)
    answering: Any = pipeline("question-answering", model=seed(network(shape)), tokenizer=fast)
    ways = {
        "whole": {"max_seq_len": WHOLE, "doc_stride": 0},
        "in windows": {"max_seq_len": WINDOW, "doc_stride": STRIDE},
    }
    answers = {
        name: [
            answering(question=question, context=context, max_answer_len=LONGEST_ANSWER, align_to_words=False, **how)
            for question, context in QUESTIONS
        ]
        for name, how in ways.items()
    }
    document = {"transformers": transformers.__version__, **answers}
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    Path(__file__).with_name("question_answering.json").write_text(text, "utf-8")


if __name__ == "__main__":
    from tests.containers.encoder.encoder_miniature import make_tokenizer

    letters = make_tokenizer()
    letters.no_truncation()
    letters.no_padding()
    letters.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    main(letters)
