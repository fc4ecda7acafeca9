"""Durations as people read them, in lines of progress and in reports."""


def format_duration(seconds: float) -> str:
    """Seconds in a readable form: 42s, 3m 20s, 5h 07m, 2d 04h."""
    whole = max(0, round(seconds))
    for unit, name, below, below_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit:
            return f"{whole // unit}{name} {whole % unit // below:02d}{below_name}"
    return f"{whole}s"


def describe_duration(seconds: float) -> str:
    """A duration with its unit: 2.4 s; from 90 s on, 7.0 minutes; from 90 minutes on, 1.6 hours."""
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} minutes" if seconds < 90 * 60 else f"{seconds / 3600:.1f} hours"
