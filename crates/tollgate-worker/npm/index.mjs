// For a Worker that calls Tollgate through a service binding: describes a request for `check`, and applies its result
// to a response.
//
// Invariant: a request is described as Tollgate would see it in front of the Worker. Nothing here decides or calls
// Tollgate.

/** The argument of `check` for `request`, with all header fields or with those named in `headers`. */
export function describe(request, headers) {
  const url = new URL(request.url);
  const described = { method: request.method, path: url.pathname + url.search, host: url.host, headers: {} };
  for (const [name, value] of request.headers) described.headers[name] = value;
  if (headers !== undefined) {
    const wanted = new Set(headers.map((name) => name.toLowerCase()));
    for (const name of Object.keys(described.headers)) if (!wanted.has(name)) delete described.headers[name];
  }
  const address = request.headers.get("cf-connecting-ip");
  if (address !== null) described.client_ip = address;
  const { country, asn } = request.cf ?? {};
  // The edge reports T1 for Tor, which is not a country.
  if (/^[A-Z]{2}$/.test(country ?? "")) described.country = country;
  if (Number.isInteger(asn)) described.asn = asn;
  return described;
}

/** The response that the policy gives in place of yours; `undefined` when the request is allowed. */
export function refusal(answer) {
  if (answer.decision !== "deny") return undefined;
  const headers = new Headers(answer.headers);
  if (answer.content_type !== null) headers.set("content-type", answer.content_type);
  if (answer.grpc !== undefined) {
    headers.set("grpc-status", String(answer.grpc.status));
    headers.set("grpc-message", answer.grpc.message);
  }
  return new Response(answer.body === "" ? null : answer.body, { status: answer.status, headers });
}

/** Your response with the fields that the policy adds. */
export function withFields(response, answer) {
  const copy = new Response(response.body, response); // a fetched response's headers are immutable
  for (const [name, value] of Object.entries(answer.headers)) copy.headers.append(name, value);
  return copy;
}
