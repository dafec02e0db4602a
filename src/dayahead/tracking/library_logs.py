"""What MLflow and its libraries may log: warnings and errors, without secrets."""

import logging

import mlflow  # noqa: F401  # sets its own levels and handlers, once, at import

from dayahead.core.redaction import redacted

# Creating the database logs every migration, each packaged model its validation. An unreachable
# store is reported once, by the sender.
_LEVELS = {
    "alembic": logging.WARNING,
    "mlflow": logging.WARNING,
    "mlflow.store.db.utils": logging.CRITICAL,
    "urllib3": logging.ERROR,
}


def restrict_library_logs() -> None:
    """Set the levels, and redact secrets in what MLflow's handlers print. Repeating it is safe."""
    for name, level in _LEVELS.items():
        logging.getLogger(name).setLevel(level)
    for handler in logging.getLogger("mlflow").handlers:
        if _redact not in handler.filters:
            handler.addFilter(_redact)


def _redact(record: logging.LogRecord) -> bool:
    record.msg, record.args = redacted(record.getMessage()), ()
    if record.exc_info:
        record.exc_text = redacted(logging.Formatter().formatException(record.exc_info))
    return True
