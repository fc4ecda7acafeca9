"""The peer of benchmarks/serve.py: a server as users write it with FastAPI and transformers, one text at a time.

    python benchmarks/serve_peer.py FOLDER PORT [--threads 2]

Its response to POST /score is that of `electra serve`: tokens, offsets, probabilities. The endpoint is a plain
function, which FastAPI runs in its thread pool. A lock lets one thread at a time use the network, because
several are slower on a CPU. Nothing of electra is used.
"""

import argparse
import threading

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoTokenizer, ElectraForPreTraining

LONGEST = 512


class Texts(BaseModel):
    texts: list[str]


class Scored(BaseModel):
    tokens: list[str]
    offsets: list[tuple[int, int]]
    probabilities: list[float]


class Scores(BaseModel):
    results: list[Scored]


def application(folder: str) -> FastAPI:
    app = FastAPI()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = ElectraForPreTraining.from_pretrained(folder, attn_implementation="sdpa").eval()
    lock = threading.Lock()

    @app.post("/score")
    def score(request: Texts) -> Scores:
        results = []
        for text in request.texts:
            inputs = tokenizer(
                text, return_offsets_mapping=True, truncation=True, max_length=LONGEST, return_tensors="pt"
            )
            offsets = inputs.pop("offset_mapping")[0, 1:-1].tolist()
            with lock, torch.inference_mode():
                probabilities = model(**inputs).logits[0, 1:-1].sigmoid().tolist()
            tokens = [text[start:end] for start, end in offsets]
            results.append(Scored(tokens=tokens, offsets=offsets, probabilities=probabilities))
        return Scores(results=results)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("port", type=int)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    uvicorn.run(application(options.folder), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
