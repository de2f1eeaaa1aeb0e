/* A stand-in for the replay until it is there. */

/** Stand-in for the replay: `new Log(policyText, optionsJson)`, `push(bytes)`, `finish()` -> JSON of `tollgate replay`. */
export class Log {
  constructor(policyText, options) { this.policy = JSON.parse(policyText); this.options = options; this.lines = 0; }
  push(bytes) { for (const byte of bytes) if (byte === 10) this.lines += 1; }
  finish() {
    const n = this.lines, t = (h) => `1995-08-01T${String(h).padStart(2, '0')}:00:00.000Z`;
    const bins = Array.from({ length: 24 }, (_, h) => ({ at: t(h), total: 1000 + h * 90, denied: h > 8 ? h * 4 : 0, delayed: 0, over: 0 }));
    return JSON.stringify({ log: { lines: n, unparsable: 2, causes: [{ cause: 'no time', lines: 2, samples: [{ line: 17, text: '<script>alert(1)</script>' }] }], already_refused: 0, out_of_order: 0, late: 0, ahead: 0, first: t(0), last: t(23) },
      requests: { total: n, admitted: n - 178, delayed: 0, denied: 178, unreadable: 0 }, clients: { total: 2582, denied: 31, delayed: 0, one_of: 1 },
      rules: [{ name: 'each-client', allowed: n - 178, denied: 178, delayed: 0, limited_keys: 31, limited_keys_are_exact: true, first: { at: t(1), key: 'x' }, quotas: [{ name: 'each-client', tier: null, limit: 10, window_ms: 60000, algorithm: 'gcra', limited: 178 }] }],
      keys: { top: [{ rule: 'each-client', key: '<img src=x onerror=alert(1)>', denied: 40, delayed: 0, first: t(2), last: t(9) }], error: 0 },
      timeline: { bin_seconds: 3600, bins }, waits: null, notes: ['Stamps are whole seconds; they were spread.'] });
  }
  free() {}
}
