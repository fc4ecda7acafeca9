"""`electra data verify`: compare every file of prepared data with its checksum."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from electra.errors import DataError

if TYPE_CHECKING:
    from electra.data.shards import TokenData

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class VerifyConfig:
    """The command line of `electra data verify`."""

    folders: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER...", help_behavior_hint="(required)")
    ]
    """Folders that electra prepare or electra data merge made."""

    def problems(self) -> Iterator[str]:
        if not self.folders:
            yield "give a folder that `electra prepare` made"


def run(config: VerifyConfig) -> str:
    """Read every file of prepared data once and compare its checksum.

    All folders are read to their end, and all damaged and missing files are listed. The exit status is 2 if there
    are any.

    Examples:
        electra data verify DATA
        electra data verify PART-1 PART-2 && electra data merge PART-1 PART-2 --out DATA
    """
    from electra.data.shards import TokenData

    complete, damage = list[str](), list[str]()
    for folder in config.folders:
        try:
            complete.append(_describe(TokenData.open(folder)))
        except DataError as error:
            damage.append(str(error))
    if damage:
        for line in complete:
            logger.info(line)
        raise DataError("\n".join(damage))
    return "\n".join(complete)


def _describe(data: TokenData) -> str:
    shards = sum(len(split["shards"]) for split in data.manifest["splits"].values())
    return f"{data.folder}: complete, every checksum matches; {shards} shards, fingerprint {data.fingerprint}"
