export class Limiter {}
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const answer = await fetch(env.ORIGIN + url.pathname + url.search, request);
    const response = new Response(answer.body, answer);
    response.headers.set("ratelimit-policy", "\"bench\";q=1000000;w=1");
    response.headers.set("ratelimit", "\"bench\";r=999999;t=1");
    return response;
  },
};
