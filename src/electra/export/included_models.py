"""Trained models that are part of electra: `models/` of the repository, `electra/models` of the wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "models", _PACKAGE.parents[1] / "models")


def included_models() -> dict[str, Path]:
    """The folder of each included model by name; it has a folder for each of its networks."""
    return {
        config.parents[1].name: config.parents[1]
        for folder in reversed(_FOLDERS)
        for config in sorted(folder.glob("*/discriminator/config.json"))
    }


def model_path(model: str | Path) -> Path:
    """The path of a MODEL: for NAME or NAME/NETWORK that of an included model, unless there is such a path."""
    path = Path(model)
    name, *rest = path.parts or ("",)
    if path.exists() or name not in (models := included_models()):
        return path
    return models[name].joinpath(*rest)
