"""The format of a folder follows from its config.json."""

import pytest

from electra.errors import CheckpointError
from electra.export.formats.base import format_of_folder


def test_a_config_without_a_type_is_refused() -> None:
    with pytest.raises(CheckpointError, match="it has no model_type; electra reads electra, bert"):
        format_of_folder({}, "config.json")
