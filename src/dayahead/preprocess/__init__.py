"""The event log into one set of files per window."""

import dayahead.features  # noqa: F401  (it silences Merlin, which warns at its own import)
