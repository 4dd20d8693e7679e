# A git server that speaks the smart protocol over plain HTTP, by git's own backend: git.py PORT FOLDER.
import http.server, os, subprocess, sys


class Git(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        environment = dict(
            os.environ,
            GIT_PROJECT_ROOT=sys.argv[2],
            GIT_HTTP_EXPORT_ALL="1",
            PATH_INFO=path,
            QUERY_STRING=query,
            REQUEST_METHOD=self.command,
            CONTENT_TYPE=self.headers.get("Content-Type") or "",
            CONTENT_LENGTH=str(len(body)),
            HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding") or "",
            GIT_PROTOCOL=self.headers.get("Git-Protocol") or "",
        )
        out = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, timeout=30).stdout
        head, _, content = out.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
        status = next((value for name, value in fields if name == "Status"), "200 OK")
        self.send_response(int(status.split(" ")[0]))
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Git).serve_forever()
