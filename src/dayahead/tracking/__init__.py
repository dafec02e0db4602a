"""Tracking: a stage writes its records to an outbox, which is sent to MLflow and other sinks.

Nothing here raises an exception into the stage that it records, and no stage waits for a server.
"""

import os

# Set before MLflow is first imported: it reads some of these only once.
_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "true",
    # The outbox retries; MLflow's own 7 retries would block a call for minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "GIT_PYTHON_REFRESH": "quiet",
}
for _name, _value in _DEFAULTS.items():
    os.environ.setdefault(_name, _value)
# Not a default: at the end of a run MLflow prints addresses with the store's user and password.
os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
