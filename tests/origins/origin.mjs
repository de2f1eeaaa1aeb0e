// An origin on Node's own http server: reports how it reads each request, with two values for the resource.
// The first by the URL library, decoded as a whole; the second as frameworks do that decode the path as it came.
import { createServer } from "node:http";

const decoded = (path) => {
  try {
    return decodeURIComponent(path);
  } catch {
    return undefined; // answered with 400, as frameworks do
  }
};

createServer((request, response) => {
  const resources = [new URL("http://origin" + request.url).pathname, request.url.split("?")[0]].map(decoded);
  const query = new URL("http://origin" + request.url).searchParams.get("k");
  const cookie = /(?:^|; *)sid=([^;]*)/.exec(request.headers.cookie ?? "")?.[1];
  const read = { resources, credential: request.headers["x-api-key"], query, cookie, host: request.headers.host };
  response.writeHead(resources.includes(undefined) ? 400 : 200, { "x-origin": "node" });
  response.end(JSON.stringify(read));
}).listen(Number(process.argv[2]), "127.0.0.1");
