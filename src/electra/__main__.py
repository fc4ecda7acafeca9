"""`python -m electra`: the command as a module, for launchers (`torchrun -m electra pretrain ...`)."""

import sys

from electra.cli import main

sys.exit(main())
