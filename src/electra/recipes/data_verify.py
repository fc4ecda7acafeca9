"""`electra data verify`: whether prepared data are whole."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from electra.data.shards import SPLITS, TokenData
from electra.errors import ConfigError


@dataclass(frozen=True)
class VerifyConfig:
    """What to look at."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders that `electra prepare` or `electra data merge` made."""


def run(config: VerifyConfig) -> str:
    """Read every file of prepared data once and compare its checksum; status 2 where one is missing or damaged.

    Examples:
        electra data verify DATA
        electra data verify PART-1 PART-2 && electra data merge PART-1 PART-2 --out DATA
    """
    if not config.folders:
        raise ConfigError("electra data verify: no folder was named; give one that `electra prepare` made")
    return "\n".join(_line(TokenData.open(folder)) for folder in config.folders)


def _line(data: TokenData) -> str:
    shards = sum(len(data.manifest["splits"][split]["shards"]) for split in SPLITS)
    return f"{data.folder}: whole; {shards} shards, fingerprint {data.fingerprint}"
