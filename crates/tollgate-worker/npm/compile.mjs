#!/usr/bin/env node
// Compiles a policy when you build, so that no isolate has to: `tollgate-compile [policy.json [policy.compiled.mjs]]`.
//
// Invariant: this compiler is the one that the package deploys, so the Worker can read its output. A policy with
// mistakes ends the build with all of them, and writes nothing. The module contains the whole policy: keep it as
// you keep the policy.
import { readFileSync, writeFileSync } from "node:fs";
import { register } from "node:module";

// A wasm file is a module to be instantiated, as for the platform.
const LOADER = `
import { fileURLToPath } from "node:url";
export function load(url, context, next) {
  if (!url.endsWith(".wasm")) return next(url, context);
  const source = \`import { readFileSync } from "node:fs";
    export default new WebAssembly.Module(readFileSync(\${JSON.stringify(fileURLToPath(url))}));\`;
  return { format: "module", shortCircuit: true, source };
}`;

const [policy = "policy.json", out = "policy.compiled.mjs", ...others] = process.argv.slice(2);
if (others.length > 0 || policy.startsWith("-")) {
  console.error("use: tollgate-compile [policy.json [policy.compiled.mjs]]");
  process.exit(2);
}
if (Number(process.versions.node.split(".")[0]) < 22) {
  console.error(`tollgate-compile: it needs Node 22 or later; this is ${process.version}`);
  process.exit(2);
}
try {
  const text = readFileSync(policy, "utf8");
  register(`data:text/javascript,${encodeURIComponent(LOADER)}`);
  const { compilePolicy } = await import("./build/index.js");
  writeFileSync(out, `export default "${compilePolicy(text)}";\n`);
} catch (error) {
  const lines = String(error?.message ?? error).split("\n");
  for (const line of lines) console.error(`tollgate-compile: ${policy}: ${line}`);
  process.exit(1);
}
