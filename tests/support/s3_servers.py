"""An S3 server for the length of a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

BUCKET = "bucket"


@contextmanager
def s3_server() -> Iterator[str]:
    """Serve S3 from this process's memory, with an empty bucket; yield the address."""
    from moto.server import ThreadedMotoServer  # tests without it are skipped

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    with urlopen(Request(f"{address}/{BUCKET}", method="PUT")):
        pass
    try:
        yield address
    finally:
        server.stop()
