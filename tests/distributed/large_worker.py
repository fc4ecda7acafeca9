"""Started by torchrun: the command, for which any text is large.

Its main process packs for longer than the timeout, which is long enough for everything else on a busy machine.
"""

import sys
import time
from typing import Any

from electra.cli import main
from electra.pretraining import build

write_index = build.write_index


def slowly(*arguments: Any, **options: Any) -> None:
    time.sleep(6)
    write_index(*arguments, **options)


build.INDEX_TOKENS = 1
build.write_index = slowly  # type: ignore[attr-defined]
sys.exit(main(sys.argv[1:]))
