"""Evaluation mode within a block."""

import pytest
from torch import nn

from electra.modeling.evaluation_mode import evaluation_mode


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_afterwards_what_it_was_before(training: bool) -> None:
    module = nn.Sequential(nn.Dropout()).train(training)
    with pytest.raises(KeyError), evaluation_mode(module):
        assert not module.training and not module[0].training
        raise KeyError
    assert module.training == module[0].training == training
