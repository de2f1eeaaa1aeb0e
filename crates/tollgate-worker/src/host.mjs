// What the Rust side asks of the runtime: each function is one crossing instead of many.
//
// Invariant: nothing here throws and nothing here decides; what failed comes back as `undefined`.
// Lines of header fields cross as one string, `name: value\n` each.

export const policyText = () => globalThis.tollgatePolicy ?? "";

export const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** The object's reply; `undefined` when it fails or says nothing in time. */
export const check = (objects, name, timeout, request) =>
  inTime(timeout, checkTwice(objects, name, request));

/** The object's reply once it took the charge back. Tried once: to give back twice would admit too many. */
export const refund = (objects, name, timeout, request, reply) =>
  inTime(timeout, objects.getByName(name).refund(request, reply));

// The platform says which errors a second try may cure: the object moved, or its code was updated. At worst
// the request is charged twice.
async function checkTwice(objects, name, request) {
  try {
    return await objects.getByName(name).check(request);
  } catch (error) {
    if (!error?.retryable || error.overloaded) throw error;
    return await objects.getByName(name).check(request);
  }
}

async function inTime(timeout, reply) {
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, timeout);
  });
  try {
    return await Promise.race([reply, late]);
  } catch (error) {
    console.error("tollgate: an object did not answer:", error?.message);
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

export function respond(status, fields, body) {
  return new Response(body, { status, headers: [...lines(fields)] });
}

/** The origin's response, streamed, with `fields` added to its own; `undefined` when there is none. */
export async function forward(request, url, fields) {
  let response;
  try {
    response = await fetch(new Request(url, request), { redirect: "manual" });
  } catch (error) {
    console.error("tollgate: the origin did not answer:", error?.message);
    return undefined;
  }
  if (fields === "") return response;
  const copy = new Response(response.body, response); // a fetched response's headers are immutable
  for (const [name, value] of lines(fields)) copy.headers.append(name, value);
  return copy;
}

/** The whole body; `undefined` when it is longer than `limit` bytes or breaks off. */
export async function readBody(request, limit) {
  if (Number(request.headers.get("content-length") ?? 0) > limit) return undefined;
  const body = new Uint8Array(limit);
  let length = 0;
  try {
    for await (const chunk of request.body ?? []) {
      if (length + chunk.length > limit) return undefined;
      body.set(chunk, length);
      length += chunk.length;
    }
  } catch {
    return undefined;
  }
  return body.subarray(0, length);
}

function* lines(fields) {
  for (const line of fields.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) yield [line.slice(0, colon), line.slice(colon + 2)];
  }
}
