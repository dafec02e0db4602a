"""Logs of events that are open for the time of a test."""

from contextlib import ExitStack, closing, contextmanager


@contextmanager
def opened_logs(make):
    """Yield a function that opens a log as `make` does; what it delivers is in `delivered`."""
    with ExitStack() as stack:

        def opened(*given, **named):
            log = stack.enter_context(closing(make(*given, **named)))
            log.delivered = []
            log.deliver = log.delivered.extend
            return log

        yield opened
