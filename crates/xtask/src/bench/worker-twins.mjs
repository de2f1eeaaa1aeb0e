import { DurableObject } from "cloudflare:workers";
const answer = JSON.stringify({ decision: "allow", rules: [], violated: [], retry_after_ms: null,
  headers: { "ratelimit-policy": "\"bench\";q=1000000;w=1", ratelimit: "\"bench\";r=999999;t=1" } });
const name = "0123456789abcdef".repeat(4);
const asked = new Uint8Array(96).fill(7);
export class Limiter extends DurableObject {
  #counted = 0;
  #hasTable = false;
  count(request) {
    const reply = new Uint8Array(request.length + 8);
    reply.set(request);
    new DataView(reply.buffer).setFloat64(request.length, ++this.#counted);
    return reply;
  }
  upsert(request) {
    const reply = this.count(request);
    const sql = this.ctx.storage.sql;
    if (!this.#hasTable) sql.exec("CREATE TABLE IF NOT EXISTS counts (id INTEGER PRIMARY KEY, row BLOB NOT NULL)");
    this.#hasTable = true;
    sql.exec("INSERT INTO counts (id, row) VALUES (0, ?) ON CONFLICT (id) DO UPDATE SET row = excluded.row", reply);
    return reply;
  }
}
export default {
  async fetch(request, env) {
    await request.text();
    for (const what of ["count", "upsert"]) if (request.url.endsWith(what)) await env.LIMITER.getByName(name)[what](asked);
    return new Response(answer, { headers: { "content-type": "application/json" } });
  },
};
