"""What a pipeline did, told to MLflow: into a local journal first, to the server when it answers.

Nothing in here raises into the stage it records, and none waits for a server.
"""

import os

# Before MLflow is first imported: it reads some of these once.
_MANNERS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # The journal is the retry: MLflow's own 7 retries block a call for minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "GIT_PYTHON_REFRESH": "quiet",
}
for _name, _value in _MANNERS.items():
    os.environ.setdefault(_name, _value)
