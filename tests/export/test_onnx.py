"""ONNX folders compute the same as PyTorch, also in the scripts of the docs."""

import dataclasses
import json
import os
import subprocess
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from small_model import TEXTS, write_model
from small_pretrained import PAIRS, PROBLEMS, SHAPES, TAGGED, pretrained
from torch import nn

import electra
from electra.data.tokenizer import special_tokens
from electra.export import huggingface
from electra.export.loading import load_pretrained
from electra.export.onnx.check import max_difference, sample_batch, torch_network
from electra.export.onnx.graph import Graph
from electra.export.onnx.model import load_onnx, open_session
from electra.export.onnx.write import save_onnx
from electra.export.pretrained import Pretrained
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.predictor import Predictor
from electra.serving.scorer import Scorer
from electra.serving.text_encoder import TextEncoder
from electra.tasks.base import Text

for package in ("onnx", "onnxruntime"):
    pytest.importorskip(package)

LONG = [*TEXTS, " ".join(TEXTS * 4), "cat", ""]


def close(actual: Any, expected: Any, bound: float = 1e-4) -> bool:
    if isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(
            close(actual[key], expected[key], bound) for key in expected
        )
    if isinstance(expected, list | tuple):
        return len(actual) == len(expected) and all(
            close(*both, bound) for both in zip(actual, expected, strict=True)
        )
    return actual == pytest.approx(expected, abs=bound) if isinstance(expected, float) else actual == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_a_discriminator_has_the_same_scores_and_states(shape: str, tmp_path: Path) -> None:
    model = pretrained(shape, ReplacedTokenHead)
    exported = save_onnx(model, tmp_path / "onnx")
    assert exported.kind == "discriminator" and 0 < exported.difference < 1e-4
    # The memory is not exported.
    scores = [Scorer(one, device="cpu", long="windows")(LONG) for one in (model, tmp_path / "onnx")]
    for expected, scored in zip(*scores, strict=True):
        assert expected.tokens == scored.tokens and np.allclose(expected.logits, scored.logits, atol=1e-4)
    encoders = [TextEncoder(one, device="cpu", long="windows") for one in (model, tmp_path / "onnx")]
    assert np.allclose(*(encoder.encode(LONG) for encoder in encoders), atol=1e-4)
    for expected_LD, states_LD in zip(*(encoder(LONG) for encoder in encoders), strict=True):
        assert expected_LD.shape == states_LD.shape and np.allclose(expected_LD, states_LD, atol=1e-4)


@pytest.mark.parametrize("at_once", [512, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_generator_predicts_the_same_words(
    shape: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("electra.serving.masked_token_predictor.MAX_LOGIT_ROWS", at_once)
    model = dataclasses.replace(pretrained(shape, MaskedLanguageModelHead), max_length=12)
    save_onnx(model, tmp_path / "onnx")
    ids = [encoding.ids for encoding in model.tokenizer.encode_batch(TEXTS, add_special_tokens=False)]
    if model.memory_length:
        ids = [one[:10] for one in ids]  # PyTorch reads longer texts with memory
    positions = [list(range(0, len(one), 2)) for one in ids]
    all_logits = []
    for one in (model, tmp_path / "onnx"):
        logits = np.full((len(ids), max(map(len, ids)), 150), np.nan)
        for text, part, values in MaskedTokenPredictor(one, device="cpu")(ids, positions):
            logits[text, part] = values.numpy()
        all_logits.append(logits)
    assert np.isfinite(all_logits[0]).any(-1).sum() == sum(map(len, positions))
    assert np.allclose(*all_logits, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "albert"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_fine_tuned_model_has_the_same_predictions(name: str, shape: str, tmp_path: Path) -> None:
    problem, texts = PROBLEMS[name]
    model = pretrained(shape, None, problem)
    save_onnx(model, tmp_path / "onnx")
    inputs: list[Text] = [*texts, *texts[:1]]
    expected, predictions = (Predictor(one, device="cpu")(inputs) for one in (model, tmp_path / "onnx"))
    assert close(predictions, expected), (predictions, expected)
    assert close(electra.load(tmp_path / "onnx").predict(inputs), expected)


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_windows_of_128_and_blocks_of_512_around_whole_ones(
    weights: Literal["float32", "int8"], tmp_path: Path
) -> None:
    model = pretrained("modernbert", ReplacedTokenHead)
    config = dataclasses.replace(model.encoder.config, local_window=128, max_positions=1024)  # type: ignore[call-arg]
    encoder = config.build().eval()
    encoder.load_state_dict(model.encoder.state_dict())
    model = dataclasses.replace(model, encoder=encoder, max_length=1024)
    save_onnx(model, tmp_path / "onnx", weights=weights)
    exported = load_onnx(tmp_path / "onnx")
    for longest in (1, 63, 64, 65, 128, 129, 191, 193, 512, 513, 1023, 1024):
        inputs = sample_batch(model, special_tokens(model.tokenizer), [longest, max(1, longest // 3)])
        actual = exported.run(exported.metadata.outputs, **inputs)
        with torch.inference_mode():
            expected = torch_network(model, "discriminator")(inputs)
        difference = max_difference(expected, actual, inputs["attention_mask"])
        assert difference < (1e-4 if weights == "float32" else 1.0)


@pytest.mark.parametrize(
    "settings", [{"convolution_groups": 4}, {"convolution_width": 1}, {"convolution_width": 5}]
)
def test_convolutions_with_groups_and_of_other_widths(settings: dict[str, int], tmp_path: Path) -> None:
    model = pretrained("deberta, v2", ReplacedTokenHead)
    config = dataclasses.replace(model.encoder.config, **settings)
    exported = save_onnx(dataclasses.replace(model, encoder=config.build().eval()), tmp_path / "onnx")
    assert exported.difference < 1e-4


def test_embeddings_of_an_encoder_are_the_mean_of_its_states(tmp_path: Path) -> None:
    model = pretrained("electra", ReplacedTokenHead)
    assert save_onnx(model.encoder_only(), tmp_path / "onnx").kind == "encoder"
    tuned = pretrained("electra", None, PROBLEMS["linear"][0])
    save_onnx(tuned.encoder_only(), tmp_path / "tuned")
    assert load_onnx(tmp_path / "tuned").task is None
    loaded = load_onnx(tmp_path / "onnx")
    ids = torch.randint(5, 150, (2, 7))
    mask = torch.arange(7) < torch.tensor([7, 4])[:, None]
    outputs = loaded.run(("states", "embeddings"), input_ids=ids, attention_mask=mask)
    assert torch.allclose(outputs["embeddings"][1], outputs["states"][1, :4].mean(0), atol=1e-5)
    assert np.allclose(TextEncoder(loaded).encode(LONG), TextEncoder(model, device="cpu").encode(LONG), atol=1e-4)


def test_eight_bits_are_smaller_and_nearly_as_accurate(tmp_path: Path) -> None:
    model = pretrained("electra", ReplacedTokenHead)
    whole = save_onnx(model, tmp_path / "whole")
    small = save_onnx(model, tmp_path / "small", weights="int8")
    tables = sum(parameter.numel() * 3 for name, parameter in model.encoder.named_parameters() if "token" in name)
    assert small.bytes < whole.bytes - tables
    x, y = (np.concatenate([s.logits for s in Scorer(one)(TEXTS)]) for one in (model, tmp_path / "small"))
    assert 0 < np.abs(x - y).max() < 0.5 and np.corrcoef(x, y)[0, 1] > 0.99
    assert json.loads((tmp_path / "small/onnx.json").read_text())["weights"] == "int8"


@pytest.mark.parametrize("shape", ["electra", "xlnet", "modernbert, square", "deberta, v2"])
def test_in_eight_bits_a_text_has_the_same_states_alone_and_in_a_batch(shape: str, tmp_path: Path) -> None:
    """The slightest difference in 32 bits would round a value to another step now and then."""
    model = deep(shape)
    save_onnx(model, tmp_path / "small", weights="int8")
    small = load_onnx(tmp_path / "small")
    lengths = torch.randint(2, 151, (60,), generator=torch.Generator().manual_seed(0)).tolist()
    inputs = sample_batch(model, special_tokens(model.tokenizer), lengths)
    together = small.run(("states",), **inputs)["states"]
    for row, length in enumerate(lengths):
        one = {name: inputs[name][row : row + 1, :length] for name in ("input_ids", "token_type_ids")}
        alone = small.run(("states",), **one)["states"]
        assert torch.allclose(together[row, :length], alone[0], atol=1e-5)


def deep(shape: str) -> Pretrained:
    """A network with random weights that is large enough for the effect of rounding to show."""
    model = pretrained(shape, ReplacedTokenHead)
    settings = {"embedding_size": 16 if shape == "electra" else 128, "max_positions": 150}
    if "modernbert" in shape:
        settings["local_window"] = 128
    config = dataclasses.replace(
        model.encoder.config, layers=6, hidden_size=128, heads=4, feed_forward_size=256,
        initializer_range=0.2, linear_initializer_range=0.05, **settings,
    )  # fmt: skip
    torch.manual_seed(0)
    encoder, head = config.build().eval(), ReplacedTokenHead(config).eval()
    return dataclasses.replace(model, encoder=encoder, head=head, max_length=150)


def test_a_product_in_eight_bits_has_a_scale_for_each_row_and_each_output() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(24, 7)
    layer.weight.data *= torch.logspace(-2, 2, 7)[:, None]
    x = torch.randint(-99, 100, (2, 3, 24)) * 10 ** torch.arange(6).view(2, 3, 1)  # rows of very different sizes
    x[1, 1] = 0
    graph = Graph(int8_layers=True)
    given = graph.op("Cast", graph.input("input_ids", "batch", "length", "width"), to=graph.types.FLOAT)
    graph.output("y", graph.linear(given, layer), "batch", "length", 7)
    [actual] = open_session(graph.model("test", "0").SerializeToString()).run(None, {"input_ids": x.numpy()})
    x_scales = x.abs().amax(-1, keepdim=True).clamp(min=1) / 127
    weight_scales = layer.weight.abs().amax(1, keepdim=True) / 63
    weight = (layer.weight / weight_scales).round() * weight_scales
    expected = (x / x_scales + 0.5).floor() * x_scales @ weight.T + layer.bias
    assert torch.allclose(torch.tensor(actual), expected, rtol=1e-4, atol=1e-4)


SCRIPT_HEAD = "import sys\nsys.modules['torch'] = sys.modules['electra'] = None\n"


def run_script(number: int, folder: Path, *arguments: str) -> list[str]:
    """The lines that one of the scripts of docs/guides/onnx.md prints in a process without torch."""
    text = (Path(__file__).parents[2] / "docs/guides/onnx.md").read_text()
    script = text.split("```python\n")[number].partition("```")[0]
    assert sum(bool(line.strip()) for line in script.splitlines()) <= 34
    (folder.parent / "run.py").write_text(SCRIPT_HEAD + script)
    done = subprocess.run(
        [sys.executable, str(folder.parent / "run.py"), str(folder), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", ["discriminator", "generator", "encoder", "linear", "tagging"])
def test_the_script_of_the_docs_runs_without_torch(kind: str, tmp_path: Path) -> None:
    heads = {"discriminator": ReplacedTokenHead, "generator": MaskedLanguageModelHead}
    model = pretrained("electra", heads.get(kind), PROBLEMS[kind][0] if kind in PROBLEMS else None)
    save_onnx(model, tmp_path / "onnx")
    lines = run_script(1, tmp_path / "onnx", "The cat sat on the [MASK].", "A dog")
    if kind == "generator":
        ids = model.tokenizer.encode("The cat sat on the .", add_special_tokens=False).ids
        [(_, _, values)] = MaskedTokenPredictor(model, device="cpu")([[*ids[:-1], 0, ids[-1]]], [[len(ids) - 1]])
        best = model.tokenizer.id_to_token(int(values.argmax()))
        assert len(lines) == 1 and f"[{best!r}" in lines[0]
    elif kind == "discriminator":
        [scored] = Scorer(model, device="cpu")(["A dog"])
        assert close([value for _, value in literal_eval(lines[1])], scored.logits.tolist(), 1e-3)
    elif kind == "encoder":
        [embedding] = TextEncoder(model, device="cpu").encode(["A dog"])
        assert close(literal_eval(lines[1].removeprefix("A dog ")), embedding[:8].tolist())
    elif kind == "linear":
        scores = np.exp([*literal_eval(lines[1].removeprefix("A dog ")).values()])
        assert close([*(scores / scores.sum())], [*Predictor(model)(["A dog"])[0]["scores"].values()])
    else:
        assert all(label in TAGGED.labels for _, label in literal_eval(lines[1]))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("shape", "kind"),
    [*(("electra", kind) for kind in ("pair", "plain span", "span", "answerable span")), ("to the left", "pair")],
)
def test_the_script_for_pairs_runs_without_torch(shape: str, kind: str, tmp_path: Path) -> None:
    model = pretrained(shape, None, PROBLEMS[kind][0])
    save_onnx(model, tmp_path / "onnx")
    for pair in PAIRS if shape == "electra" else PAIRS[:1]:
        [line] = run_script(2, tmp_path / "onnx", *pair)
        predictor = Predictor(model, device="cpu")
        if kind == "pair":
            scores = np.exp([*literal_eval(line).values()])
            assert close([*(scores / scores.sum())], [*predictor([pair])[0]["scores"].values()])
        else:
            rows = predictor.problem.encode([predictor.problem.make_example(pair, 0)], predictor.input_spec)
            assert len(rows) == 1  # one window
            [outputs] = predictor.backend.outputs(rows, pad=predictor.pad)
            assert close(float(line.rpartition(" ")[2]), float(outputs["scores"].max()), 2e-4)
            if kind != "answerable span":
                assert line.rpartition(" ")[0] == predictor([pair])[0]["answer"]


def test_a_fine_tuned_model_reads_as_much_as_its_task(tmp_path: Path) -> None:
    model = pretrained("electra", None, PROBLEMS["linear"][0])
    assert model.task is not None
    model = dataclasses.replace(model, task={**model.task, "max_length": 16})
    save_onnx(model, tmp_path / "onnx")
    assert json.loads((tmp_path / "onnx/onnx.json").read_text())["max_length"] == 16 < model.max_length


def test_a_folder_of_a_saved_model(tmp_path: Path) -> None:
    """Through the files, with a byte-level tokenizer."""
    folder = write_model(tmp_path / "saved", kind="bpe")
    save_onnx(load_pretrained(folder), tmp_path / "onnx", config_json=folder / "config.json")
    scores = [Scorer(one, device="cpu")(LONG) for one in (folder, tmp_path / "onnx")]
    for expected, scored in zip(*scores, strict=True):
        assert expected.tokens == scored.tokens and np.allclose(expected.logits, scored.logits, atol=1e-4)
    assert huggingface.load(folder).max_length == load_onnx(tmp_path / "onnx").max_length


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_folder_whose_name_is_not_utf_8_is_read(tmp_path: Path) -> None:
    exported = save_onnx(pretrained("electra", ReplacedTokenHead), tmp_path / "onnx").folder
    renamed = exported.rename(tmp_path / os.fsdecode(b"caf\xe9"))
    assert [len(scored.tokens) for scored in Scorer(str(renamed), device="cpu")(["cat", "cat dog"])] == [1, 2]
