"""A model card agrees with the files of the run, and the code in it runs."""

import importlib.util
import re
import warnings
from pathlib import Path

import pytest

from electra.config import read_toml
from electra.export import huggingface
from electra.export.model_card import model_card

PROGRESS = {"step": 1200, "tokens": 9_830_400, "flops": 1.5e14, "seconds": 421.0}
EVALUATION = {
    "step": 1100,
    "eval/discriminator_auc": 0.7412,
    "eval/unigram_auc": 0.8213,
    "eval/masked_lm_accuracy": 0.361,
    "eval/generator_entropy": None,
    "eval/something_new": 0.5,
}
ENVIRONMENT = {
    "processor": "AVX2",
    "data": {
        "statistics": {
            "documents": 53_617, "characters": 150_000_000, "tokens": 34_000_000,
            "characters_per_token": 4.41, "unknown_share": 0.0012,
        },
        "tokenizer": {"kind": "wordpiece", "vocabulary_size": 30_522, "lowercase": True},
        "made": {"options": {"sources": [
            {"name": "/home/somebody/private/articles.jsonl.zst", "bytes": 9, "column": "text"},
            {"name": "hub:some/data", "bytes": 0, "column": "text"},
        ]}},
    },
}  # fmt: skip


def card(kind: str = "discriminator", **changes: object) -> str:
    config = read_toml("electra-tiny")
    config["model"]["vocabulary_size"] = 30_522
    config |= {"data": "/home/somebody/private/data", "out": "/home/somebody/private/run"}
    inputs = {
        "config": config, "trained_length": 128, "progress": PROGRESS, "evaluation": EVALUATION,
        "environment": ENVIRONMENT,
    }  # fmt: skip
    return model_card(kind, **{**inputs, **changes})  # type: ignore[arg-type]


def test_the_card_says_how_long_inputs_may_be() -> None:
    assert "up to 128 tokens, special tokens included.\nDo not give it longer ones.\n" in card()
    config = read_toml("modern-tiny")
    config["model"]["vocabulary_size"] = 30_522
    assert "It reads up to 8192, but was not trained on such long inputs" in card(config=config)


@pytest.mark.parametrize("source", ["from", "discriminator"])
def test_the_card_of_a_continued_network_says_how_long_the_inputs_of_each_training_were(source: str) -> None:
    def sentence(preset: str, rows: int, trained_length: int) -> str:
        config = read_toml(preset)
        config["model"]["vocabulary_size"] = 30_522
        config["packing"]["sequence_length"] = rows
        config["init"][source] = "first"
        return card(config=config, trained_length=trained_length)

    earlier = "used inputs of up to 128 tokens, special tokens included; an earlier one used up to 512."
    assert f"This training {earlier}\nDo not give it longer ones." in sentence("electra-tiny", 128, 512)
    assert f"This training {earlier}\nIt reads up to 8192, but was not" in sentence("modern-tiny", 128, 512)
    longer = sentence("electra-tiny", 512, 512)
    assert "Training used inputs of up to 512 tokens, special tokens included.\nDo not give it longer" in longer


def test_the_card_describes_the_run() -> None:
    text = card()
    assert "| layers | 4 | 4 |" in text and "| vocabulary | 30,522 | 30,522 |" in text
    assert "| hidden size | 128 | 64 |" in text
    assert "1,200 steps of 64 rows of 128 tokens: 9,830,400 tokens, 1.50e+14 floating-point" in text
    assert "7.0 minutes" in text and "on AVX2" in text
    assert "53,617 documents, 150,000,000 characters, 34,000,000 tokens." in text
    assert "wordpiece, 30,522 entries, lowercased, 4.41 characters a token, 0.12% unknown" in text
    assert "at step 1,100 (the weights are from step 1,200):" in text
    assert "| AUC on replaced tokens | 0.7412 |" in text
    assert "| masked-LM entropy (nats) | – |" in text and "| something new | 0.5000 |" in text
    assert "discriminator_weight = 1.0" in text and "up to 128 tokens" in text
    assert "learned almost nothing" not in text
    assert "{{" not in text and "{%" not in text


def test_no_path_of_the_machine_is_named() -> None:
    for kind in ("discriminator", "generator", "run"):
        assert "somebody" not in card(kind)
    assert "`articles.jsonl.zst`, `hub:some/data`" in card()


def test_an_auc_near_chance_is_a_warning() -> None:
    assert "learned almost nothing yet**: an AUC of 0.532" in card(evaluation={"eval/discriminator_auc": 0.532})


def test_metrics_of_random_weights_are_left_out() -> None:
    text = card(evaluation={"step": 0, "eval/discriminator_auc": 0.5})
    assert "None were measured since training began." in text
    assert "learned almost nothing" not in text and "model-index" not in text
    assert "None" not in card(evaluation={"step": 1200, "eval/discriminator_auc": 0.7}).partition("Held-out")[2]


def test_the_hub_reads_the_front_matter() -> None:
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard(card("generator")).data
    assert data.library_name == "transformers" and data.pipeline_tag == "fill-mask" and "electra" in data.tags
    assert hub.ModelCard(card()).data.pipeline_tag is None
    assert data.datasets == ["some/data"] and data.license is None and "\n# license: " in card()


def test_the_hub_shows_the_metrics_of_the_network() -> None:
    hub = pytest.importorskip("huggingface_hub")

    def eval_results(kind: str) -> list[tuple[str, str, float, str, str]]:
        results = hub.ModelCard(card(kind)).data.eval_results
        return [(r.task_type, r.metric_type, r.metric_value, r.dataset_type, r.dataset_name) for r in results]

    dataset = ("articles", "held-out documents of articles.jsonl.zst and 1 more")
    assert eval_results("discriminator") == eval_results("run") == [("other", "roc_auc", 0.7412, *dataset)]
    assert eval_results("generator") == [("fill-mask", "accuracy", 0.361, *dataset)]
    bare = hub.ModelCard(card(evaluation={"eval/discriminator_auc": None})).data
    assert bare.eval_results is None and "model-index" not in card(evaluation={})


def test_a_continued_model_of_the_hub_is_the_base_model() -> None:
    hub = pytest.importorskip("huggingface_hub")
    config = read_toml("electra-tiny")
    for start, base in (("somebody/a-model", "somebody/a-model"), ("/home/somebody/a-model", None)):
        config["init"]["discriminator"] = start
        assert hub.ModelCard(card(config=config)).data.base_model == base


def test_a_run_that_is_continued_is_no_base_model() -> None:
    hub = pytest.importorskip("huggingface_hub")
    config = read_toml("electra-tiny")
    config["init"]["from"] = "private/first"  # not in the folder where the card is written
    text = card(config=config)
    assert hub.ModelCard(text).data.base_model is None
    assert "Continued from `first`." in text and 'from = "first"' in text and "private" not in text


def test_it_names_the_uses_of_each_network() -> None:
    assert "slips and errors" in card() and "To be fine-tuned" in card("run")
    assert "Do not fine-tune it" in card("generator") and "slips" not in card("generator")


def test_a_run_without_metadata_has_a_card() -> None:
    text = model_card("run", config={}, trained_length=512, progress={}, evaluation={}, environment={})
    assert "None were measured." in text and "Not described." in text


def test_the_code_runs_in_each_folder(network, tokenizer_json, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("transformers")
    folders = {"run": tmp_path}
    for kind in ("discriminator", "generator"):
        folders[kind] = tmp_path / "export" / kind
        encoder, head = network(kind)
        huggingface.save(
            folders[kind],
            encoder=encoder,
            head=head,
            tokenizer_json=tokenizer_json,
            card=card(kind),
            max_length=24,
        )
    for kind, folder in folders.items():
        monkeypatch.chdir(folder)
        text = card("run") if kind == "run" else Path("README.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        assert len(blocks) == 5
        names: dict[str, object] = {}
        for block in blocks:
            if "sentence_transformers" not in block or importlib.util.find_spec("sentence_transformers"):
                with warnings.catch_warnings():  # of those libraries
                    warnings.simplefilter("ignore")
                    exec(block, names)
        assert names["states"].shape[2] == 32  # type: ignore[attr-defined]
        assert len(names["scored"].tokens) > 5  # type: ignore[attr-defined]
        assert type(names["generator"]).__name__ == "ElectraForMaskedLM"


def test_a_discriminator_that_fills_masks_names_its_other_folder() -> None:
    config = read_toml("modern-tiny")
    config["model"]["vocabulary_size"] = 30_522
    config["objective"] |= {"fakes": "unigram", "keep_masked_share": 0.5, "correction_weight": 1.0}
    text, other = card("discriminator", config=config), card("encoder", config=config)
    assert "The same network as a masked language model was exported to `../encoder`." in text
    assert 'pipeline("fill-mask", model="../encoder")' in text and "enerator" not in text.partition("<details>")[0]
    assert "*sampled*" in text and "pipeline_tag: fill-mask" not in text
    assert "# ELECTRA discriminator as a masked language model" in other and "pipeline_tag: fill-mask" in other
    assert "The network of the discriminator in `../discriminator` with another head" in other
    assert 'pipeline("fill-mask", model=".")' in other and "*sampled*" not in other
    assert "To fine-tune, take the discriminator in `../discriminator`" in other and "small" not in other
    assert "enerator" not in other.partition("<details>")[0] and "{%" not in other


@pytest.mark.parametrize("objective", ["masked-lm", "electric"])
def test_other_objectives_have_their_own_descriptions(objective: str) -> None:
    config = read_toml("electra-tiny")
    config["objective"]["kind"] = objective
    config["init"]["discriminator"] = "somebody/a-model" if objective == "electric" else "/home/somebody/a-model"
    for kind in ("encoder" if objective == "masked-lm" else "discriminator", "run"):
        text = card(kind, config=config)
        assert "somebody/a-model" in text if objective == "electric" else "/home" not in text
        assert "Continued from" in text and "{{" not in text and "{%" not in text
        if objective == "masked-lm":
            assert text.startswith("---\nlibrary_name: transformers\npipeline_tag: fill-mask\n")
            assert "- bert\n" in text and "iscriminator" not in text.partition("<details>")[0].replace(
                "for the discriminator", ""
            )
            assert "import BertForMaskedLM" in text and "electra score" not in text
        else:
            assert "model-index" not in text and "rescoring" in text
            assert "electra score" in text and "--electric" in text and "pipeline_tag" not in text
            assert "ElectraForMaskedLM" not in text


@pytest.mark.parametrize("preset", ["continue", "continue-masked-lm", "electra-tiny"])
def test_the_card_of_averaged_weights_has_nothing_that_was_measured_with_the_trained_ones(preset: str) -> None:
    config = read_toml(preset)
    config["model"]["vocabulary_size"] = 30_522
    config["init"] |= {"discriminator": "first", "average": 0.25}
    text, main = card("averaged", config=config), "encoder" if "masked-lm" in preset else "discriminator"
    assert re.findall("^#+ .*", text, re.MULTILINE)[3:6] == [
        "# Text encoder with averaged weights", "## Averaged weights", "## Use",
    ]  # fmt: skip
    assert "0.25 × those of the network that it was continued from, plus 0.75 × the\ntrained ones" in text
    assert f"For anything else take `../{main}`" in text and "pipeline_tag" not in text
    for other in (
        "model-index",
        "Held-out metrics",
        "0.7412",
        "metrics above",
        "score",
        "fill-mask",
        "It was trained on",
    ):
        assert other not in text.partition("```toml")[0] + text.partition("</details>")[2], other
    assert text.count('from_pretrained(".")') == 2 and "\n\n\n" not in text
    trained = card(main, config=config)
    assert "model-index" in trained and "## Held-out metrics" in trained


def test_the_losses_are_those_of_the_run() -> None:
    def sentences(preset: str, **objective: object) -> str:
        config = read_toml(preset)
        config["objective"] |= objective
        return card(config=config).partition("are predicted.\n")[2].partition("\n<details>")[0].strip()

    restoring = "Weight of the discriminator's loss 2.0, of the loss for restoring the original tokens 0.5."
    assert sentences("continue", discriminator_weight=2.0, correction_weight=0.5) == restoring
    shared = "Shared by the networks: embeddings."
    assert sentences("electra-tiny", correction_weight=0.5, discriminator_weight=2.0) == f"{restoring} {shared}"
    assert sentences("electra-tiny") == f"Weight of the discriminator's loss 1.0. {shared}"
    assert sentences("electra-tiny", fakes="unigram") == sentences("continue-masked-lm") == ""


def test_the_warm_up_is_described() -> None:
    tenth = "Peak learning rate 0.0001; warm-up over the first tenth of the run (at most 10,000 steps).\n"
    assert tenth in card(config=read_toml("continue"))
    assert "0.001; 100 steps of warm-up.\n15% of the tokens are" in card()
    config = read_toml("electra-tiny")
    config["optimizer"] |= {"warmup_steps": 0, "max_warmup_steps": 1}
    assert "of the run (at most 1 step).\n" in card(config=config)
    config["optimizer"]["warmup_steps"] = 150
    assert "Peak learning rate 0.001; 150 steps of warm-up.\n" in card(config=config)
    config["optimizer"]["steps_before"] = 20_000
    assert "0.001; the learning-rate schedule is that of a run after 20,000 steps.\n" in card(config=config)


@pytest.mark.parametrize("half", [False, True])
def test_there_is_a_blank_line_below_the_table(half: bool) -> None:
    for text in (card(half=half), card(config=read_toml("continue-masked-lm"), half=half)):
        table = text.partition("| vocabulary |")[2].partition("## Use")[0]
        assert table.count("\n\n") == 1 + half and ("float16" in table) == half and "\n\n\n" not in text


def test_a_language_model_is_described_as_one() -> None:
    config = read_toml("txl-tiny")
    text = card("encoder", config=config, evaluation={})
    assert "# Left-to-right language model" in text and "import XLNetLMHeadModel" in text
    assert "- causal-language-modeling" in text and "Weight of" not in text
