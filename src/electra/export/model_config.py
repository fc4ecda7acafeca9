"""config.json of Hugging Face folders, out and in."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from electra import __version__
from electra.config import problems_of
from electra.data.tokenizer import SpecialTokens
from electra.errors import CheckpointError
from electra.export.names import ACTIVATIONS, FAMILIES, Family, HeadKind
from electra.export.xlnet_names import config_fields, config_of
from electra.json_files import read_json
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.encoders.bert import BertConfig
from electra.modeling.sharing import SHARED_PARTS
from electra.tasks.catalog import load_problem

ARCHITECTURES: dict[tuple[Family, HeadKind], str] = {
    ("electra", "discriminator"): "ElectraForPreTraining",
    ("electra", "generator"): "ElectraForMaskedLM",
    ("bert", "generator"): "BertForMaskedLM",
    ("bert", "pair"): "BertForPreTraining",
    ("roberta", "generator"): "RobertaForMaskedLM",
    ("albert", "generator"): "AlbertForMaskedLM",
    ("albert", "pair"): "AlbertForPreTraining",
    ("xlnet", "language-model"): "XLNetLMHeadModel",
    ("electra", "text"): "ElectraForSequenceClassification",
    ("electra", "linear-text"): "ElectraModel",
    ("electra", "token"): "ElectraForTokenClassification",
    ("electra", "span"): "ElectraForQuestionAnswering",
    ("electra", "conditional-span"): "ElectraModel",
}
"""The class of transformers that an export is for. It has none for the conditional span, nor for a text's head
without a hidden layer: only the encoder loads there. A pair's stands for both heads, of words and of pairs."""
BARE = "XLNetModel"
"""The class for the networks with relative positions under any other head."""

SEGMENTS = "electra_segments"
"""The key of whether an xlnet knows of segments; theirs all do. It is ours."""
OBJECTIVE = "electra_objective"
"""The key that says what a network was trained by; it is ours."""
SHARING = {"share_layers": "electra_share_layers", "layer_groups": "electra_layer_groups"}
"""The keys of what the blocks share, where the type knows nothing of that; they are ours."""
TASK = "electra_task"
"""The key of what a fine-tuned network knows of its task; it is ours."""

# Their name for each field, and what it is where the file leaves it out: in the families, in their order.
_FIELDS: dict[str, tuple[str, int | float, int | float, int | float, int | float]] = {
    "layers": ("num_hidden_layers", 12, 12, 12, 12),
    "hidden_size": ("hidden_size", 256, 768, 768, 4096),
    "embedding_size": ("embedding_size", 128, 768, 768, 128),
    "feed_forward_size": ("intermediate_size", 1024, 3072, 3072, 16384),
    "heads": ("num_attention_heads", 4, 12, 12, 64),
    "vocabulary_size": ("vocab_size", 30522, 30522, 50265, 30000),
    "max_positions": ("max_position_embeddings", 512, 512, 512, 512),
    "type_vocabulary_size": ("type_vocab_size", 2, 2, 2, 2),
    "dropout": ("hidden_dropout_prob", 0.1, 0.1, 0.1, 0.0),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1, 0.1, 0.1, 0.0),
    "layer_norm_epsilon": ("layer_norm_eps", 1e-12, 1e-12, 1e-12, 1e-12),
    "initializer_range": ("initializer_range", 0.02, 0.02, 0.02, 0.02),
}
PADDING = {"electra": 0, "bert": 0, "roberta": 1, "albert": 0}
"""The id of [PAD] where the file leaves it out."""
# Settings of theirs that change what is computed, with the value that is computed here (and is their default).
_REQUIRED: dict[str, str | bool | int] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "inner_group_num": 1,
}


def to_json(
    config: EncoderConfig,
    *,
    family: Family,
    kind: HeadKind,
    objective: str | None,
    special: SpecialTokens,
    task: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What config.json says of a network."""
    padding = special.pad
    # Left out, they would be those of the released vocabularies.
    ends = {"bos_token_id": special.classify, "eos_token_id": special.separate}
    ours = {
        "pad_token_id": padding,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "electra_version": __version__,
        OBJECTIVE: objective,
        **({} if task is None else _task_fields(task)),
    }
    if family == "xlnet":
        architecture = {"architectures": [ARCHITECTURES.get((family, kind), BARE)]}
        return {**config_fields(config), **architecture, SEGMENTS: config.type_vocabulary_size > 1, **ends, **ours}
    values = asdict(config)
    fields = {theirs: values[name] for name, (theirs, *_) in _FIELDS.items()}
    if family in ("bert", "roberta"):
        del fields["embedding_size"]
    if family == "roberta":
        fields["max_position_embeddings"] += padding + 1  # it counts positions from there
    if family in ("roberta", "albert"):
        fields |= ends
    if family == "albert":
        assert isinstance(config, BertConfig)
        fields |= {"num_hidden_groups": config.layer_groups, "inner_group_num": 1}
        fields["classifier_dropout_prob"] = config.dropout
    elif config.share_layers != "none":
        fields |= {theirs: values[name] for name, theirs in SHARING.items()}
    activation = next(theirs for theirs, name in ACTIVATIONS.items() if name == config.activation)
    return {
        "architectures": [ARCHITECTURES[family, kind]],
        "model_type": family,
        **fields,
        "hidden_act": activation,
        **ours,
    }


def _task_fields(task: dict[str, Any]) -> dict[str, Any]:
    """The task of a fine-tuned model, and its labels as transformers has them."""
    problem = load_problem(task)
    fields: dict[str, Any] = {TASK: task}
    if names := problem.output_names:
        fields |= {
            "id2label": {str(number): name for number, name in enumerate(names)},
            "label2id": {name: number for number, name in enumerate(names)},
        }
    return fields | ({} if problem.problem_type is None else {"problem_type": problem.problem_type})


@dataclass(frozen=True)
class Described:
    """What a config.json says: the network, the id of [PAD], and if it is ours what trained it, for which task."""

    family: Family
    encoder: EncoderConfig
    padding: int
    objective: str | None
    task: dict[str, Any] | None


def from_json(path: Path) -> Described:
    """What a config.json says.

    Raises:
        CheckpointError: it cannot be read, or describes one that is not computed here; every reason is named.
    """
    theirs = read_json(path)
    if theirs.get("model_type") == "xlnet":
        config = config_of(theirs, path)
        if theirs.get(SEGMENTS) is False:
            config = replace(config, type_vocabulary_size=1)
        padding = theirs.get("pad_token_id", 5)
        return Described("xlnet", config, padding, theirs.get(OBJECTIVE), theirs.get(TASK))
    family = next((known for known in FAMILIES if known == theirs.get("model_type")), None)
    if family is None:
        raise CheckpointError(
            f"{path}: this model cannot be loaded: model_type is {theirs.get('model_type')!r}; "
            f"{', '.join(FAMILIES)}, xlnet are read here"
        )
    problems = [
        f"{name} is {found!r}; only {value!r} is computed here"
        for name, value in _REQUIRED.items()
        if (found := theirs.get(name, value)) != value
    ]
    values: dict[str, Any] = {}
    for ours, (name, *defaults) in _FIELDS.items():
        default = defaults[FAMILIES.index(family)]
        values[ours] = theirs.get(name, default)
        allowed = int if isinstance(default, int) else int | float
        if not isinstance(values[ours], allowed) or isinstance(values[ours], bool):
            problems.append(f"{name} must be a number, found {values[ours]!r}")
    padding = theirs.get("pad_token_id", PADDING[family])
    if family != "roberta" and padding is None:
        padding = PADDING[family]
    if not isinstance(padding, int) or padding < 0:
        problems.append(f"pad_token_id must be an id, found {padding!r}")
    elif family == "roberta" and not problems:
        values["max_positions"] -= padding + 1
    if family in ("bert", "roberta"):
        values["embedding_size"] = values["hidden_size"]
    if family == "albert":
        values["share_layers"], values["layer_groups"] = "all", theirs.get("num_hidden_groups", 1)
        if values["embedding_size"] == values["hidden_size"]:
            problems.append("embedding_size is hidden_size; the projection between them is not computed here then")
        if not isinstance(values["layer_groups"], int):
            problems.append(f"num_hidden_groups must be a number, found {values['layer_groups']!r}")
    elif theirs.get(SHARING["share_layers"]) in SHARED_PARTS and isinstance(
        theirs.get(SHARING["layer_groups"]), int
    ):
        values |= {ours: theirs[name] for ours, name in SHARING.items()}
    activation = theirs.get("hidden_act", "gelu_new" if family == "albert" else "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        problems.append(f"hidden_act is {activation!r}; computed here are {', '.join(ACTIVATIONS)}")
    if not problems and values["vocabulary_size"] < 1:
        problems.append(f"vocab_size must be at least 1, found {values['vocabulary_size']}")
    if not problems:
        values["activation"] = ACTIVATIONS[activation]
        problems.extend(problems_of(BertConfig(**values)))
    if problems:
        raise CheckpointError(f"{path}: this model cannot be loaded:\n" + "\n".join(f"  {p}" for p in problems))
    return Described(family, BertConfig(**values), padding, theirs.get(OBJECTIVE), theirs.get(TASK))
