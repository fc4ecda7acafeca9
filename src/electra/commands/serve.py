"""`electra serve`: models behind HTTP, and a page."""

import importlib.util
import ipaddress
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tyro

from electra.errors import ConfigError

logger = logging.getLogger(__name__)

TOKEN = "ELECTRA_TOKEN"
NEEDED = ("fastapi", "uvicorn", "prometheus_client")


@dataclass(frozen=True)
class ServeConfig:
    """The command line of `electra serve`."""

    model: tyro.conf.Positional[str]
    """A run, an export, a fine-tuning, an ONNX folder, or a Hugging Face folder or id."""
    second: tyro.conf.Positional[str | None] = None
    """Another one, beside which the page shows the first."""
    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 for all of the machine's."""
    port: int = 8000
    """0: any that is free."""
    generator: str | None = None
    """A masked language model that proposes other tokens; left out: a run's own, RUN/export/generator."""
    token_file: Path | None = None
    """A file with the token that clients must give (Authorization: Bearer TOKEN). Left out: the one in the
    environment variable ELECTRA_TOKEN, or none."""
    device: str | None = None
    """Such as cpu or cuda; left out: the GPU where there is one."""
    threads: int | None = None
    """Of the model, on a CPU; left out: all cores."""
    wait: float = 2.0
    """Milliseconds that an idle model waits for further requests, to compute them together."""
    characters: int = 20_000
    """Of one text, at most."""
    texts: int = 128
    """Of one request, at most."""
    body: int = 2**20
    """Bytes of one request, at most."""
    waiting: int = 256
    """Requests that wait for the model, at most; others are refused with 429."""
    seconds: float = 30.0
    """For a request to come in, and for its answer."""

    def problems(self) -> Iterator[str]:
        if not 0 <= self.port < 2**16:
            yield f"--port: must be from 0 to 65535, got {self.port}"
        for name in ("characters", "texts", "body", "waiting", "seconds", "threads"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                yield f"--{name}: must be above 0, got {value}"
        if not 0 <= self.wait <= 1000:
            yield f"--wait: must be from 0 to 1000 milliseconds, got {self.wait}"


def run(config: ServeConfig) -> None:
    """Serve a model by HTTP, with a page at / that shows how replaced each token of a text looks.

    Requests that come together are computed together. Ctrl-C or SIGTERM: what was taken is answered, then it ends.

    Examples:
        electra serve RUN
        electra serve RUN OTHER --host 0.0.0.0 --port 80 --token-file token.txt
    """
    import torch

    if problems := list(config.problems()):
        raise ConfigError("\n".join(problems))
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise ConfigError(
            f"electra serve needs {', '.join(missing)}; install the extra: pip install 'electra[serve]'"
        )
    token = _token(config.token_file)
    from electra.serving.http import process
    from electra.serving.http.app import ModelServer
    from electra.serving.http.hosted_model import HostedModel
    from electra.serving.http.limits import Limits

    listening = process.bind_socket(config.host, config.port)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    models = [HostedModel(config.model, device=config.device, generator=config.generator, beside=config.second)]
    if config.second is not None:
        models.append(HostedModel(config.second, device=config.device, beside=config.model))
    limits = Limits(config.characters, config.texts, config.body, config.waiting, config.seconds)
    server = ModelServer(models, limits=limits, token=token, wait=config.wait / 1000)
    for served in models:
        logger.info("%s: %s", served.name, ", ".join(served.facts()["can"]))
    host, port = listening.getsockname()[:2]
    if token is None and not _is_local(host):
        logger.warning("whoever reaches %s may use the model; give --token-file to ask for a token", host)
    process.start_listening(listening)  # before it is said
    logger.info("serving on http://%s:%s", f"[{host}]" if ":" in host else host, port)
    process.serve(server, listening)


def _token(path: Path | None) -> str | None:
    """The token that clients must give.

    Raises:
        ConfigError: the file cannot be read, or the token is empty or has blanks in it.
    """
    if path is None:
        token, source = os.environ.get(TOKEN), TOKEN
    else:
        source = str(path)
        try:
            token = path.read_text(encoding="utf-8").strip()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(f"--token-file {path}: it cannot be read: {reason}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"--token-file {path}: it is no text") from error
    if token == "":
        raise ConfigError(f"{source}: it is empty; write a token into it, one word that clients are to give")
    if token is not None and (not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError(f"{source}: a token is one word of ASCII letters, digits and signs")
    return token


def _is_local(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback
