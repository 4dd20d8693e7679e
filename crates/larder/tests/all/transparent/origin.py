"""An origin on ports 80 and 443 that says at which of its addresses it was asked, and for which host."""

import http.server
import socket
import ssl
import sys
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        address = self.connection.getsockname()[0].removeprefix("::ffff:")
        body = f"{address} {self.headers['Host']} {self.path}\n".encode()
        self.send_response(200)
        self.send_header("Cache-Control", "max-age=60")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


clear, secure = Server(("::", 80), Handler), Server(("::", 443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
secure.socket = context.wrap_socket(secure.socket, server_side=True)
threading.Thread(target=clear.serve_forever, daemon=True).start()
print("ready", flush=True)
secure.serve_forever()
