"""Upload a model folder to the Hugging Face hub."""

from dataclasses import dataclass
from pathlib import Path

from electra.errors import ConfigError, require

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Upload:
    """The files of a model in a repository of the hub.

    Attributes:
        sizes: bytes of each file, by name.
        url: of the commit; None: nothing was sent.
    """

    repository: str
    sizes: dict[str, int]
    url: str | None

    def __str__(self) -> str:
        total = sum(self.sizes.values()) / MEBIBYTE
        lines = [f"  {size:15,} bytes  {name}" for name, size in self.sizes.items()]
        if self.url is None:
            return "\n".join([f"would upload to {self.repository} ({total:.1f} MiB); nothing was sent:", *lines])
        return "\n".join([f"uploaded to {self.repository} ({total:.1f} MiB): {self.url}", *lines])


def check_repository(repository: str) -> None:
    """Check the name of a repository, without contacting anybody.

    Raises:
        MissingExtraError: huggingface_hub is not installed.
        ConfigError: the name is not allowed, or has no owner.
    """
    require("push", "hub", "huggingface_hub")
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise ConfigError(f"push: this is no OWNER/NAME of the hub: {error}") from error
    if "/" not in repository:
        raise ConfigError(
            f"push: {repository!r} has no owner; give OWNER/{repository}, with your user name on the hub or an "
            "organization as the owner"
        )


def push_folder(folder: Path, repository: str, *, dry_run: bool = False) -> Upload:
    """Upload the files of a model folder to a repository of the Hugging Face hub, in one commit.

    A repository that does not exist is created, as a private one. Its other files stay. Hidden files, and folders
    in the folder, are left out. The token is that of the environment variable HF_TOKEN, or of `hf auth login`.

    Args:
        repository: OWNER/NAME.
        dry_run: only list the files; nobody is contacted.

    Raises:
        MissingExtraError: huggingface_hub is not installed.
        ConfigError: the name is not allowed, or the hub refuses the upload or cannot be reached.
    """
    check_repository(repository)
    from huggingface_hub import CommitOperationAdd, HfApi

    files = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    sizes = {path.name: path.stat().st_size for path in files}
    if dry_run:
        return Upload(repository, sizes, None)
    try:
        api = HfApi()
        api.create_repo(repository, private=True, exist_ok=True)
        commit = api.create_commit(
            repository,
            [CommitOperationAdd(path.name, str(path)) for path in files],
            commit_message="Upload a model",
        )
    except Exception as error:  # of the hub, or of the HTTP library that its version uses
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ConfigError(
            f"push: {repository} could not be written: {reason}\n  to log in: hf auth login, or set HF_TOKEN to a "
            "token that may write"
        ) from error
    return Upload(repository, sizes, commit.commit_url)
