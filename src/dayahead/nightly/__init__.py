"""Every night: new data, one more window, publish or hold the model, and say why."""
