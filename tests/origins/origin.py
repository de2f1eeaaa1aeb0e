"""An origin on the standard library: says what it makes of each request, two values for the resource.

The first is the file that http.server would serve, the second is PATH_INFO as wsgiref hands it over.
"""

import http.server
import json
import sys
import urllib.parse
from http.cookies import SimpleCookie


class Origin(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self):
        path, _, query = self.path.partition("?")
        query = urllib.parse.parse_qs(query, keep_blank_values=True).get("k")
        cookie = SimpleCookie(self.headers.get("cookie", "")).get("sid")
        read = {
            "resources": [
                self.translate_path(self.path),
                urllib.parse.unquote(path, "iso-8859-1"),
            ],
            "credential": self.headers.get("x-api-key"),
            "query": query and query[0],
            "cookie": cookie and cookie.value,
            "host": self.headers.get("host"),
        }
        body = json.dumps(read).encode()
        self.send_response(200)
        self.send_header("x-origin", "python")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(
    ("127.0.0.1", int(sys.argv[1])), lambda *args: Origin(*args, directory="/root-of-files")
).serve_forever()
