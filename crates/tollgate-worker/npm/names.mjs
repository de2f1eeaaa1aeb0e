// Writes the names of functions into a log: `node names.mjs [names.txt] < log`.
//
// The deployed modules contain no names, so a trace shows `wasm-function[123]`, in a module whose name contains the
// build. Names are in a file next to the modules, which is not uploaded; keep it with your deployed files.
//
// Invariant: a line is changed only where this build's names are known. All other lines are unchanged.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

// `at MODULE (wasm://wasm/MODULE-HASH:wasm-function[NUMBER]:0xOFFSET)`
const FUNCTION = /(?<module>tollgate-[a-z]+-[0-9a-f]{8}) (?<at>\(wasm:\/\/wasm\/\S*:wasm-function\[(?<number>\d+)\]\S*\))/g;

const names = new Map();
const builds = new Set();
const file = process.argv[2] ?? new URL("./build/names.txt", import.meta.url);
for (const line of readFileSync(file, "utf8").split("\n")) {
  const [module, number, ...name] = line.split(" ");
  builds.add(module);
  names.set(`${module} ${number}`, name.join(" "));
}

const others = new Set();
for await (const line of createInterface({ input: process.stdin })) {
  const named = line.replace(FUNCTION, (found, module, at, number) => {
    if (!builds.has(module)) others.add(module);
    const name = names.get(`${module} ${number}`);
    return name === undefined ? found : `${name} ${at}`;
  });
  console.log(named);
}
if (others.size > 0) console.error(`names.txt is of another build than ${[...others].join(", ")}`);
