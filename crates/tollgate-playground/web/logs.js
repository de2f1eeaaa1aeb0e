/**
 * The replay as wasm: a module of its own, fetched when somebody brings a log.
 *
 * Invariant: whoever has `Log` has a module that stands.
 */

import init, { Log } from 'tollgate-logs';
import module from 'tollgate-logs.wasm';

await init({ module_or_path: new URL(module, import.meta.url) });

export { Log };
