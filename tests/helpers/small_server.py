"""A small run with both networks, and a server of it on a free port."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from small_model import LENGTH, TEXTS
from waiting import LIMIT, until

from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.preparation.tokenizer_training import train_tokenizer
from electra.serving.http import process
from electra.serving.http.app import ModelServer
from electra.serving.http.hosted_model import HostedModel
from electra.serving.http.limits import Limits

HEADS = {"discriminator": ReplacedTokenHead, "generator": MaskedLanguageModelHead}


def write_run(folder: Path, *, seed: int = 0) -> Path:
    """Write the exports of a run, with random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    train_tokenizer(TEXTS * 5, vocabulary_size=150).save(str(folder / "tokenizer.json"))
    torch.manual_seed(seed)
    config = BertConfig(
        layers=2, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, max_positions=40,
        vocabulary_size=150, initializer_range=0.4, linear_initializer_range=0.4,
    )  # fmt: skip
    for name, head in HEADS.items():
        huggingface.save(
            folder / "export" / name, encoder=BertEncoder(config), head=head(config), card="", max_length=LENGTH,
            tokenizer_json=folder / "tokenizer.json",
        )  # fmt: skip
    return folder


@contextlib.contextmanager
def serving(*models: HostedModel, **settings: Any) -> Iterator[tuple[str, process.GracefulServer]]:
    """The address of a server that runs until the end of the block, and the server."""
    server = ModelServer(models, **{"limits": Limits(seconds=LIMIT), **settings})
    bound = process.bind_socket("127.0.0.1", 0)
    host, port = bound.getsockname()[:2]
    uvicorn_server = process.build_uvicorn_server(server)
    thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        until(lambda: uvicorn_server.started)
        yield f"http://{host}:{port}", uvicorn_server
    finally:
        server.drain()
        thread.join(LIMIT)
        assert not thread.is_alive(), "the server does not stop"
