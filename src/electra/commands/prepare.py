"""`electra prepare`: turn a corpus into a tokenizer and token shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from electra.preparation.config import PrepareConfig

if TYPE_CHECKING:
    from electra.preparation.dry_run import PreparePlan
    from electra.preparation.report import PrepareResult


def run(config: PrepareConfig) -> PrepareResult | PreparePlan:
    """Turn a corpus into a tokenizer and token shards, with a held-out part and a manifest.

    After a kill or a crash the same command resumes. Lines that are not documents (broken JSON, broken UTF-8) are
    counted, and rejects.jsonl lists their place and the reason.

    Examples:
        electra prepare articles.jsonl.zst --out DATA
        electra prepare texts/ "more/*.csv" --text-column body --tokenizer vocab.txt --out DATA
    """
    from electra.preparation.dry_run import plan_preparation
    from electra.preparation.run import prepare

    return plan_preparation(config) if config.dry_run else prepare(config)
