// An app that calls Tollgate, another Worker, through a service binding: POST /login is limited by requests, POST /summary
// by words, whose number is known only afterwards.
import { describe, refusal, withFields } from "tollgate-worker";
import type { Tollgate } from "tollgate-worker";

interface Env {
  TOLLGATE: Tollgate;
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    if (new URL(request.url).pathname === "/summary") return summary(request, env);
    // No key of the policy contains a header, so none is sent.
    const answer = await env.TOLLGATE.check(describe(request, []));
    const refused = refusal(answer);
    if (refused) return refused;
    return withFields(new Response("welcome\n"), answer);
  },
};

/** Charges the greatest possible number of words, and settles the real number. */
async function summary(request: Request, env: Env): Promise<Response> {
  const words = (await request.text()).split(/\s+/);
  const headers = { "x-words": String(words.length) };
  const answer = await env.TOLLGATE.check({ ...describe(request, []), headers, settle: true });
  const refused = refusal(answer);
  if (refused) return refused;
  const said = words.slice(0, 10);
  if (answer.id !== undefined) await env.TOLLGATE.settle(answer.id, said.length);
  return withFields(new Response(`${said.join(" ")}\n`), answer);
}
