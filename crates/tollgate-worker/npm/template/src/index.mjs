// Tollgate with the policy next to it. wrangler.toml makes policy.json a text.
import { usePolicy } from "tollgate-worker/worker";
import policy from "../policy.json";

usePolicy(policy);

export { default, Limiter, Metrics, Policies, Tenants } from "tollgate-worker/worker";
