// Tollgate as a Worker of yours: its entry point and its classes, for a policy that you bundle.
//
// Invariant: without a policy no request is allowed: the `policy.json` next to this file is not a policy, so every
// request gets status 500 until `usePolicy` is called.
export { default, Limiter, Metrics, Policies, Tenants } from "./entry.mjs";

/** Uses `text` as the policy. Call it where your main module is evaluated: before the first request. `compiled` is the
 * export of `tollgate compile policy.json --surface worker -o policy.mjs`; with it no isolate compiles the text. */
export function usePolicy(text, compiled = "") {
  if (typeof text !== "string") {
    throw new TypeError("tollgate: the policy is no text; give wrangler.toml the rule of type Text for policy.json");
  }
  globalThis.tollgatePolicy = text;
  globalThis.tollgateCompiled = compiled;
}
