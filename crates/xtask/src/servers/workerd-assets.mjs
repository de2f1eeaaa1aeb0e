const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8",
  txt: "text/plain; charset=utf-8", wasm: "application/wasm" };
export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    const path = pathname.endsWith("/") ? `${pathname}index.html` : pathname;
    const found = await env.FILES.fetch(new Request(`http://files${path}`, { method: request.method }));
    if (!found.ok) return new Response(null, { status: 404 });
    return new Response(found.body, { headers: { "content-type": TYPES[path.split(".").at(-1)] ?? "application/octet-stream" } });
  },
};
