"""Encoders, objectives, tasks and checkpoint formats by name: those of the package, and those of plugins.

Readers of corpus files are found by file endings; their registry is in readers/base.py.

A plugin is one Python file. It registers what it defines with a decorator,

    @register_objective("my-objective")
    @dataclass(frozen=True)
    class MyObjectiveConfig(ObjectiveConfig): ...

and is loaded by `electra --plugin FILE VERB ...`, by `electra.load_plugin(FILE)`, or, once it is installed with
pip, through an entry point of the group that a registry names (`electra.encoders`, `electra.objectives`, ...).
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from electra.errors import ConfigError, caller_name, did_you_mean

Entry = TypeVar("Entry")


class Registry:
    """Entries by name. An entry is imported when it is looked up.

    Args:
        noun: what an entry is, for messages.
        group: the group of entry points in which installed packages register entries.
        builtin: the package's entries, as `"module:attribute"`.
    """

    def __init__(self, noun: str, group: str, builtin: Mapping[str, str]) -> None:
        self.noun, self.group = noun, group
        self._builtin = {name: EntryPoint(name, where, group) for name, where in builtin.items()}
        self._registered: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """Return a decorator that registers an entry under a name.

        Raises:
            ConfigError: another entry has this name.
        """

        def decorate(entry: Entry) -> Entry:
            if name in self._builtin or self._registered.get(name, entry) is not entry:
                raise ConfigError(f"{self.noun} {name!r} exists already; register yours under another name")
            self._registered[name] = entry
            return entry

        return decorate

    def get(self, name: str) -> Any:
        """Return the entry of a name.

        Raises:
            ConfigError: no entry has this name.
        """
        if (entry := self.find(name)) is None:
            names = self.names()
            raise ConfigError(
                f"there is no {self.noun} {str(name)!r}{did_you_mean(str(name), names)}\n"
                f"  available: {', '.join(names)}; others need "
                f"{caller_name('--plugin FILE', 'electra.load_plugin(FILE)')}"
            )
        return entry

    def find(self, name: str) -> Any | None:
        """Return the entry of a name; None: no entry has this name."""
        if name in self._registered:
            return self._registered[name]
        entry_point = self._builtin.get(name) or self._installed.get(name)
        return None if entry_point is None else entry_point.load()

    def names(self) -> list[str]:
        """All names: the package's first, in their order, then those of plugins."""
        return list(dict.fromkeys([*self._builtin, *self._registered, *self._installed]))

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((name, self.get(name)) for name in self.names())

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.group)}


def load_plugin(path: str | Path) -> None:
    """Import a Python file, whose decorators register entries. A file that is loaded already is not loaded again.

    Raises:
        ConfigError: the file cannot be read, or fails when it is imported.
    """
    file = Path(path).resolve()
    name = f"electra_plugin_{file.stem}"
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file):
        return
    spec = importlib.util.spec_from_file_location(name, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise ConfigError(
            f"{caller_name('--plugin ', '')}{path}: this is not a Python file; give the path of a .py file"
        )
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ConfigError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(f"{caller_name('--plugin ', '')}{path}: {type(error).__name__}: {error}") from error


encoders = Registry(
    "encoder",
    "electra.encoders",
    {
        "bert": "electra.modeling.encoders.bert:BertConfig",
        "relative": "electra.modeling.encoders.relative:RelativeConfig",
        "modernbert": "electra.modeling.encoders.modernbert:ModernBertConfig",
        "deberta": "electra.modeling.encoders.deberta:DebertaConfig",
    },
)
"""Config classes of encoders, by `model.kind`."""
objectives = Registry(
    "objective",
    "electra.objectives",
    {
        "replaced-token": "electra.objectives.replaced_token:ReplacedTokenConfig",
        "masked-lm": "electra.objectives.masked_lm:MaskedLanguageModelConfig",
        "electric": "electra.objectives.electric:ElectricConfig",
        "replace-mlm": "electra.objectives.replace_mlm:ReplaceMlmConfig",
        "all-tokens-mlm": "electra.objectives.all_tokens_mlm:AllTokensMlmConfig",
        "adversarial": "electra.objectives.adversarial:AdversarialConfig",
        "two-stage": "electra.objectives.two_stage:TwoStageConfig",
        "causal-lm": "electra.objectives.causal_lm:CausalLanguageModelConfig",
        "permutation-lm": "electra.objectives.permutation_lm:PermutationLanguageModelConfig",
    },
)
"""Config classes of objectives, by `objective.kind`."""
tasks = Registry(
    "kind of task",
    "electra.tasks",
    {
        "classification": "electra.tasks.classification:Classification",
        "pair": "electra.tasks.classification:PairClassification",
        "multilabel": "electra.tasks.multilabel:Multilabel",
        "regression": "electra.tasks.regression:Regression",
        "tagging": "electra.tasks.tagging:Tagging",
        "answering": "electra.tasks.question_answering:QuestionAnswering",
    },
)
"""Classes of fine-tuning problems (`electra.tasks.base.Problem`), by `kind`."""
checkpoint_formats = Registry(
    "checkpoint format",
    "electra.checkpoint_formats",
    {
        "bert": "electra.export.formats.bert:BertFormat",
        "xlnet": "electra.export.formats.xlnet:XLNetFormat",
        "modernbert": "electra.export.formats.modernbert:ModernBertFormat",
        "deberta": "electra.export.formats.deberta:DebertaFormat",
        "native": "electra.export.formats.native:NativeFormat",
    },
)
"""Classes of formats of model folders (`electra.export.formats.base.CheckpointFormat`), by the
`checkpoint_format` of encoders."""
register_encoder = encoders.register
register_objective = objectives.register
register_task = tasks.register
