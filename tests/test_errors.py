"""Errors: what is said of those that do not come from this package."""

import errno

import pytest

from electra.errors import DataError, describe


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 524288 bytes."
        ),
        RuntimeError("can't start new thread"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_too_little_memory_is_said_in_words(error: Exception) -> None:
    said = describe(error)
    assert said.startswith("there is not enough memory") and str(error) in said
    assert "allow more (ulimit -v), and run the same command again" in said


def test_only_an_unexpected_error_has_its_type() -> None:
    assert (
        describe(DataError("corpus.txt: out of memory of its author")) == "corpus.txt: out of memory of its author"
    )
    assert describe(KeyError("name")) == "KeyError: 'name'"
