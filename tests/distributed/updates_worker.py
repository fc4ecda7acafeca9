"""Started by torchrun: what two processes tell each other, and updates of every objective, written to a folder."""

import json
import sys
from pathlib import Path

from safetensors.torch import save_file

from electra.training import distributed

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from contract import KINDS
from updates import updated


def main(out: Path) -> None:
    with distributed.init_distributed(minutes=10):
        rank = distributed.rank()
        agreement = distributed.AgreedMaximum()
        facts = {
            "rank": rank,
            "size": distributed.world_size(),
            "told": distributed.broadcast_object({"from": rank, "length": None, "text": "ü"}),
            "patient": distributed.run_and_wait((lambda: "done") if rank == 1 else None),
            "agreed": [agreement(15 if (call, rank) == (2, 1) else 0) for call in range(5)],
        }
        (out / f"facts-{rank}.json").write_text(json.dumps(facts))
        for name in KINDS:
            for sharded in (False, True):
                weights, figures = updated(name, rank=rank, world=2, sharded=sharded)
                file = f"{name}-{'sharded' if sharded else 'whole'}-{rank}"
                save_file(weights, out / f"{file}.safetensors")
                (out / f"{file}.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
