"""Started by torchrun: the `electra` command, of which process 1 breaks at a step. MODE MARKER ARGUMENTS...

die: it is killed. hang: it does nothing any more. Where MARKER exists nothing happens; it is made beforehand.
"""

import os
import signal
import sys
import time
from pathlib import Path

from electra.cli import main
from electra.training import trainer
from electra.training.distributed import rank

STEP = 12
mode, marker = sys.argv[1], Path(sys.argv[2])
made = trainer.Trainer._step


def breaks(self: trainer.Trainer) -> None:
    if rank() == 1 and self.progress.step == STEP and not marker.exists():
        marker.touch()
        if mode == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # torchrun would wait half a minute
        time.sleep(600)
    made(self)


trainer.Trainer._step = breaks  # type: ignore[method-assign]
sys.exit(main(sys.argv[3:]))
