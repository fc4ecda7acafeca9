"""`electra data fetch`: download prepared data from a web server or an object store."""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class FetchConfig:
    """The command line of `electra data fetch`."""

    source: tyro.conf.Positional[str]
    """URL of a folder of prepared data, such as https://host/data, s3://bucket/data or gs://bucket/data; or a
    path."""
    out: Path
    """Output folder: a new one, or one with the same data; complete files in it are not downloaded again."""


def run(config: FetchConfig) -> str:
    """Download prepared data from a web server or an object store, and check every file.

    Every file is compared with its checksum in the manifest. The manifest is written last; a folder without it is
    not complete. After an interruption the same command resumes. Web servers and object stores need more libraries
    (a path does not): pip install "electra[remote]".

    Examples:
        electra data fetch https://data.example/wiki --out DATA
        electra data fetch s3://bucket/wiki --out DATA
    """
    from electra.data.fetch import fetch_data

    data = fetch_data(config.source, config.out)
    return f"{config.out}: {data.train.tokens:,} tokens to train on, fingerprint {data.fingerprint}"
