"""The verbs of the command line, a file each.

A verb imports torch, MLflow and DVC when it runs: they take seconds, which the others need not pay.
"""
