"""Transformers4Rec's model served plainly, for `serving.py`; runs in its environment.

A thread per connection, one forward pass per request, as a first service is written: no batches.
The model keeps its mask between two of its modules, so that only one thread at a time may call it.
Prints its port when it listens. Standard library and the model, nothing else.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

import torch

from transformers4rec_worker import ITEM, build_model
from worker import settings


class Handler(BaseHTTPRequestHandler):
    """Answers a session of item numbers with the best items."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    model: torch.nn.Module
    is_free = Lock()

    @torch.no_grad()
    def do_POST(self) -> None:
        """Answer one request."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        items = torch.tensor([asked["session"]]) + 1  # 0 is padding
        with self.is_free:
            scores = self.model({ITEM: items}, training=False, testing=False)
        highest, found = scores[0].topk(asked["top_k"])
        pairs = zip((found - 1).tolist(), highest.tolist(), strict=True)
        body = json.dumps({"items": [{"item": i, "score": s} for i, s in pairs]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    """Takes as many clients at once as the benchmark has."""

    request_queue_size = 256
    daemon_threads = True


def main() -> None:
    """Serve until killed."""
    given = settings()
    torch.set_num_threads(given["threads"])
    torch.manual_seed(1)
    Handler.model = build_model(given).eval()
    server = Server(("127.0.0.1", 0), Handler)
    print(f"Model transformers4rec answers on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
