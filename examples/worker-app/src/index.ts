// An app whose POST /login is limited by Tollgate, another Worker that it has a binding of.
import { describe, refusal, withFields } from "tollgate-worker";
import type { Tollgate } from "tollgate-worker";

interface Env {
  TOLLGATE: Tollgate;
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    // Nothing of the policy counts by a header, so none is sent.
    const answer = await env.TOLLGATE.check(describe(request, []));
    const refused = refusal(answer);
    if (refused) return refused;
    return withFields(new Response("welcome\n"), answer);
  },
};
