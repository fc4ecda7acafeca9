"""Hugging Face folders of type electra, bert, roberta, albert and xlnet, out and in, without transformers.

Post-norm blocks and tied tables are what transformers' classes of these types compute, with learnt positions, or
with relative ones in an xlnet. So a folder written here loads there with no weight missing, and one written there
loads here. Configuration, tokenizer and the tensors' names are in files of their own beside this one.

Shapes: D hidden size, E embedding size, V vocabulary.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from electra import durable
from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError
from electra.export import native
from electra.export.model_config import ARCHITECTURES, Described, from_json, to_json
from electra.export.names import (
    Family,
    HeadKind,
    family_of,
    has_pairs,
    head_kind,
    our_shape,
    renamed,
    take_copies,
    their_names,
    their_shape,
)
from electra.export.onnx.graph import FACTS, MODEL, is_onnx
from electra.export.tokenizer_files import agree, read_tokenizer, tokenizer_files
from electra.export.xlnet_names import WORD_BIAS, from_xlnet, to_xlnet
from electra.json_files import json_text, read_json
from electra.modeling.encoders.base import EncoderConfig, EncoderModule
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.encoders.relative import RelativeEncoder
from electra.modeling.heads import (
    LanguageModelHead,
    MaskedLanguageModelHead,
    ReplacedTokenHead,
    SentencePairHead,
)
from electra.modeling.sharing import plain_parameters
from electra.modeling.task_heads import ConditionalSpanHead, SpanHead, TaskHead, TextHead, TokenHead

logger = logging.getLogger(__name__)

Head = MaskedLanguageModelHead | ReplacedTokenHead | LanguageModelHead | TaskHead
KINDS: dict[type[nn.Module], HeadKind] = {
    MaskedLanguageModelHead: "generator",
    ReplacedTokenHead: "discriminator",
    LanguageModelHead: "language-model",
    TextHead: "text",
    TokenHead: "token",
    SpanHead: "span",
    ConditionalSpanHead: "conditional-span",
}
WEIGHTS = "model.safetensors"
OLD_WEIGHTS = "pytorch_model.bin"
NAMED = 20
"""Tensors that a message names; a folder may have hundreds that do not fit."""


@dataclass(frozen=True)
class Pretrained:
    """What a folder holds. The networks are in evaluation mode, in fp32, on the CPU."""

    encoder: EncoderModule
    head: Head | None
    """None where the folder has an encoder alone, or was fine-tuned for a task elsewhere."""
    tokenizer: Tokenizer
    objective: str | None
    """What the head was trained by (`objective.kind`), where the folder says so; those of others do not."""
    max_length: int
    """The longest input, special tokens included: later positions exist, perhaps, but were never trained."""
    task: dict[str, Any] | None = None
    """What a network that was fine-tuned here knows of its task (`electra.tasks.catalog`)."""
    pairs: SentencePairHead | None = None
    """Beside a masked language model: whether two segments belong together."""

    @property
    def memory_length(self) -> int:
        return self.encoder.config.memory_length

    @property
    def stream(self) -> bool:
        """Whether it was trained on a stream, and so reads a text between two [SEP]s (`serving.batching`)."""
        return self.memory_length > 0

    @property
    def hidden_size(self) -> int:
        return self.encoder.config.hidden_size

    def alone(self) -> "Pretrained":
        """The encoder without its head, and without what is known of a task."""
        return replace(self, head=None, task=None, pairs=None)


def save(
    folder: Path,
    *,
    encoder: EncoderModule,
    head: Head,
    tokenizer_json: Path,
    card: str,
    max_length: int | None = None,
    family: Family = "electra",
    objective: str | None = None,
    task: dict[str, Any] | None = None,
    pairs: SentencePairHead | None = None,
) -> None:
    """Write a folder that transformers' AutoModel, AutoTokenizer and the class of the head load.

    Every file is written beside its place and then renamed, config.json as the last: a folder that has one is
    whole. Files of other names are left alone.

    Args:
        tokenizer_json: the file that the data was prepared with.
        card: the text of README.md.
        max_length: the longest input that the network was trained on; None: as many as it has positions.
        objective, task: what the network was trained by, and for, for those who load it here.
        family: other types than electra are for masked language models of certain shapes (`names.family_of`).
        pairs: a head of pairs beside; left out of a folder of a type that knows none.

    Raises:
        DataError: the tokenizer cannot be read or lacks a special token.
        CheckpointError: the tokenizer has more entries than the network has rows, or the disk refuses.
    """
    config = encoder.config
    kind = KINDS[type(head)]
    if isinstance(head, TextHead) and head.dense is None:
        kind = "linear-text"
    if isinstance(encoder, RelativeEncoder):
        family = "xlnet"
    words = kind in ("generator", "language-model")
    assert family in ("electra", "xlnet") or (words and family == family_of(config))
    tokenizer = load_tokenizer(tokenizer_json)
    agree(tokenizer, config, tokenizer_json)
    special = tokenizers.special_tokens(tokenizer)
    is_native = config.checkpoint_format == "native"
    modules: list[tuple[nn.Module, HeadKind]] = [(encoder, kind), (head, kind)]
    if pairs is not None and (family, "pair") in ARCHITECTURES:
        modules.append((pairs, kind := "pair"))
    if is_native:
        named = {"encoder": encoder, "head": head, **({} if pairs is None else {"pairs": pairs})}
        tensors = native.tensors_of(named)
        description = native.to_json(
            config, kind=KINDS[type(head)], objective=objective, special=special, task=task
        )
    else:
        tensors = dict(pair for module, of in modules for pair in _their_tensors(module, family, of, special.pad))
        description = to_json(config, family=family, kind=kind, objective=objective, special=special, task=task)
    most = max_length or config.max_positions
    texts = tokenizer_files(
        tokenizer, min(most, config.max_positions) if config.position_table else most,
        segments=config.type_vocabulary_size > 1,
    )  # fmt: skip
    texts |= {
        "README.md": card,
        "config.json": json_text(description),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        durable.write(folder / WEIGHTS, lambda partial: save_file(tensors, partial, metadata={"format": "pt"}))
        for name, text in texts.items():
            durable.write_text(folder / name, text)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder} cannot be written: {error}") from error


def load(folder: Path) -> Pretrained:
    """The networks and the tokenizer of a Hugging Face folder of one of the types that are read here.

    Heads of other kinds (a classifier that was fine-tuned) are passed over, and named in the log.

    Raises:
        CheckpointError: a file is missing or damaged, the network is none that is computed here, or tensors are
            missing, unknown or of another shape; each one is named.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    if is_onnx(folder):
        raise CheckpointError(
            f"{folder} is an ONNX folder, which score, predict and serve take; here give the model it was made of"
        )
    if (fields := read_json(folder / "config.json")).get("model_type") == native.MODEL_TYPE:
        return _load_native(folder, fields)
    described = from_json(folder / "config.json")
    family, config, task = described.family, described.encoder, described.task
    if family == "xlnet":
        return _load_relative(folder, described)
    assert isinstance(config, BertConfig)
    tensors = {
        name: our_shape(name, tensor, family, described.padding)
        for name, tensor in renamed(_read_weights(folder), family).items()
    }
    config = _without_copies(config, family, tensors)
    kind = head_kind(tensors, family)
    if task is None and kind not in (None, "discriminator", "generator"):
        kind = None
    with torch.device("meta"), _Uninitialized():  # no time for weights that are replaced at once
        encoder, head = BertEncoder(config), _head(family, kind, config, tensors)
        pairs = SentencePairHead(config) if kind == "generator" and has_pairs(tensors, family) else None
    problems: list[str] = []
    take_copies(tensors, problems)
    kinds: list[tuple[nn.Module | None, HeadKind]] = [
        (encoder, "generator"), (head, kind or "generator"), (pairs, "pair"),
    ]  # fmt: skip
    modules = [(module, of) for module, of in kinds if module is not None]
    states = [_our_state(module, family, of, tensors, problems) for module, of in modules]
    inside = (f"{family}.embeddings", f"{family}.encoder.")
    problems.extend(f"{name}: is not known here" for name in sorted(tensors) if name.startswith(inside))
    if problems:
        raise CheckpointError(f"{folder}: the weights do not fit config.json:\n" + _listed(problems))
    if tensors:
        logger.info("%s: passed over %s, which belong to another head", folder, ", ".join(sorted(tensors)))
    for (module, _), state in zip(modules, states, strict=True):
        module.load_state_dict(state, assign=True, strict=False)  # what is shared stands there once
        module.eval()
    tokenizer, max_length = read_tokenizer(folder, config)
    return Pretrained(encoder, head, tokenizer, described.objective, max_length, task, pairs)


def _load_relative(folder: Path, described: Described) -> Pretrained:
    """The same of a folder of type xlnet, whose names the encoder has in a file of their own."""
    config, task = described.encoder, described.task
    tensors = _read_weights(folder)
    kind = head_kind(tensors, "xlnet")
    if task is None and kind not in (None, "discriminator", "generator", "language-model"):
        kind = None
    with torch.device("meta"), _Uninitialized():
        encoder, head = config.build(query_stream=True), _head("xlnet", kind, config, tensors)
    problems: list[str] = []
    of_head: dict[str, Tensor] = {}
    if head is not None:
        of_head = _our_state(head, "xlnet", kind or "generator", tensors, problems)
    state, _ = from_xlnet(tensors, segments=config.type_vocabulary_size > 1)
    shapes = {name: tuple(parameter.shape) for name, parameter in encoder.named_parameters()}
    for name in sorted(shapes.keys() | state.keys()):
        if name not in state:
            problems.append(f"{name}: is missing")
        elif name not in shapes:
            problems.append(f"{name}: is not known here")
        elif (found := tuple(state[name].shape)) != shapes[name]:
            problems.append(f"{name}: expected {shapes[name]}, found {found}")
    if problems:
        raise CheckpointError(f"{folder}: the weights do not fit config.json:\n" + _listed(problems))
    encoder.load_state_dict(state, assign=True)
    if head is not None:
        head.load_state_dict(of_head, assign=True)
        head.eval()
    tokenizer, max_length = read_tokenizer(folder, config)
    return Pretrained(encoder.eval(), head, tokenizer, described.objective, max_length, task)


def _load_native(folder: Path, fields: dict[str, Any]) -> Pretrained:
    """The same of a folder in electra's own format."""
    config = native.encoder_config(fields, folder)
    kind, objective, task = native.facts(fields)
    tensors = _read_weights(folder)
    sizes = {name.replace("head.prediction", "classifier"): tensor for name, tensor in tensors.items()}
    sizes["classifier.out_proj.bias"] = sizes["linear_classifier.bias"] = sizes.get(
        "classifier.bias", torch.ones(1)
    )
    if "head.answerable.bias" in tensors:
        sizes["conditional_span.answerable.bias"] = tensors["head.answerable.bias"]
    encoder, head = (
        config.build(query_stream="encoder.query_stream.weight" in tensors),
        _head("electra", kind, config, sizes),
    )
    pairs = SentencePairHead(config) if any(name.startswith("pairs.") for name in tensors) else None
    problems: list[str] = []
    for prefix, module in {"encoder": encoder, "head": head, "pairs": pairs}.items():
        if module is not None:
            native.load_module(module, prefix, tensors, problems)
            module.eval()
    problems += [f"{name}: is not known here" for name in sorted(tensors)]
    if problems:
        raise CheckpointError(f"{folder}: the weights do not fit config.json:\n" + _listed(problems))
    tokenizer, max_length = read_tokenizer(folder, config)
    return Pretrained(encoder, head, tokenizer, objective, max_length, task, pairs)


def _listed(problems: list[str]) -> str:
    more = [f"... and {len(problems) - NAMED} more"] if len(problems) > NAMED else []
    return "\n".join(f"  {line}" for line in [*problems[:NAMED], *more])


class _Uninitialized(TorchFunctionMode):
    """Where it is active, the functions of `torch.nn.init` leave tensors as they are.

    On the meta device there is nothing to fill, but PyTorch loads its compiler to find that out: a second or two.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def _head(family: Family, kind: HeadKind | None, config: EncoderConfig, tensors: dict[str, Tensor]) -> Head | None:
    match kind:
        case None:
            return None
        case "discriminator":
            return ReplacedTokenHead(config)
        case "language-model":
            return LanguageModelHead(config)
        case "text":
            return TextHead(config, len(tensors.get("classifier.out_proj.bias", ())), hidden=True)
        case "linear-text":
            return TextHead(config, len(tensors.get("linear_classifier.bias", ())), hidden=False)
        case "token":
            return TokenHead(config, len(tensors.get("classifier.bias", ())))
        case "span":
            return SpanHead(config)
        case "conditional-span":
            return ConditionalSpanHead(config, answerable="conditional_span.answerable.bias" in tensors)
    if family == "xlnet":
        return MaskedLanguageModelHead.full_size(config)
    return MaskedLanguageModelHead(
        config, activation=config.activation if family in ("bert", "albert") else "gelu"
    )


def _their_tensors(
    module: nn.Module, family: Family, kind: HeadKind, padding: int = 0
) -> Iterator[tuple[str, Tensor]]:
    if isinstance(module, RelativeEncoder):
        theirs = to_xlnet(module.state_dict(), heads=module.config.heads)
        del theirs[WORD_BIAS]
        yield from ((name, tensor.float().cpu()) for name, tensor in theirs.items())
        return
    for name, parameter in plain_parameters(module):
        names = their_names(module, name, family=family, kind=kind)
        for their_name, part in zip(names, parameter.detach().float().chunk(len(names)), strict=True):
            # A copy each: safetensors refuses tensors that share memory.
            shaped = their_shape(their_name, part, family, padding)
            yield their_name, shaped.cpu().clone(memory_format=torch.contiguous_format)


def _our_state(
    module: nn.Module, family: Family, kind: HeadKind, tensors: dict[str, Tensor], problems: list[str]
) -> dict[str, Tensor]:
    """The state of a module, taken out of `tensors`; what is wrong with it is added to `problems`."""
    state: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        names = their_names(module, name, family=family, kind=kind)
        expected = (parameter.shape[0] // len(names), *parameter.shape[1:])
        parts: list[Tensor] = []
        for their_name in names:
            part = tensors.pop(their_name, None)
            if part is None:
                problems.append(f"{their_name}: is missing; expected {expected}")
            elif tuple(part.shape) != expected:
                problems.append(f"{their_name}: expected {expected}, found {tuple(part.shape)}")
            elif not bool(part.isfinite().all()):
                problems.append(f"{their_name}: holds numbers that are not finite; the model is broken")
            else:
                parts.append(part)
        if len(parts) == len(names):
            state[name] = torch.cat(parts)
    return state


def _without_copies(config: BertConfig, family: Family, tensors: dict[str, Tensor]) -> BertConfig:
    """Take out of `tensors` what blocks share and a folder of this type holds for each of them.

    Where the copies differ, since they were tuned elsewhere, they stay, and the config given back shares none.
    """
    if config.share_layers == "none" or family == "albert":
        return config
    with torch.device("meta"), _Uninitialized():
        encoder = BertEncoder(config)
    firsts: dict[int, tuple[str, ...]] = {}
    copies: dict[str, str] = {}
    for name, parameter in encoder.named_parameters(remove_duplicate=False):
        names = their_names(encoder, name, family=family, kind="generator")
        copies |= dict(zip(names, firsts.setdefault(id(parameter), names), strict=True))
    for copy, first in copies.items():
        one, other = tensors.get(copy), tensors.get(first)
        if one is None or other is None or not torch.equal(one, other):
            return replace(config, share_layers="none", layer_groups=1)
    for copy, first in copies.items():
        if copy != first:
            del tensors[copy]
    return config


def _read_weights(folder: Path) -> dict[str, Tensor]:
    path = folder / WEIGHTS
    try:
        if path.is_file():
            return {name: tensor.float() for name, tensor in load_file(path).items()}
        if not (path := folder / OLD_WEIGHTS).is_file():
            hint = f"; of an ONNX folder {FACTS} is missing" if (folder / MODEL).is_file() else ""
            raise CheckpointError(f"{folder} has neither {WEIGHTS} nor {OLD_WEIGHTS}{hint}")
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, UnpicklingError, EOFError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{path} is damaged or cut short: {reason}") from error
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise CheckpointError(f"{path} must hold tensors by name, found {type(tensors).__name__}")
    return {name: tensor.float() for name, tensor in tensors.items()}
