"""Started by torchrun: the `electra` command, of which process 1 breaks at a step. MODE MARKER ARGUMENTS...

die: it is killed. stop: it is stopped (SIGSTOP), and MARKER has its number. hang: it does nothing any more, and
the other process is set not to wait for long from then on. Where MARKER exists nothing happens; it is made
beforehand.
"""

import datetime
import os
import signal
import sys
from pathlib import Path

import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from waiting import until

from electra.cli import main
from electra.training import trainer
from electra.training.distributed import message_group, rank

STEP = 12
mode, marker = sys.argv[1], Path(sys.argv[2])
made = trainer.Trainer._step


def breaks(self: trainer.Trainer) -> None:
    if self.progress.step == STEP and rank() == 1 and not marker.exists():
        marker.write_text(str(os.getpid()))
        if mode == "hang":
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # torchrun would wait half a minute
            signal.pause()
        os.kill(os.getpid(), {"die": signal.SIGKILL, "stop": signal.SIGSTOP}[mode])
    if self.progress.step == STEP and mode == "hang":
        until(marker.exists)
        for group in (dist.group.WORLD, message_group()):
            dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=2), group)
    made(self)


trainer.Trainer._step = breaks  # type: ignore[method-assign]
sys.exit(main(sys.argv[3:]))
