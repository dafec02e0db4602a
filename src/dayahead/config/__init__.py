"""Settings, read and checked once at the door: params.yaml and datasets/<name>.yaml."""
