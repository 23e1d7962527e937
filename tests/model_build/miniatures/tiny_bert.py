"""A tiny BERT with random weights for each encoder task, and a whole workload folder around it, made in a second.

Its answers are nonsense, but the same nonsense every time. `shared` keeps the encoder in a folder of its own.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForQuestionAnswering, BertForSequenceClassification, BertModel

from workloads import WorkloadFolder, load_workload

LETTERS = "abcdefghijklmnopqrstuvwxyz"
BERT_TOKENS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
"""In the order of their ids."""
LABELS = ("buy", "ask", "navigate")
FIVE = '["input_ids", "attention_mask", "position_ids", "valid_length", "token_type_ids"]'
MODELS = {
    "text-classification": f"labels = {json.dumps(LABELS)}",
    "text-pair-scoring": f'labels = {json.dumps(LABELS)}\nsegments = [["title", "brand"], ["other"]]\ninputs = {FIVE}',
    "question-answering": "max_answer_tokens = 4",
}
QUALITY = {
    "text-classification": ("accuracy", "macro_f1"),
    "text-pair-scoring": ("accuracy", "macro_f1"),
    "question-answering": ("exact_match", "f1"),
}
WORKLOAD_TOML = Path(__file__).with_suffix(".toml").read_text("utf-8")


def make_workload(folder: Path, task: str, *, shared: bool = False, examples: int = 24) -> WorkloadFolder:
    """The workload `tiny` below `folder`."""
    path = folder / "tiny"
    path.mkdir(parents=True)
    metrics = [*QUALITY[task], *(["score_correlation"] if task == "text-pair-scoring" else [])]
    text = WORKLOAD_TOML.format(
        task=task,
        model=MODELS[task],
        backbone='backbone = "../shared"\n' if shared else "",
        quality="\n".join(f"min_{metric} = -1.0" for metric in metrics),
    )
    (path / "workload.toml").write_text(text)
    make_checkpoint(path / "checkpoint", task, folder / "shared" if shared else None)
    workload = load_workload("tiny", folder)
    write_examples(workload, make_lines(workload.workload.model.fields, task, examples))
    return workload


def make_checkpoint(folder: Path, task: str, backbone: Path | None = None) -> None:
    """Writes a checkpoint; with `backbone`, the encoder there and the head alone in `folder`."""
    tokenizer = make_tokenizer()
    kind: Any = BertConfig
    config = kind(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=0,
        **({} if task == "question-answering" else {"id2label": dict(enumerate(LABELS))}),
    )
    torch.manual_seed(0)
    network = _network(task, config)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if weights.dim() == 2 and "embeddings" not in name:
                weights.mul_(8)  # as initialised, answers hardly depend on the text
    folder.mkdir(parents=True)
    encoder = folder
    if backbone is None:
        network.save_pretrained(folder)
        _set_architecture(folder / "config.json", task)
    else:
        encoder = backbone
        _save_apart(network, task, folder, backbone)
    tokenizer.save(str(encoder / "tokenizer.json"))
    kinds = {"tokenizer_class": "BertTokenizer", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    (encoder / "tokenizer_config.json").write_text(json.dumps(kinds))


def _network(task: str, config: Any) -> Any:
    if task == "question-answering":
        return BertForQuestionAnswering(config)
    if task == "text-classification":
        return BertForSequenceClassification(config)
    network: Any = BertModel(config)
    network.classifier = torch.nn.Linear(config.hidden_size, len(LABELS))
    network.scorer = torch.nn.Linear(config.hidden_size, 1)
    return network


def _set_architecture(file: Path, task: str) -> None:
    if task == "text-pair-scoring":
        config = json.loads(file.read_text())
        file.write_text(json.dumps(config | {"architectures": ["BertForPairScoring"]}))


def _save_apart(network: Any, task: str, folder: Path, backbone: Path) -> None:
    weights = {name.removeprefix("bert."): tensor for name, tensor in network.state_dict().items()}
    encoder = {name: tensor for name, tensor in weights.items() if name.startswith(("embeddings.", "encoder."))}
    backbone.mkdir(parents=True)
    save_file(encoder, backbone / "model.safetensors")
    save_file({name: tensor for name, tensor in weights.items() if name not in encoder}, folder / "head.safetensors")
    network.config.save_pretrained(backbone)
    config = json.loads((backbone / "config.json").read_text())
    (backbone / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    architecture = "BertForPairScoring" if task == "text-pair-scoring" else "BertForSequenceClassification"
    named = {str(index): label for index, label in enumerate(LABELS)}
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], "id2label": named}))


def make_tokenizer(tokens: dict[str, str] = BERT_TOKENS) -> Tokenizer:
    """Returns a tokenizer with letters as tokens, behind the special `tokens`."""
    special = list(tokens.values())
    pieces = [*special, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=tokens["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    first, last = ((tokens[name], vocabulary[tokens[name]]) for name in ("cls_token", "sep_token"))
    kind: Any = processors.RobertaProcessing if tokens["cls_token"] == "<s>" else processors.BertProcessing
    tokenizer.post_processor = kind(last, first)
    tokenizer.add_special_tokens(special)
    return tokenizer


def write_examples(workload: WorkloadFolder, lines: list[dict[str, Any]]) -> None:
    """Writes evaluation.jsonl, and payloads.jsonl with the fields of requests."""
    payloads = [{field: line[field] for field in workload.workload.model.fields} for line in lines]
    for name, rows in (("evaluation.jsonl", lines), ("payloads.jsonl", payloads)):
        (workload.path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_lines(fields: tuple[str, ...], task: str, count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = Random(seed)
    lines: list[dict[str, Any]] = []
    for _ in range(count):
        line: dict[str, Any] = {field: _text(rng, 27 // len(fields)) for field in fields}
        line["label"] = line["context"].split()[0] if task == "question-answering" else rng.choice(LABELS)
        if task == "text-pair-scoring":
            line["score"] = rng.random()
        lines.append(line)
    return lines


def _text(rng: Random, letters: int) -> str:
    """Returns words of up to five letters, with at most `letters` letters in all."""
    text = "".join(rng.choices(LETTERS, k=rng.randint(2, letters)))
    return " ".join(text[start : start + 5] for start in range(0, len(text), 5))
