"""The errors that a user can cause, each with a message that says what, where and how to fix it."""


class ElectraError(ValueError):
    """Base of every error that is the user's to mend; the command line prints it and exits with 2."""


class ConfigError(ElectraError):
    """A setting is unknown, of the wrong type, or at odds with another one."""


class DataError(ElectraError):
    """A corpus, a tokenizer or a folder of token shards cannot be used as it is."""


class CheckpointError(ElectraError):
    """A checkpoint or a run folder is damaged, missing, or belongs to something else."""


class DivergedError(CheckpointError):
    """A run came to numbers that are not finite and cannot go on."""


class ProcessError(ElectraError):
    """Of the processes that make a run together one is gone, or gives no answer."""
