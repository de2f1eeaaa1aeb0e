/**
 * The state of a key in the words of the page.
 *
 * Invariant: a member that the service leaves out is shown as nothing, not as 0.
 */

/**
 * The quotas whose penalty runs.
 * @param {any[]} quotas
 * @returns {{name: string, step: number, until: number}[]}
 */
export function penalties(quotas) {
  return quotas
    .filter((one) => typeof one.penalty_until_ms === 'number')
    .map((one) => ({
      name: nameOf(one),
      step: one.penalty_step ?? 1,
      until: one.penalty_until_ms,
    }));
}

/** The tier and the name of a quota. @param {any} one */
export function nameOf(one) {
  return [one.tier, one.name].filter(Boolean).join(' / ');
}

/** The used units, and which of them are held or above the capacity. @param {any} one */
export function uses(one) {
  const runs = typeof one.in_flight === 'number';
  const parts = [runs ? `${one.in_flight} in flight` : String(one.used)];
  if (one.held > 0) parts.push(`${one.held} of them held`);
  if (one.debt > 0) parts.push(`${one.debt} above the capacity`);
  return parts.join(', ');
}
