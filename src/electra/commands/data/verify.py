"""`electra data verify`: whether prepared data are whole."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from electra.data.shards import SPLITS, TokenData
from electra.errors import ConfigError, DataError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class VerifyConfig:
    """What to look at."""

    folders: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER...", help_behavior_hint="(required)")
    ]
    """Folders that `electra prepare` or `electra data merge` made."""


def run(config: VerifyConfig) -> str:
    """Read every file of prepared data once and compare its checksum; status 2 where any is missing or damaged.

    All folders are read to their end, and everything that is wrong is listed.

    Examples:
        electra data verify DATA
        electra data verify PART-1 PART-2 && electra data merge PART-1 PART-2 --out DATA
    """
    if not config.folders:
        raise ConfigError("electra data verify: no folder was named; give one that `electra prepare` made")
    whole, faults = list[str](), list[str]()
    for folder in config.folders:
        try:
            whole.append(_line(TokenData.open(folder)))
        except DataError as error:
            faults.append(str(error))
    if faults:
        for line in whole:
            logger.info(line)
        raise DataError("\n".join(faults))
    return "\n".join(whole)


def _line(data: TokenData) -> str:
    shards = sum(len(data.manifest["splits"][split]["shards"]) for split in SPLITS)
    return f"{data.folder}: whole; {shards} shards, fingerprint {data.fingerprint}"
