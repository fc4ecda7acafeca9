"""A served ONNX folder gives the results of the run that it was exported from."""

import dataclasses
from pathlib import Path

import httpx
import numpy as np
import pytest
from small_model import TEXTS
from small_server import HEADS, serving
from waiting import LIMIT

from electra.errors import CheckpointError
from electra.export.loading import load_pretrained
from electra.export.onnx.write import save_onnx
from electra.serving.http.hosted_model import HostedModel, hosted_name
from electra.tasks.classification import Classification
from electra.tasks.task_model import TaskModel

for package in ("onnx", "onnxruntime"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def onnx_folder(run_folder: Path) -> Path:
    """ONNX exports of both networks, inside the folder of the run."""
    for name in HEADS:
        save_onnx(load_pretrained(run_folder / "export" / name), run_folder / "export/onnx" / name)
    return run_folder / "export/onnx"


def test_results_are_those_of_the_run(onnx_folder: Path, hosted: HostedModel) -> None:
    texts = [*TEXTS, "", "the cat sat on the mat " * 20]
    with (
        serving(HostedModel(str(onnx_folder)), hosted) as (address, _),
        httpx.Client(base_url=address, timeout=LIMIT) as client,
    ):
        first, second = client.get("/models").json()["models"]
        assert first["name"] == "my-run/export/onnx" and first["generator"] == "my-run/export/onnx/generator"
        assert first["can"] == second["can"] == ["score", "rescore", "embed", "proposals"]
        for path, body in {
            "/score": {"texts": texts},
            "/rescore": {"texts": texts},
            "/embed": {"texts": texts},
            "/proposals": {"text": "the cat sat", "tokens": [0, 2]},
        }.items():
            ours, theirs = (client.post(path, json={**body, "model": number}).json() for number in (1, 2))
            assert numbers(ours) and len(numbers(ours)) == len(numbers(theirs))
            assert np.allclose(numbers(ours), numbers(theirs), atol=1e-4)
        assert [len(place["proposals"]) for place in ours["places"]] == [5, 5]


def numbers(answer: object) -> list[float]:
    """All numbers of a response, in order."""
    if isinstance(answer, dict | list):
        values = answer.values() if isinstance(answer, dict) else answer
        return [number for value in values for number in numbers(value)]
    return [float(answer)] if isinstance(answer, int | float) else []


def test_outputs_that_the_graph_lacks_are_refused(run_folder: Path, tmp_path: Path) -> None:
    whole = load_pretrained(run_folder)
    problem = Classification(("accuracy",), labels=("bad", "good"))
    head = TaskModel(whole.encoder, problem).head.eval()
    save_onnx(dataclasses.replace(whole, task=problem.to_dict(), head=head), tmp_path / "tuned/onnx")
    with (
        serving(HostedModel(str(tmp_path / "tuned/onnx"))) as (address, _),
        httpx.Client(base_url=address, timeout=LIMIT) as client,
    ):
        assert client.get("/models").json()["models"][0]["can"] == ["predict"]
        assert len(client.post("/predict", json={"texts": TEXTS}).json()["predictions"]) == len(TEXTS)
        refused = client.post("/embed", json={"texts": TEXTS})
        assert refused.status_code == 409 and "--part encoder" in refused.json()["error"]


def test_another_device_is_refused(onnx_folder: Path) -> None:
    with pytest.raises(CheckpointError, match="runs on the CPU only, not on cuda"):
        HostedModel(str(onnx_folder), device="cuda")


def test_its_name_differs_from_that_of_its_run(tmp_path: Path) -> None:
    for name in ("run/export/onnx-int8/discriminator", "tuned/onnx", "elsewhere/encoder"):
        (tmp_path / name).mkdir(parents=True)
    assert hosted_name(str(tmp_path / "run/export/onnx-int8/discriminator")) == "run/export/onnx-int8"
    assert hosted_name(str(tmp_path / "tuned/onnx")) == "tuned/onnx"
    assert hosted_name(str(tmp_path / "elsewhere/encoder")) == "elsewhere"
