"""The peer of `electra prepare`: a corpus to rows of one length, as a skilled user writes it with `datasets`.

    python benchmarks/prepare_peer.py CORPUS.jsonl.zst --tokenizer vocab.txt --out FOLDER [--processes 2]

load_dataset, `map` with transformers' fast tokenizer, `map` that concatenates and cuts (like transformers'
run_mlm), and save_to_disk. It stores only the ids: masks of ones and segments of zeros would only be more to
write. It has no held-out part, no ends of sentences and documents, and no checksums. Nothing of electra is used.
"""

import argparse
import json
import os
from itertools import chain
from pathlib import Path

LENGTH = 128
Columns = dict[str, list[list[int]]]


def prepare(corpus: Path, tokenizer_file: Path, out: Path, processes: int) -> dict[str, int]:
    """The number of documents, rows and tokens that were written to `out`."""
    from datasets import load_dataset
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(str(tokenizer_file))
    tokenizer.model_max_length = 1 << 60  # else it warns of every document
    documents = load_dataset("json", data_files=str(corpus), split="train", cache_dir=str(out / "cache"))

    def tokenize(batch: dict[str, list[str]]) -> Columns:
        ids = tokenizer(batch["text"], return_attention_mask=False, return_token_type_ids=False)["input_ids"]
        return {"input_ids": ids}

    def group(batch: Columns) -> Columns:
        ids = list(chain.from_iterable(batch["input_ids"]))
        return {"input_ids": [ids[start : start + LENGTH] for start in range(0, len(ids) - LENGTH + 1, LENGTH)]}

    ids = documents.map(tokenize, batched=True, num_proc=processes, remove_columns=documents.column_names)
    rows = ids.map(group, batched=True, num_proc=processes)
    rows.save_to_disk(out / "rows")  # more processes would take longer to start than this takes
    return {"documents": len(documents), "rows": len(rows), "tokens": len(rows) * LENGTH}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a vocab.txt")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    # The processes of `map` are the parallel ones; the tokenizer's own threads would only be in their way.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["HF_HOME"] = str(options.out / "cache")
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    figures = prepare(options.corpus, options.tokenizer, options.out, options.processes)
    (options.out / "figures.json").write_text(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
