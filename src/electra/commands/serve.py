"""`electra serve`: an HTTP API and a web page for one or two models."""

import ipaddress
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from electra.config import PositiveFloat, PositiveInt, Range
from electra.errors import in_option, require
from electra.serving.http.host_names import NAME, HostNames

logger = logging.getLogger(__name__)

TOKEN_CHARACTERS = 6
"""Characters of a token, generously counted: words of English text have five, and a space."""


@dataclass(frozen=True)
class ServeConfig:
    """The command line of `electra serve`."""

    model: tyro.conf.Positional[str]
    """A run, an export folder, the output of a fine-tuning, an ONNX folder, a Hugging Face folder or id, or the
    included model wiki-tiny."""
    second: tyro.conf.Positional[str | None] = None
    """A second model, which the page shows next to the first."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all addresses of the machine."""
    port: Annotated[int, Range(ge=0, le=65535)] = 8000
    """Port to listen on; 0 for any free port."""
    allowed_host: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME")] = ()
    """A further name by which clients reach the server, such as models.example.org; can be repeated. Requests for
    names other than these, localhost and the address of --host get the status 421; * allows all names."""
    generator: str | None = None
    """Masked language model that proposes other tokens. Default: the generator of the run,
    RUN/export/generator."""
    token_file: Path | None = None
    """File with the access token that clients must send (Authorization: Bearer TOKEN). Default: the environment
    variable ELECTRA_TOKEN; if it is not set, no token is needed."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    threads: PositiveInt | None = None
    """CPU threads of the models. Default: one per core."""
    wait: Annotated[float, Range(ge=0, le=1000)] = 2.0
    """Milliseconds that an idle model waits for further requests, to compute them together."""
    max_length: PositiveInt | None = None
    """Maximum number of tokens that are read at once; a longer text is read in parts, or cut by a model for a
    task. Default: as many as the model can read, or as in the fine-tuning."""
    characters: PositiveInt | None = None
    """Maximum number of characters of one text. Default: 20,000, or 6 for each token that the first model reads at
    once if that is more."""
    texts: PositiveInt = 128
    """Maximum number of texts in one request."""
    body: PositiveInt = 2**20
    """Maximum size of one request, in bytes."""
    waiting: PositiveInt = 256
    """Maximum number of requests in the queue; further requests get the status 429."""
    seconds: PositiveFloat = 30.0
    """Time limit for a request to arrive, and again for its response."""

    def problems(self) -> Iterator[str]:
        for name in self.allowed_host:
            if name != "*" and not NAME.fullmatch(name):
                yield f"--allowed-host: must be a host name without http:// and port, got {name!r}"


def run(config: ServeConfig) -> None:
    """Serve models over HTTP, with a web page at / that shows which tokens of a text look replaced.

    Requests that arrive at the same time are computed together. Ctrl-C or SIGTERM stops the server after the
    accepted requests have their response.

    Examples:
        electra serve RUN
        electra serve RUN OTHER --host 0.0.0.0 --port 80 --token-file token.txt
    """
    require("electra serve", "serve", "fastapi", "uvicorn", "prometheus_client")
    import torch

    from electra.export.loading import find_model
    from electra.modeling.device import resolve_device
    from electra.serving.http import process
    from electra.serving.http.app import ModelServer
    from electra.serving.http.hosted_model import HostedModel
    from electra.serving.http.limits import Limits

    if config.generator is not None:
        with in_option("--generator"):
            find_model(config.generator)
    resolve_device(config.device)  # before the port is taken
    token = process.load_token(config.token_file)
    bound = process.bind_socket(config.host, config.port)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    host, port = bound.getsockname()[:2]
    is_local = ipaddress.ip_address(host).is_loopback
    shows_dev = is_local or token is not None
    host_model = partial(HostedModel, device=config.device, max_length=config.max_length, shows_dev=shows_dev)
    models = [host_model(config.model, generator=config.generator, other=config.second)]
    if config.second is not None:
        models.append(host_model(config.second, other=config.model))
    characters = config.characters or max(Limits.characters, TOKEN_CHARACTERS * models[0].max_length)
    limits = Limits(characters, config.texts, config.body, config.waiting, config.seconds)
    names = HostNames(config.host, config.allowed_host)
    server = ModelServer(models, limits=limits, names=names, token=token, wait=config.wait / 1000)
    for model in models:
        logger.info("%s: %s", model.name, ", ".join(model.describe()["can"]))
        if model.dev_inputs:
            logger.info(
                "%s: the page shows short texts of its dev part; serve its folder model/ to show none", model.name
            )
    if not is_local:
        if token is None:
            logger.warning(
                "anyone who can reach %s can use the model; give --token-file to require an access token", host
            )
        if "*" not in config.allowed_host:
            known = ", ".join(("localhost", *config.allowed_host))
            logger.info("clients call it by an address or as %s; --allowed-host NAME adds a name", known)
    process.start_listening(bound)  # before the line below, so that clients can connect when they read it
    logger.info("serving on http://%s:%s", f"[{host}]" if ":" in host else host, port)
    process.serve(server, bound)
