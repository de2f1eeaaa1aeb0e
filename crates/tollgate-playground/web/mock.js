/**
 * A stand-in for the simulator while it is being built, with the signatures that the page calls.
 * It knows gcra and fixed windows for one client, roughly. To be removed.
 *
 * class Lane:
 *  new Lane(policyText, trafficJson, seed: bigint) throws an Error in words
 *  step(budget) -> JSON {done, offered, at_ms, length_ms}
 *  table() -> JSON, that of `tollgate simulate --json`
 *  watched() -> JSON {rule, quota, algorithm, limit, window_ms, burst, client} | null: whose state the
 *    series below are about: the key that was asked most often
 *  series(name, buckets) -> Float64Array of `buckets` numbers, bucket i is [i, i+1) * length / buckets:
 *    offered, admitted (at once), delayed, denied: counts
 *    true_count: greatest number admitted in the true window that ends in the bucket; estimate: what the
 *    algorithm counts as used (limit or burst less remaining); remaining: least; whole_after: greatest
 *    ms until the state is whole (reset_after: TAT - now); wait: greatest, ms. NaN: nobody asked.
 *  near(at_ms) -> index of the last request at or before at_ms, else 0
 *  at(index) -> JSON {index, at_ms, client, method, target, fate: admitted|delayed|denied, wait_ms, status,
 *    fields: [[name, value]], body, why: [sentence]} | null
 */
export class Lane {
  constructor(policyText, trafficJson, seed) {
    const policy = JSON.parse(policyText);
    const q = policy.rules[0].quotas[0];
    const unit = { ms: 1, s: 1000, m: 60000, h: 3600000, d: 86400000, us: 0.001 };
    const ms = (t) => { const m = /^([\d.]+)([a-z]+)$/.exec(t); if (!m) throw new Error(`length: ${JSON.stringify(t)} is no time`); return m[1] * unit[m[2]]; };
    const traffic = JSON.parse(trafficJson);
    this.q = q; this.policy = policy; this.window = ms(q.window); this.length = ms(traffic.length);
    this.burst = q.burst ?? q.limit; this.fixed = /window|log|buckets/.test(q.algorithm ?? 'gcra');
    let at = [];
    let s = Number(seed) + 1;
    const rand = () => ((s = (s * 16807) % 2147483647) / 2147483647);
    const rate = (r) => { const [n, per] = r.split('/'); return n / (/^\d/.test(per) ? ms(per) : unit[per]); };
    for (const { arrivals, from, to } of traffic.sources) {
      const [kind, a] = Object.entries(arrivals)[0];
      const begin = from ? ms(from) : 0, end = to ? ms(to) : this.length;
      if (kind === 'instants') at.push(...a.at.map(ms));
      else if (kind === 'counts') a.counts.forEach((n, i) => { for (let k = 0; k < n; k++) at.push(i * ms(a.bin) + k * ms(a.bin) / n); });
      else if (kind === 'edge') for (let e = ms(a.window); e < end; e += ms(a.window)) { for (let k = 0; k < a.size; k++) at.push(e - 1 + k / a.size); for (let k = 0; k < a.size; k++) at.push(e); }
      else if (kind === 'bursts') for (let e = begin; e < end; e += ms(a.every)) for (let k = 0; k < a.size; k++) at.push(e);
      else { const r = rate(a.rate ?? a.to); for (let t = begin; t < end;) { at.push(t); t += kind === 'poisson' ? -Math.log(1 - rand()) / r : 1 / r; } }
    }
    this.at_ms = at.filter((t) => t < this.length).map(Math.floor).sort((a, b) => a - b);
    this.done = 0; this.fates = []; this.rem = []; this.wait = []; this.reset = []; this.tat = 0; this.edge = -1; this.n = 0;
  }
  step(budget) {
    const T = this.window / this.q.limit, queue = this.q.algorithm === 'leaky-queue';
    for (; budget > 0 && this.done < this.at_ms.length; budget--, this.done++) {
      const t = this.at_ms[this.done];
      if (this.fixed) {
        const e = Math.floor(t / this.window);
        if (e !== this.edge) { this.edge = e; this.n = 0; }
        const ok = this.n < this.q.limit; if (ok) this.n++;
        this.fates.push(ok ? 0 : 2); this.rem.push(this.q.limit - this.n); this.wait.push(0); this.reset.push((e + 1) * this.window - t);
      } else {
        const tat = Math.max(this.tat, t), ok = tat - t <= T * (this.burst - 1) + 1e-9;
        if (ok) this.tat = tat + T;
        this.fates.push(!ok ? 2 : queue && tat > t ? 1 : 0); this.wait.push(queue && ok ? tat - t : 0);
        this.reset.push(this.tat - t); this.rem.push(Math.max(0, Math.floor((T * this.burst - (this.tat - t)) / T + 1e-9)));
      }
    }
    return JSON.stringify({ done: this.done >= this.at_ms.length, offered: this.done, at_ms: this.at_ms[this.done - 1] ?? 0, length_ms: this.length });
  }
  count(f) { return this.fates.filter((x) => x === f).length; }
  table() { return JSON.stringify({ offered: this.done, admitted: this.count(0) + this.count(1), delayed: this.count(1), denied: this.count(2), false_allow: 3, false_deny: 1, most_in_window: 19, burst: 10, wait_p50_ms: 0, wait_p99_ms: 0, wait_max_ms: 0, state_bytes: 8, evictions: 0, length_ms: this.length }); }
  watched() { return JSON.stringify({ rule: this.policy.rules[0].name, quota: this.policy.rules[0].name, algorithm: this.q.algorithm ?? 'gcra', limit: this.q.limit, window_ms: this.window, burst: this.burst, client: '198.51.100.1' }); }
  series(name, n) {
    const out = new Float64Array(n).fill(/offered|admitted|delayed|denied/.test(name) ? 0 : NaN);
    let lo = 0, adm = this.at_ms.filter((_, i) => this.fates[i] < 2), hi = 0;
    if (name === 'true_count') { for (let b = 0; b < n; b++) { const end = (b + 1) * this.length / n; while (hi < adm.length && adm[hi] < end) hi++; while (adm[lo] <= end - this.window) lo++; out[b] = hi - lo; } return out; }
    this.at_ms.forEach((t, i) => {
      const b = Math.floor(t * n / this.length), f = this.fates[i];
      if (name === 'offered' || (name === 'admitted' && f === 0) || (name === 'delayed' && f === 1) || (name === 'denied' && f === 2)) out[b]++;
      if (name === 'remaining') out[b] = Number.isNaN(out[b]) ? this.rem[i] : Math.min(out[b], this.rem[i]);
      if (name === 'estimate') out[b] = this.burst - this.rem[i];
      if (name === 'whole_after') out[b] = this.reset[i];
      if (name === 'wait') out[b] = Math.max(out[b] || 0, this.wait[i]);
    });
    return out;
  }
  near(t) { let i = 0; while (i + 1 < this.at_ms.length && this.at_ms[i + 1] <= t) i++; return i; }
  at(i) {
    if (!(i in this.at_ms)) return 'null';
    const f = this.fates[i], name = this.policy.rules[0].name, denied = f === 2;
    return JSON.stringify({ index: i, at_ms: this.at_ms[i], client: '198.51.100.1', method: 'GET', target: '/', fate: ['admitted', 'delayed', 'denied'][f], wait_ms: this.wait[i], status: denied ? 429 : 200,
      fields: [...(denied ? [['content-type', 'application/problem+json'], ['retry-after', '2']] : []), ['ratelimit-policy', `"${name}";q=${this.q.limit};w=${this.window / 1000}`], ['ratelimit', `"${name}";r=${this.rem[i]};t=${Math.ceil(this.reset[i] / 1000)}`]],
      body: denied ? '{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"try again in 2 seconds","violated-policies":["' + name + '"]}' : '',
      why: [`rule "${name}" applies: ${denied ? 'denied' : 'allowed'}`, denied ? `quota "${name}" denies, would admit it in ${Math.ceil(this.reset[i])} ms; 0 of ${this.burst} left` : `quota "${name}" admits it; ${this.rem[i]} of ${this.burst} left`] });
  }
  free() {}
}

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
