"""Started by torchrun: the command, to which any text is a large one, and whose leader packs slowly."""

import sys
import time
from typing import Any

from electra.cli import main
from electra.pretraining import build

write_index = build.write_index


def slowly(*arguments: Any, **options: Any) -> None:
    time.sleep(1)
    write_index(*arguments, **options)


build.INDEX_TOKENS = 1
build.write_index = slowly  # type: ignore[attr-defined]
sys.exit(main(sys.argv[1:]))
