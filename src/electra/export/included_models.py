"""Trained models that are part of electra: `electra/models` of the wheel, `models/` of a checkout."""

from pathlib import Path

from electra.export.display_name import NETWORKS


def models_folder() -> Path:
    """The folder that has the included models."""
    package = Path(__file__).parents[1]
    checkout = package.parents[1]
    is_checkout = package.parent.name == "src" and (checkout / "pyproject.toml").is_file()
    return checkout / "models" if is_checkout else package / "models"


def included_models() -> dict[str, Path]:
    """The folder of each included model by name; it has a folder for each of its networks."""
    found = sorted(models_folder().glob("*/discriminator/config.json"))
    return {config.parents[1].name: config.parents[1] for config in found}


def find_included(model: str | Path) -> Path | None:
    """The folder that NAME or NAME/NETWORK stands for; None: it is no included model, or NAME is a path."""
    name, _, network = str(model).partition("/")
    folder = included_models().get(name)
    if folder is None or network not in ("", *NETWORKS) or Path(name).exists():
        return None
    return folder / network


def model_path(model: str | Path) -> Path:
    """The path of a MODEL, which can be the name of an included model."""
    return find_included(model) or Path(model)


def is_included(folder: Path) -> bool:
    """Whether a folder is part of electra, so that nothing should be written into it."""
    return folder.resolve().is_relative_to(models_folder().resolve())
