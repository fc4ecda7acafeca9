"""Files of a model that lie about their sizes are refused, before memory is allocated for what they promise."""

import json
import resource
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from small_model import write_model

from electra.errors import CheckpointError, ElectraError
from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig
from electra.modeling.encoders.deberta import DebertaConfig
from electra.modeling.encoders.modernbert import ModernBertConfig
from electra.modeling.encoders.relative import RelativeConfig
from electra.tasks.catalog import load_problem
from electra.tasks.classification import Classification

MEMORY = 1 << 30
"""Address space that a refusal may take, in bytes."""
TENSOR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
LIES: dict[str, tuple[bytes | dict[str, Any], int | None]] = {
    "a length beyond the file": ({"a": TENSOR}, 99_000_000),
    "a length of 2^63": ({"a": TENSOR}, 2**63),
    "a place beyond the file": ({"a": {**TENSOR, "shape": [200], "data_offsets": [0, 800]}}, None),
    "a place backwards": ({"a": {**TENSOR, "data_offsets": [8, 0]}}, None),
    "a place twice": ({"a": TENSOR, "b": TENSOR}, None),
    "a negative shape": ({"a": {**TENSOR, "shape": [-2]}}, None),
    "a shape larger than its bytes": ({"a": {**TENSOR, "shape": [2**40]}}, None),
    "a shape that overflows": ({"a": {**TENSOR, "shape": [2**33, 2**33]}}, None),
    "an empty tensor of absurd shape": ({"a": {**TENSOR, "shape": [0, 2**62], "data_offsets": [0, 0]}}, None),
    "an unknown type": ({"a": {**TENSOR, "dtype": "X9"}}, None),
    "nested thousands deep": (b'{"a":' + b"[" * 100_000, None),
    "no object": (b"[1]", None),
    "millions of tensors": (b'{"a":' + b" " * (1 << 23) + b"{}}", None),
}


@pytest.fixture(scope="module", params=[BertConfig, ModernBertConfig, DebertaConfig, RelativeConfig])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = {"position_buckets": 8} if request.param is DebertaConfig else {}
    folder = write_model(tmp_path_factory.mktemp("hostile") / "m", encoder=request.param, **more)
    huggingface.load(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("hostile") / "m")


@pytest.fixture
def limited() -> Iterator[None]:
    """An allocation of more than `MEMORY` fails with a MemoryError or RuntimeError, not an ElectraError."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.usefixtures("limited")
def test_headers_of_safetensors_that_lie(lie: str, bert: Path, tmp_path: Path) -> None:
    content, length = LIES[lie]
    header = content if isinstance(content, bytes) else json.dumps(content).encode()
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((bert / name).read_bytes())
    data = b"" if "empty" in lie else bytes(8)
    size = struct.pack("<Q", len(header) if length is None else length)
    (tmp_path / "model.safetensors").write_bytes(size + header + data)
    with pytest.raises(CheckpointError, match=r"damaged|its header has|is missing"):
        huggingface.load(tmp_path)


def numbers(fields: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all numbers in a JSON object."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from numbers(value, (*path, name))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*path, name)


def write_changed(file: Path, fields: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Write a JSON object with another value at the path of one key."""
    changed = json.loads(json.dumps(fields))
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    file.write_text(json.dumps(changed))


@pytest.mark.parametrize("value", [0, -1, 10**6, 10**9, 10**13, 2**62, 2**70, 1e300, float("nan"), "x", [1]])
@pytest.mark.usefixtures("limited")
def test_absurd_sizes_in_config_json(value: Any, model: Path) -> None:
    """Each number in turn. The model is loaded, if the number does not matter, or refused."""
    fields = json.loads((model / "config.json").read_text())
    refused = 0
    try:
        for path in numbers(fields):
            write_changed(model / "config.json", fields, path, value)
            try:
                huggingface.load(model)
            except ElectraError:
                refused += 1
    finally:
        (model / "config.json").write_text(json.dumps(fields))
    assert refused >= 4  # layers, widths, vocabulary


def keys(fields: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all keys in a JSON object."""
    for name, value in fields.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from keys(value, (*path, name))


OTHER_KEYS = (
    "electra_share_layers", "electra_layer_groups", "attention_head_size", "max_relative_positions",
    "global_rope_theta", "local_rope_theta", "electra_embedding_size", "electra_trained_length", "id2label",
)  # fmt: skip
"""Keys that are read, and that the exports of these tests do not have."""


@pytest.mark.parametrize("value", [[[1]], {"a": [1]}, "x" * 1000, True, {"full_attention": "x"}])
def test_a_value_of_an_odd_type_is_named(value: Any, model: Path) -> None:
    """Each key in turn. If it does not matter, the model is loaded; else the message has the file and the key."""
    fields = json.loads((model / "config.json").read_text())
    refused = 0
    try:
        for path in [*keys(fields), *((name,) for name in OTHER_KEYS)]:
            write_changed(model / "config.json", fields, path, value)
            try:
                huggingface.load(model)
            except CheckpointError as error:
                refused += 1
                if "the weights do not fit config.json" not in (said := str(error)):  # of another valid network
                    assert "config.json" in said and path[-1] in said and "damaged" not in said
                    assert len(said) < 600
    finally:
        (model / "config.json").write_text(json.dumps(fields))
    assert refused >= 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder": [1]}, r"encoder must be an object, found \[1\]"),
        ({"head": ["token"]}, r"head must be a string or null, found \['token'\]"),
        ({"head": "arm"}, "head is 'arm'; electra has discriminator"),
        ({"layers": [2]}, r"encoder.layers must be a whole number, found \[2\]"),
        ({"activation": {}}, "encoder.activation must be one of .*, found {}"),
    ],
)
def test_an_odd_type_in_a_folder_that_only_electra_reads_is_named(
    change: dict[str, Any], message: str, bert: Path, tmp_path: Path
) -> None:
    shape = asdict(huggingface.load(bert).encoder.config)
    fields = {"model_type": "electra-native", "encoder": shape}
    for name, value in change.items():
        (fields if name in ("encoder", "head") else shape)[name] = value
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(CheckpointError, match=rf"config\.json: this model cannot be loaded:\n  {message}"):
        huggingface.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kind", ["x"], r"kind must be a string, found \['x'\]"),
        ("labels", "red", "labels must be a list of texts, found 'red'"),
        ("pair", None, "pair must be true or false, found None"),
        ("max_length", [9], r"max_length must be a whole number above 0, found \[9\]"),
        ("long", 3, "long must be a string, found 3"),
    ],
)
def test_an_odd_type_in_the_description_of_a_task_is_named(
    name: str, value: Any, message: str, tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "m", problem=Classification(("accuracy",), labels=("red", "blue")))
    fields = json.loads((folder / "config.json").read_text())
    fields["electra_task"][name] = value
    (folder / "config.json").write_text(json.dumps(fields))
    with pytest.raises(CheckpointError, match=rf"config\.json: .*\n  electra_task\.{message}"):
        huggingface.load(folder)
    with pytest.raises(CheckpointError, match=rf"the description of its task: {message}"):
        load_problem(fields["electra_task"])


@pytest.mark.usefixtures("limited")
def test_absurd_sizes_of_an_encoder_that_is_built_with_values(bert: Path, tmp_path: Path) -> None:
    encoder = {"layers": 2, "hidden_size": 16, "embedding_size": 16, "feed_forward_size": 32, "heads": 2}
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes((bert / name).read_bytes())
    for change in ({"vocabulary_size": 10**12}, {"layers": 10**9}, {"max_positions": 10**11}, {"heads": 0}):
        shape = {"kind": "bert", "vocabulary_size": 400, **encoder, **change}
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "electra-native", "encoder": shape}))
        with pytest.raises(CheckpointError):
            huggingface.load(tmp_path)


def large(path: Path) -> Path:
    """A file of 2 GB that takes no space."""
    with path.open("wb") as file:
        file.truncate(2 << 30)
    return path


def vocabulary(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").unlink(missing_ok=True)
    large(folder / "vocab.txt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: large(folder / "tokenizer.json"), "tokenizer.json: is larger than 256 MiB"),
        (vocabulary, "vocab.txt: is larger than 256 MiB"),
        (lambda folder: large(folder / "config.json"), "config.json cannot be read: it has 2,048 MiB, at most 64"),
        (lambda folder: large(folder / "tokenizer_config.json"), "tokenizer_config.json cannot be read: it has"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("limited")
def test_files_that_are_far_too_large(change: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    change(folder)
    with pytest.raises(ElectraError, match=message):
        huggingface.load(folder)


@pytest.mark.parametrize(
    ("encoder", "key"),
    [(BertConfig, "layer_norm_eps"), (DebertaConfig, "layer_norm_eps"), (ModernBertConfig, "norm_eps")],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_an_epsilon_that_makes_every_score_nan_is_refused(
    encoder: type[Any], key: str, value: float, tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "model", encoder=encoder)
    fields = json.loads((folder / "config.json").read_text())
    assert fields[key] > 0
    (folder / "config.json").write_text(json.dumps(fields | {key: value}))
    with pytest.raises(CheckpointError, match="layer_norm_epsilon"):
        huggingface.load(folder)
