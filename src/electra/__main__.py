"""`python -m electra`: the command, for launchers that want a module (`torchrun -m electra pretrain ...`)."""

import sys

from electra.cli import main

sys.exit(main())
