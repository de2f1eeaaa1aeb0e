/**
 * The replay as wasm: a module of its own, fetched when a user opens a log.
 *
 * Invariant: `Log` is available only after its module is initialised.
 */

import init, { Log } from 'tollgate-logs';
import module from 'tollgate-logs.wasm';

await init({ module_or_path: new URL(module, import.meta.url) });

export { Log };
