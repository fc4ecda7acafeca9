"""The peer of fine-tuning: transformers' Trainer with transformers' classes, on the same rows.

The rows (ids, segments, targets) are those of our fine-tuning, so tokenizer and windows are the same. The
classes, the loop and the padding differ: `padded` to the maximum length, as in the example scripts of
transformers; `dynamic` to the longest row of each batch; or `grouped`, which also puts rows of similar length
together (`group_by_length`).
"""

from __future__ import annotations

import tempfile
import time
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

from electra.tasks.base import IGNORE_INDEX, Problem, Rows
from electra.tasks.base import collate as collate_rows

Padding = Literal["padded", "dynamic", "grouped"]


class RowData(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Rows as the Trainer expects them: dictionaries of lists."""

    def __init__(self, rows: Rows, problem: Problem) -> None:
        self.rows, self.problem = rows, problem

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        rows = self.rows
        begin, end = int(rows.starts[number]), int(rows.starts[number + 1])
        second = int(rows.seconds[number])
        item: dict[str, Any] = {
            "input_ids": rows.ids[begin:end].tolist(),
            "token_type_ids": [0] * second + [1] * (end - begin - second),
        }
        if self.problem.is_extractive:
            item |= {
                "start_positions": rows.targets["start"][number],
                "end_positions": rows.targets["end"][number],
            }
        elif self.problem.reads_words:
            item["labels"] = rows.token_targets["labels"][begin:end].tolist()
        else:
            item["labels"] = rows.targets["answer"][number]
        return item


def collator(length: int | None) -> Any:
    """Pads to the longest row, or to `length`."""

    def collate(items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        width = length or max(len(item["input_ids"]) for item in items)
        fill = {"input_ids": 0, "token_type_ids": 0, "labels": IGNORE_INDEX}
        batch: dict[str, torch.Tensor] = {}
        for name in items[0]:
            values = [item[name] for item in items]
            if isinstance(values[0], list):
                values = [value + [fill[name]] * (width - len(value)) for value in values]
            batch[name] = torch.from_numpy(np.array(values))
        lengths = torch.tensor([len(item["input_ids"]) for item in items])
        batch["attention_mask"] = (torch.arange(width) < lengths[:, None]).long()
        return batch

    return collate


def network(model: str, problem: Problem, outputs: int) -> Any:
    if problem.is_extractive:
        return AutoModelForQuestionAnswering.from_pretrained(model)
    if problem.reads_words:
        return AutoModelForTokenClassification.from_pretrained(model, num_labels=outputs)
    return AutoModelForSequenceClassification.from_pretrained(
        model, num_labels=outputs, problem_type=problem.problem_type
    )


def train(
    model: str,
    problem: Problem,
    rows: dict[str, Rows],
    *,
    outputs: int,
    padding: Padding,
    max_length: int,
    seed: int,
    settings: dict[str, Any],
    max_steps: int = -1,
) -> tuple[float, int, list[dict[str, NDArray[Any]]] | None]:
    """Seconds of training, its steps, and the outputs on dev as `Problem.decode` takes them.

    Args:
        settings: learning_rate, batch_size, epochs, warmup_share, weight_decay, epsilon, gradient_clip,
            bfloat16.
        max_steps: take only this number of steps, and return no outputs.
    """
    set_seed(seed)
    net = network(model, problem, outputs)
    steps = max(1, int(np.ceil(len(rows["train"]) / settings["batch_size"]))) * settings["epochs"]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            learning_rate=settings["learning_rate"],
            per_device_train_batch_size=settings["batch_size"],
            per_device_eval_batch_size=64,
            num_train_epochs=settings["epochs"],
            warmup_steps=round(settings["warmup_share"] * steps),
            weight_decay=settings["weight_decay"],
            adam_epsilon=settings["epsilon"],
            max_grad_norm=settings["gradient_clip"],
            lr_scheduler_type="linear",
            train_sampling_strategy="group_by_length" if padding == "grouped" else "random",
            max_steps=max_steps,
            seed=seed,
            bf16=settings["bfloat16"],
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            use_cpu=not torch.cuda.is_available(),
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        )
        trainer = Trainer(
            net,
            arguments,
            train_dataset=RowData(rows["train"], problem),
            data_collator=collator(max_length if padding == "padded" else None),
        )
        start = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - start
        taken = trainer.state.global_step
    return seconds, taken, None if max_steps > 0 else dev_outputs(net, problem, rows["dev"])


@torch.inference_mode()
def dev_outputs(net: Any, problem: Problem, rows: Rows) -> list[dict[str, NDArray[Any]]]:
    """The outputs of the trained network on dev; answers are decoded from its logits as ours are."""
    net.eval()
    data, collate = RowData(rows, problem), collator(None)
    order = np.argsort(-rows.lengths, kind="stable")
    found: list[dict[str, NDArray[Any]]] = [{}] * len(rows)
    for begin in range(0, len(order), 32):
        chosen = order[begin : begin + 32].tolist()
        batch = collate([data[number] for number in chosen])
        labels = [name for name in batch if name in ("labels", "start_positions", "end_positions")]
        for name in labels:
            batch.pop(name)
        if problem.is_extractive:
            x_BLD = net.base_model(**batch).last_hidden_state
            whole = collate_rows(rows, np.array(chosen), pad=0)
            outputs = problem.outputs(problem.logits(net.qa_outputs, x_BLD, whole), whole)
        elif problem.reads_words:
            outputs = {"probabilities": net(**batch).logits.softmax(-1)}
        else:
            outputs = {"logits": net(**batch).logits}
        arrays = {name: values.float().numpy() for name, values in outputs.items()}
        for place, number in enumerate(chosen):
            found[number] = {name: values[place] for name, values in arrays.items()}
    return found
