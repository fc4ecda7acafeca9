"""Text to token shards with datatrove: quality filters, exact and near deduplication, tokenizing.

    pip install 'electra[corpus]'
    electra prepare SAMPLE --out SAMPLED       # trains the tokenizer on some of the text
    python examples/clean_corpus.py TEXTS SAMPLED/tokenizer.json OUT --tasks 16
    electra data merge OUT/shards/part-*-of-00016 --out DATA

TEXTS is a folder of .jsonl files (also .gz, .zst), a document a line with its text under "text", or a URL for
fsspec (s3://bucket/texts); other formats are a matter of another reader (WarcReader, ParquetReader, ...). The work
is divided by files, so there should be as many as tasks. With --slurm PARTITION the tasks are jobs of a cluster,
and TEXTS, OUT and the tokenizer must be where all of its machines see them; without, processes of this machine.

A pipeline that was stopped is run again with the same command: tasks that are done are not done again. Copy this
file and change what is kept: text from the web wants more filters than these (languages, repetitions, addresses).
The thresholds are those of Gopher (Rae et al. 2021, appendix A1.1) and of FineWeb's MinHash (Penedo et al. 2024).
"""

import argparse
import json
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor, SlurmPipelineExecutor
from datatrove.executor.base import PipelineExecutor
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup import (
    ExactDedupConfig,
    ExactDedupFilter,
    ExactDedupSignature,
    ExactFindDedups,
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.filters import GopherQualityFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

from electra.preparation.datatrove_step import TokenShards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts")
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out")
    parser.add_argument("--tasks", type=int, default=2, help="parts that the work is divided into")
    parser.add_argument("--workers", type=int, default=-1, help="parts that are worked on at once; default: all")
    parser.add_argument("--slurm", metavar="PARTITION", help="run as jobs of Slurm")
    parser.add_argument("--language", default="en", help="the language that text is cut into words by")
    options = parser.parse_args()
    run(options)
    if not options.slurm:
        print(table(Path(options.out)))


def run(options: argparse.Namespace) -> None:
    """Launch the stages one after the other."""
    out, language = options.out, options.language
    exact = ExactDedupConfig(content_getter=lambda document: document.text)
    near = MinhashConfig()  # 5-grams of words, 14 buckets of 8 hashes: copies of .8 are found with .92
    kept, unique = f"{out}/kept", f"{out}/unique"
    stages: list[tuple[str, int, list[PipelineStep]]] = [
        ("1-quality", options.tasks, [
            JsonlReader(options.texts, glob_pattern="*.jsonl*"),
            # books are long; and punctuation is counted among the words, so prose has fewer than .8 with a letter
            # and its stop words are English ones
            GopherQualityFilter(
                max_doc_words=None, max_non_alpha_words_ratio=0.7, language=language,
                min_stop_words=2 if language == "en" else None,
            ),
            JsonlWriter(kept),
        ]),
        ("2-exact-signatures", options.tasks, [JsonlReader(kept), ExactDedupSignature(f"{out}/exact", exact)]),
        ("3-exact-copies", 1, [ExactFindDedups(f"{out}/exact", f"{out}/exact-copies", exact)]),
        ("4-exact", options.tasks, [
            JsonlReader(kept),
            ExactDedupFilter(f"{out}/exact-copies", exact),
            JsonlWriter(unique),
        ]),
        ("5-near-signatures", options.tasks, [
            JsonlReader(unique),
            MinhashDedupSignature(f"{out}/near", near, language=language),
        ]),
        ("6-near-buckets", near.num_buckets, [
            MinhashDedupBuckets(f"{out}/near", f"{out}/near-pairs", config=near),
        ]),
        ("7-near-clusters", 1, [MinhashDedupCluster(f"{out}/near-pairs", f"{out}/near-copies", near)]),
        ("8-shards", options.tasks, [
            JsonlReader(unique),
            MinhashDedupFilter(f"{out}/near-copies"),
            TokenShards(f"{out}/shards", options.tokenizer),
        ]),
    ]  # fmt: skip
    before: PipelineExecutor | None = None
    for name, tasks, pipeline in stages:
        logs = f"{out}/logs/{name}"
        if options.slurm:
            before = SlurmPipelineExecutor(
                pipeline, tasks=tasks, time="10:00:00", partition=options.slurm, job_name=name, logging_dir=logs,
                depends=before, workers=options.workers,
            )  # fmt: skip
        else:
            workers = min(tasks, options.workers) if options.workers > 0 else tasks
            before = LocalPipelineExecutor(
                pipeline, tasks=tasks, workers=workers, logging_dir=logs, start_method="spawn"
            )
            before.run()
    if options.slurm:
        before.run()  # which launches those it depends on


def table(out: Path) -> str:
    """Print how many documents each step received and removed, from datatrove's statistics."""
    lines = [f"{'stage':19} {'step':37} {'documents':>9} {'left out':>9} {'seconds':>8}"]
    for file in sorted(out.glob("logs/*/stats.json")):
        for step in json.loads(file.read_text(encoding="utf-8")):
            counts, time = step["stats"], step["time_stats"]
            documents = _sum(counts.get("total", counts.get("documents", 0)))
            seconds = time["total"] if time else 0
            name = step["name"].encode("ascii", "ignore").decode().strip(" -")  # without its pictures
            dropped = _sum(counts.get("dropped", 0))
            lines.append(f"{file.parent.name:19} {name:37} {documents:9,} {dropped:9,} {seconds:8.1f}")
    return "\n".join(lines)


def _sum(count: int | dict[str, int]) -> int:
    return count if isinstance(count, int) else count["total"]


if __name__ == "__main__":
    main()
