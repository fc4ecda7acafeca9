"""Every endpoint gives the results of its class, and an invalid request gets an error that explains it."""

import json
import logging
import math
import re
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from small_model import TEXTS, write_model
from small_server import serving
from waiting import LIMIT

import electra
from electra import errors
from electra.data import tokenizer as tokenizers
from electra.errors import CheckpointError, ConfigError, DataError
from electra.export import huggingface
from electra.export.loading import load_pretrained
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import MaskedLanguageModelHead
from electra.serving.http.hosted_model import HostedModel, hosted_name
from electra.serving.http.limits import Limits
from electra.serving.scorer import round_values
from electra.tasks.base import Problem
from electra.tasks.classification import Classification
from electra.tasks.question_answering import QuestionAnswering
from electra.tasks.tagging import Tagging

LONG = "the cat sat on the mat " * 20


def split_numbers(answer: object) -> tuple[str, list[float]]:
    """An answer without its decimal numbers, and these."""
    text, number = json.dumps(answer), r"-?\d+\.\d+(?:e-?\d+)?"
    return re.sub(number, "", text), [float(found) for found in re.findall(number, text)]


def test_scores_are_those_of_the_scorer(client: httpx.Client, run_folder: Path) -> None:
    texts = [*TEXTS, "", LONG]
    answer = client.post("/score", json={"texts": texts}).json()
    assert answer["model"] == "my-run" and answer["objective"] == "replaced-token"
    for actual, expected in zip(answer["results"], electra.Scorer(run_folder, device="cpu")(texts), strict=True):
        assert actual["tokens"] == expected.tokens
        assert [tuple(span) for span in actual["offsets"]] == expected.offsets
        assert np.allclose(actual["probabilities"], expected.probabilities, atol=2e-6)


def test_scores_say_which_tokens_are_unknown(client: httpx.Client) -> None:
    (answer,) = client.post("/score", json={"texts": ["the 좋은 cat"]}).json()["results"]
    assert answer["tokens"] == ["the", "좋은", "cat"] and answer["unknown"] == [False, True, False]


def test_marks_that_the_tokenizer_drops_divide_no_word(client: httpx.Client) -> None:
    text = "A hóme\u0301wo\u200crkish ca\u0301t\u0301"
    (answer,) = client.post("/score", json={"texts": [text]}).json()["results"]
    assert any(answer["continues"]), "the vocabulary must split the word"
    words: list[str] = []
    for token, continues in zip(answer["tokens"], answer["continues"], strict=True):
        words[-1:] = [words[-1] + token] if continues else [*words[-1:], token]
    assert words == text.split()


def test_texts_are_ranked_by_the_mean_log_probability_of_being_original(
    client: httpx.Client, run_folder: Path
) -> None:
    texts = ["", *TEXTS]
    answer = client.post("/rescore", json={"texts": texts}).json()
    means = [np.log(1 - scored.probabilities.astype(float)).mean() for scored in electra.Scorer(run_folder)(TEXTS)]
    assert answer["results"][0] == {"score": None, "sum": 0.0, "tokens": 0}
    assert math.copysign(1, answer["results"][0]["sum"]) == 1  # no -0.0
    assert [one["score"] for one in answer["results"][1:]] == pytest.approx(means, abs=1e-4)
    assert answer["order"] == [1 + number for number in np.argsort(means)[::-1]] + [0]
    assert answer["best"] == answer["order"][0]


def test_embeddings_are_those_of_the_text_encoder(client: httpx.Client, run_folder: Path) -> None:
    answer = client.post("/embed", json={"texts": TEXTS}).json()
    assert answer["dimension"] == 16
    assert np.allclose(answer["embeddings"], electra.TextEncoder(run_folder).encode(TEXTS), atol=2e-6)


def test_proposals_are_from_the_generator(client: httpx.Client, run_folder: Path) -> None:
    encoder, tokenizer = (
        (generator := load_pretrained(run_folder / "export/generator")).encoder,
        generator.tokenizer,
    )
    assert isinstance(generator.head, MaskedLanguageModelHead)
    ids = tokenizer.encode("the cat sat", add_special_tokens=False).ids
    answer = client.post("/proposals", json={"text": "the cat sat", "tokens": [0, 2], "count": 3}).json()
    assert answer["generator"] == "my-run/export/generator"
    special = tokenizers.special_tokens(tokenizer)
    for place in answer["places"]:
        masked = [special.classify, *ids, special.separate]
        masked[1 + place["token"]] = special.mask
        with torch.no_grad():
            state_D = encoder(torch.tensor([masked]))[0, 1 + place["token"]]
            logits_V = generator.head.logits(state_D, encoder.embeddings.token.weight)
        logits_V[list(special.ids)] = -torch.inf
        logits_V[tokenizers.vocabulary_size(tokenizer) :] = -torch.inf  # rows that pad the table
        best = logits_V.softmax(0).topk(3)
        assert [one["token"] for one in place["proposals"]] == [tokenizer.id_to_token(i) for i in best.indices]
        assert [one["probability"] for one in place["proposals"]] == pytest.approx(best.values.tolist(), abs=1e-5)
        assert place["probability"] == pytest.approx(float(logits_V.softmax(0)[ids[place["token"]]]), abs=1e-5)


def fine_tuned(folder: Path, problem: Problem) -> HostedModel:
    write_model(folder)
    torch.manual_seed(1)
    config = BertConfig(
        layers=1, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, max_positions=40,
        vocabulary_size=400, initializer_range=0.4, linear_initializer_range=0.4,
    )  # fmt: skip
    huggingface.save(
        folder / "tuned/model", encoder=BertEncoder(config), head=problem.build_head(config), card="",
        task=problem.to_dict(), tokenizer_json=folder / "tokenizer.json",
    )  # fmt: skip
    return HostedModel(str(folder / "tuned"), device="cpu")


def test_a_fine_tuned_model_predicts_and_refuses_other_operations(tmp_path: Path) -> None:
    hosted = fine_tuned(tmp_path / "a", Classification(("accuracy",), labels=("bad", "good")))
    expected = electra.load(tmp_path / "a/tuned").predict(TEXTS)
    with serving(hosted) as (address, _), httpx.Client(base_url=address, timeout=LIMIT) as client:
        answer = client.post("/predict", json={"texts": TEXTS}).json()
        assert answer == {"model": "tuned", "task": "classification", "predictions": answer["predictions"]}
        for actual, one in zip(answer["predictions"], expected, strict=True):
            assert actual["label"] == one["label"] and actual["scores"] == pytest.approx(one["scores"], abs=1e-5)
        first = client.post("/predict", json={"texts": TEXTS, "top": 1}).json()["predictions"]
        assert [list(one["scores"]) for one in first] == [[one["label"]] for one in expected]
        description = client.get("/models").json()["models"][0]
        assert not any("cut" in one for one in answer["predictions"])
        long = client.post("/predict", json={"texts": ["the cat", LONG]}).json()["predictions"]
        assert [one.get("cut") for one in long] == [None, True]
        assert description["can"] == ["predict", "embed"] and description["labels"] == ["bad", "good"]
        refused = client.post("/score", json={"texts": ["a"]})
        assert refused.status_code == 409 and "needs a discriminator" in refused.json()["error"]
        assert client.post("/rescore", json={"texts": ["a"]}).status_code == 409
        wrong = client.post("/predict", json={"texts": ["a", ["a", "b"]]})
        assert (
            wrong.status_code == 422 and wrong.json()["error"] == 'texts[1]: expected one text, found ["a", "b"]'
        )


def test_empty_texts_have_no_prediction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = fine_tuned(tmp_path / "a", Classification(("accuracy",), labels=("bad", "good")))
    tagger = fine_tuned(tmp_path / "b", Tagging(("NOUN", "VERB"), "none", "accuracy", "NOUN"))
    with serving(one, tagger) as (address, _), httpx.Client(base_url=address, timeout=LIMIT) as client:
        for model, text, message in [
            (1, "", "texts[1] is empty; "), (1, " \n", "texts[1] is empty; "), (2, "", "texts[1] has no words"),
            (2, ["pair", ""], "texts[1][1] is empty"),
        ]:  # fmt: skip
            refused = client.post("/predict", json={"texts": ["a cat", text], "model": model})
            assert refused.status_code == 422 and refused.json()["error"].startswith(message)
        for on_command_line in (True, False):
            monkeypatch.setattr(errors, "_command_line", on_command_line)
            tagged = client.post("/predict", json={"texts": ["a cat"], "model": 2, "top": 1})
            assert (tagged.status_code, tagged.json()["error"]) == (
                422,
                "top: is for models that give scores to labels (of kind classification, pair or multilabel); "
                "this one is of kind tagging; leave it out",
            )
        beyond = client.post("/predict", json={"texts": ["a cat"], "model": 3})
        assert (beyond.status_code, beyond.json()["error"]) == (
            404,
            "there is no model 3; this server has 2 models",
        )


def test_rounded_values_have_no_negative_zero() -> None:
    rounded = round_values(np.array([-1e-9, -0.0, -0.5, 0.25]))
    assert rounded == [0, 0, -0.5, 0.25] and [math.copysign(1, one) for one in rounded] == [1, 1, -1, 1]


def test_the_parts_of_a_text_share_its_limit(tmp_path: Path) -> None:
    hosted = fine_tuned(tmp_path / "a", Classification(("accuracy",), pair=True, labels=("bad", "good")))
    with (
        serving(hosted, limits=Limits(characters=20)) as (address, _),
        httpx.Client(base_url=address, timeout=LIMIT) as client,
    ):
        assert client.post("/predict", json={"texts": [["a cat", "a dog"]]}).status_code == 200
        refused = client.post("/predict", json={"texts": [["a", "b"], ["a" * 15, "b" * 15]]})
        assert refused.status_code == 422
        assert refused.json()["error"] == "texts[1]: the parts of a text have 31 characters together, at most 20"


def test_predictions_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    hosted = fine_tuned(tmp_path / "a", QuestionAnswering(max_question=8, stride=4))
    with serving(hosted) as (address, _), httpx.Client(base_url=address, timeout=LIMIT) as client:
        pairs = [["the cat sat", "a dog"], ["on", "my homework"]]
        both = client.post("/predict", json={"texts": pairs}).json()["predictions"]
        alone = [client.post("/predict", json={"texts": [one]}).json()["predictions"][0] for one in pairs]
    assert "id" not in both[0]
    # The last digit of a score depends on the shape of the batch.
    texts, scores = zip(*map(split_numbers, (both, alone)), strict=True)
    assert texts[0] == texts[1] and scores[0] == pytest.approx(scores[1], abs=1e-4) and len(scores[0]) > 4


def test_two_models_are_selected_by_number(hosted: HostedModel, tmp_path: Path) -> None:
    other = HostedModel(str(write_model(tmp_path / "other")), device="cpu")
    with serving(hosted, other) as (address, _), httpx.Client(base_url=address, timeout=LIMIT) as client:
        names = [client.post("/score", json={"texts": ["a"], "model": n}).json()["model"] for n in (1, 2)]
        assert names == ["my-run", "other"]
        refused = client.post("/proposals", json={"text": "a", "tokens": [0], "model": 2})
        assert refused.status_code == 409 and "generator" in refused.json()["error"]


WRONG = [
    ("/score", b"", 422, "the body is empty; send a JSON object with the fields model, texts"),
    (
        "/proposals",
        b" \n",
        422,
        "the body is empty; send a JSON object with the fields model, text, tokens, count",
    ),
    ("/score", b'{"texts": ["\\u12', 422, "Invalid JSON"),
    ("/score", b"[]", 422, "give an object with the fields model, texts"),
    ("/score", b"{}", 422, "texts: is missing"),
    ("/score", b'{"texts": []}', 422, "texts: give at least 1"),
    ("/score", b'{"texts": "a text"}', 422, "texts: must be a list"),
    ("/score", b'{"texts": ["a", 3]}', 422, "texts[1]: must be a string"),
    (
        "/score",
        b'{"texts": ["\\ud800"]}',
        422,
        "a lone surrogate (line 1 column 19 of the body), which is not Unic",
    ),
    ("/score", b'{"texts": ["a \\ud83d b"]}', 422, "the text has a lone surrogate"),
    ("/score", b'{"texts": ["\\ud83d\\n"]}', 422, "the text has a lone surrogate"),
    ("/score", b'{"texts": ["\\udc00"]}', 422, "the text has a lone surrogate"),
    (
        "/score",
        b'{"texts": ["a"], "path": "/etc/passwd"}',
        422,
        "path: unknown field; the fields are mod",
    ),
    ("/score", b'{"texts": ["a"], "model": "../x"}', 422, "model: must be an integer"),
    ("/score", b'{"texts": ["a"], "model": 2}', 404, "there is no model 2; this server has one model"),
    ("/score", json.dumps({"texts": ["a"] * 9}).encode(), 422, "texts: 9 items, at most 8; send"),
    (
        "/score",
        json.dumps({"texts": ["a" * 101]}).encode(),
        422,
        "texts[0]: 101 characters, at most 100 (--characters)",
    ),
    ("/score", b'{"texts": ["' + b"a" * 2000 + b'"]}', 413, "at most 1,000 bytes"),
    ("/score", b"[" * 900, 422, "Invalid JSON"),
    (
        "/score",
        b'{"text": "a"}',
        422,
        "the fields are model, texts; texts: is missing",
    ),
    ("/score", b'{"texts": ["a"], "model": 3}', 404, "there is no model 3; this server has one model"),
    ("/score", b'{"texts": ["a"], "model": 0}', 422, "model: must be at least 1"),
    ("/score", b'{"texts": ["a"], "model": 1.5}', 422, "model: must be an integer"),
    ("/score", b'{"texts": [1, 2, 3, 4, 5]}', 422, "texts[2]: must be a string (and 2 more)"),
    ("/predict", b'{"texts": [3]}', 422, "texts[0]: must be a string; or must be a list"),
    ("/predict", json.dumps({"texts": ["a" * 101]}).encode(), 422, "texts[0]: 101 characters, at most 100 (--ch"),
    ("/predict", b'{"texts": [[]]}', 422, "texts[0]: give at least 1"),
    (
        "/predict",
        b'{"texts": ["a", ["b", 3, 4]]}',
        422,
        "texts[1][1]: must be a string; texts[1][2]: must be a string",
    ),
    ("/proposals", b'{"text": "a dog", "tokens": [7]}', 422, "tokens: there is no token 7; the text has 2 tokens"),
    ("/proposals", b'{"text": "", "tokens": [0]}', 422, "there is no token 0"),
    ("/proposals", b'{"text": "a", "tokens": [0], "count": 51}', 422, "count: must be at most 50"),
    ("/proposals", json.dumps({"text": "a", "tokens": [0] * 65}).encode(), 422, "tokens: 65 items, at most 64"),
    ("/nothing", b"{}", 404, "POST /nothing does not exist"),
    ("/" + "x" * 1000, b"{}", 404, "does not exist; the API has GET /, /models, /health, /ready, /metrics, /open"),
    ("/../../etc/passwd", b"{}", 404, "does not exist"),
]


@pytest.fixture(scope="module")
def strict(hosted: HostedModel):  # type: ignore[no-untyped-def]
    limits = Limits(characters=100, texts=8, body=1000)
    with serving(hosted, limits=limits) as (address, _), httpx.Client(base_url=address, timeout=LIMIT) as client:
        yield client


@pytest.mark.parametrize(("path", "body", "status", "message"), WRONG)
def test_mistakes_are_explained(strict: httpx.Client, path: str, body: bytes, status: int, message: str) -> None:
    answer = strict.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert list(answer.json()) == ["error"] and message in answer.json()["error"]


def test_unknown_fields_are_reported_first_and_shortened(client: httpx.Client) -> None:
    error = client.post("/score", json={"text": "a"}).json()["error"]
    assert error.startswith("text: unknown field")
    error = client.post("/score", json={letter * 10_000: 1 for letter in "abcdefg"}).json()["error"]
    assert "c" * 200 + "…: unknown field" in error
    assert error.endswith(" (and 5 more)") and len(error) < 800


def test_a_body_without_a_length_is_limited_too(strict: httpx.Client) -> None:
    answer = strict.post("/score", content=iter([b"x" * 600] * 2), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_a_body_of_as_many_bytes_as_allowed_is_read(strict: httpx.Client) -> None:
    body = b'{"texts": ["a"]}'.ljust(1000)
    assert strict.post("/score", content=body, headers={"Content-Type": "application/json"}).status_code == 200


def test_the_content_type_must_be_json(strict: httpx.Client) -> None:
    assert strict.post("/score", content=b'{"texts": ["a"]}').status_code == 415
    plain = strict.post("/score", content=b'{"texts": ["a"]}', headers={"Content-Type": "text/plain"})
    assert plain.status_code == 415 and "Content-Type: application/json" in plain.json()["error"]
    refused = strict.get("/score")
    assert refused.status_code == 405 and "/score does not accept GET" in refused.json()["error"]
    assert strict.get("/score").json()["error"].endswith("; POST /score, /rescore, /predict, /embed, /proposals")


def test_health_readiness_and_metrics(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    client.post("/score", json={"texts": ["a", "a dog"]})
    client.post("/score", content=b"nothing")
    client.get("/somewhere/else")
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    requests = {tuple(s.labels.values()): s.value for s in families["electra_requests"].samples}
    assert requests["/score", "200"] >= 1 and requests["/score", "415"] >= 1 and requests["other", "404"] >= 1
    texts = {s.labels["work"]: s.value for s in families["electra_texts"].samples if s.name.endswith("_total")}
    assert texts["score 1"] >= 2
    assert families["process_resident_memory_bytes"].samples[0].value > 1e6
    assert families["electra_ready"].samples[0].value == 1


def test_the_page_may_run_its_own_code_only(client: httpx.Client) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff" and "server" not in answer.headers
    for foreign in ("innerHTML", "insertAdjacentHTML", "document.write", "src=", "http://", "https://"):
        assert foreign not in answer.text.replace("http://www.w3.org/2000/svg", ""), foreign


def test_the_api_needs_the_access_token(hosted: HostedModel) -> None:
    with serving(hosted, token="s3cret") as (address, _), httpx.Client(base_url=address, timeout=LIMIT) as client:
        for given in (None, b"Bearer wrong", b"Basic s3cret", b"Bearer", b"Bearer s3cre\xff", b"Bearer s3cret2"):
            headers = {} if given is None else {b"Authorization": given}
            for path in ("/models", "/metrics", "/openapi.json"):
                answer = client.get(path, headers=headers)
                assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
            assert client.post("/score", json={"texts": ["a"]}, headers=headers).status_code == 401
        for scheme in ("Bearer", "bearer"):
            right = {"Authorization": f"{scheme} s3cret"}
            assert client.post("/score", json={"texts": ["a"]}, headers=right).status_code == 200
        assert [client.get(path).status_code for path in ("/", "/health", "/ready")] == [200] * 3


def test_a_model_is_displayed_without_its_folders(tmp_path: Path) -> None:
    for folder in ("a/run/export/discriminator", "b/run/export/discriminator", "c/tuned/model"):
        (tmp_path / folder).mkdir(parents=True)
    assert hosted_name(str(tmp_path / "a/run")) == "run"
    assert hosted_name(str(tmp_path / "a/run/export/discriminator")) == "run"
    assert hosted_name(str(tmp_path / "c/tuned/model")) == "tuned"
    assert hosted_name("google/electra-small") == "google/electra-small"
    assert hosted_name(str(tmp_path / "a/run"), other=str(tmp_path / "b/run")) == "a/run"


def test_a_generator_of_another_vocabulary_is_refused(run_folder: Path, tmp_path: Path) -> None:
    other = write_model(tmp_path / "other", kind="bpe", head=MaskedLanguageModelHead)
    with pytest.raises(ConfigError, match="has another vocabulary than my-run"):
        HostedModel(str(run_folder), device="cpu", generator=str(other))
    with pytest.raises(CheckpointError, match=r"^--generator: .*predicts no masked tokens"):
        HostedModel(str(run_folder), device="cpu", generator=str(run_folder))
    (other / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"^--generator: .*tokenizer\.json"):
        HostedModel(str(run_folder), device="cpu", generator=str(other))
    with pytest.raises(CheckpointError, match="there is no folder"):
        HostedModel(str(tmp_path / "nowhere"), device="cpu")


def test_a_failure_of_the_model_is_an_error_of_the_server(
    hosted: HostedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scorer = hosted.scorer
    assert scorer is not None

    def sometimes(texts: list[str]) -> list[object]:
        if any("explode" in text for text in texts):
            raise RuntimeError("out of memory")
        return list(scorer(texts))

    monkeypatch.setattr(hosted, "operations", lambda: {"score": sometimes})
    caplog.set_level(logging.CRITICAL, "electra")
    with serving(hosted) as (address, _), httpx.Client(base_url=address, timeout=LIMIT) as client:
        answer = client.post("/score", json={"texts": ["explode"]})
        assert answer.status_code == 500 and "memory" not in answer.text
        assert client.post("/score", json={"texts": ["fine"]}).status_code == 200
        assert client.get("/health").status_code == 200
