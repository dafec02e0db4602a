"""datasets/<name>.yaml: what a data set is. Read by download and preprocess."""
