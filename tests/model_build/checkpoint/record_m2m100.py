"""Trains a small SentencePiece model, and writes what transformers' own M2M100Tokenizer makes of many texts with it.

SentencePiece is no requirement of this repository. With it on the path, beside the transformers of `.venv`:

    pip install --target OTHER --no-deps sentencepiece==0.2.1
    PYTHONPATH=OTHER:. python -m tests.model_build.checkpoint.record_m2m100
"""

import importlib
import json
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import transformers

from model_build.checkpoint.m2m100 import LANGUAGES

FOLDER = Path(__file__).with_name("m2m100")
RECORDED = Path(__file__).with_name("m2m100.json")
SENTENCES = (
    "The station is closed on Sundays, and the next train leaves at 7:45.",
    "Der Bahnhof ist sonntags geschlossen, und der nächste Zug fährt um 7.45 Uhr.",
    "La gare est fermée le dimanche ; le prochain train part à 7 h 45.",
    "La estación está cerrada los domingos y el próximo tren sale a las 7:45.",
    "Вокзал закрыт по воскресеньям, следующий поезд уходит в 7:45.",
    "駅は日曜日に閉まっています。次の電車は7時45分に出ます。",
    "车站星期天关门，下一班火车7点45分开。",
    "المحطة مغلقة أيام الأحد، والقطار التالي يغادر الساعة 7:45.",
    "רציף שלוש סגור היום, הרכבת הבאה בשעה 7:45.",
    "स्टेशन रविवार को बंद रहता है, अगली ट्रेन 7:45 पर जाएगी।",
    "สถานีปิดวันอาทิตย์ รถไฟขบวนถัดไปออกเวลา 7:45 น.",
    "역은 일요일에 문을 닫고 다음 기차는 7시 45분에 떠납니다.",
    "Nhà ga đóng cửa vào Chủ nhật, chuyến tàu tiếp theo khởi hành lúc 7:45.",
    "Ο σταθμός είναι κλειστός τις Κυριακές· το επόμενο τρένο φεύγει στις 7:45.",
    "Asema on kiinni sunnuntaisin, ja seuraava juna lähtee kello 7.45.",
    "İstasyon pazar günleri kapalı, sonraki tren 7.45'te kalkıyor.",
)
ODD = (
    "",
    " ",
    "a",
    "  two  spaces ",
    "tab\tand\nline",
    "ﬁne ﬂow",
    "ＦＵＬＬ　ｗｉｄｔｈ",
    "e\u0301 é",
    "🙂 smile 🙂🙂",
    "ꙮꙮ ꙮ",
    "1234567890",
    "__de__ Zug",
    "of __fr__ la gare",
    "</s> train",
    "a<unk>b",
    "\u00a0no\u200bbreak\u00ad",
    "ß ẞ ŉ Ǆ",
    "½ ² ℡ ™",
    "((( )))",
    "aaaaaaaaaa",
    "x" * 70,
)
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")


def texts(count: int = 400) -> list[str]:
    """Returns the sentences, the odd ones, and mixtures of parts of both."""
    rng = Random(0)
    words = [word for sentence in SENTENCES for word in sentence.split()]
    made = [*SENTENCES, *ODD]
    while len(made) < count:
        parts = [
            rng.choice(words)[rng.randint(0, 2) :] if rng.random() < 0.9 else rng.choice(ODD)
            for _ in range(rng.randint(1, 9))
        ]
        made.append(rng.choice((" ", " ", "", "  ")).join(parts))
    return made


def transformers_own(language: str) -> Any:
    """Returns the tokenizer with the languages' tokens as special ones, as published checkpoints have them."""
    kind: Any = importlib.import_module("transformers").M2M100Tokenizer
    return kind(
        str(FOLDER / "vocab.json"),
        str(FOLDER / "sentencepiece.bpe.model"),
        src_lang=language,
        additional_special_tokens=[f"__{code}__" for code in LANGUAGES["m2m100"].split()],
    )


def main() -> None:
    spm: Any = importlib.import_module("sentencepiece")
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus.txt"
        corpus.write_text("\n".join([*SENTENCES] * 3), "utf-8")
        spm.SentencePieceTrainer.train(
            input=str(corpus),
            model_prefix=str(Path(scratch) / "made"),
            model_type="bpe",
            vocab_size=500,
            character_coverage=0.999,
            normalization_rule_name="nmt_nfkc",
        )
        (FOLDER / "sentencepiece.bpe.model").write_bytes((Path(scratch) / "made.model").read_bytes())
    processor = spm.SentencePieceProcessor(model_file=str(FOLDER / "sentencepiece.bpe.model"))
    pieces = [processor.id_to_piece(index) for index in range(processor.vocab_size())]
    vocabulary = [*SPECIAL, *(piece for piece in pieces if piece not in SPECIAL)]
    (FOLDER / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(vocabulary)}))
    ids = {}
    for language in ("en", "de"):
        original = transformers_own(language)
        ids[language] = [original(text)["input_ids"] for text in texts()]
    decoded = [original.decode(row, skip_special_tokens=True) for row in ids["en"]]
    document = {
        "transformers": transformers.__version__,
        "sentencepiece": spm.__version__,
        "texts": texts(),
        "ids": ids,
        "decoded": decoded,
    }
    RECORDED.write_text(json.dumps(document, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
