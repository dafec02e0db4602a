"""params.yaml as typed settings."""
