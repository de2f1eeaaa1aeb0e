// The Worker itself, for the main module of its deployment.

/** Takes the text of the policy; before the first request, so where your main module is evaluated. With `compiled`, which
 * `tollgate compile policy.json --surface worker -o policy.mjs` exports, no isolate compiles the text. */
export function usePolicy(text: string, compiled?: string): void;

/** The entry point; its methods are those of `Tollgate` in `tollgate-worker`. */
declare const Entry: new (...args: never[]) => object;
export default Entry;

/** The classes of Durable Objects that wrangler.toml binds. */
export const Limiter: new (...args: never[]) => object;
export const Metrics: new (...args: never[]) => object;
export const Policies: new (...args: never[]) => object;
export const Tenants: new (...args: never[]) => object;
