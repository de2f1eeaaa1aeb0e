// Tollgate as a Worker of yours: its entry point and its classes, for a policy that you bundle.
//
// Invariant: without a policy nothing is let through: what stands in `policy.json` beside this file is none, so every
// request is answered with 500 until `usePolicy` was called.
export { default, Limiter, Metrics, Policies, Tenants } from "./entry.mjs";

/** Takes `text` as the policy. Call it where your main module is evaluated: before the first request. `compiled` is what
 * `tollgate compile policy.json --surface worker -o policy.mjs` exports; with it no isolate compiles the text. */
export function usePolicy(text, compiled = "") {
  if (typeof text !== "string") {
    throw new TypeError("tollgate: the policy is no text; give wrangler.toml the rule of type Text for policy.json");
  }
  globalThis.tollgatePolicy = text;
  globalThis.tollgateCompiled = compiled;
}
