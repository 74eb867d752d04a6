/** What the engines do, from the server's metrics (Prometheus text format). */

/**
 * @typedef {{running: number, waiting: number, slots: number, rate: number | null, batch: number | null,
 *   ended: number}} Load
 */

const SAMPLE = /^(\w+)(\{[^}]*\})? ([^ ]+)$/;
const ENDED = 'outcome="cancelled"';

/**
 * Sums the samples of each series name over all labels, as over models; those of canceled requests also by themselves.
 * @param {string} text
 * @returns {Map<string, number>}
 */
export function sumSamples(text) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    const [, name, labels, value] = SAMPLE.exec(line) ?? [];
    for (const each of labels?.includes(ENDED) ? [name, `${name} ${ENDED}`] : name ? [name] : [])
      sums.set(each, (sums.get(each) ?? 0) + Number(value));
  }
  return sums;
}

/**
 * Returns the load at the second of two readings.
 * @param {{sums: Map<string, number>, seconds: number} | null} before
 * @param {{sums: Map<string, number>, seconds: number}} now
 * @returns {Load}
 */
export function loadBetween(before, now) {
  /** @param {string} name */
  const growth = (name) => (before ? (now.sums.get(name) ?? 0) - (before.sums.get(name) ?? 0) : 0);
  const steps = growth("dragoman_engine_step_sequences_count");
  return {
    running: now.sums.get("dragoman_sequences_running") ?? 0,
    waiting: now.sums.get("dragoman_sequences_waiting") ?? 0,
    slots: now.sums.get("dragoman_slots") ?? 0,
    rate: before ? growth("dragoman_target_tokens_total") / (now.seconds - before.seconds) : null,
    ended: now.sums.get(`dragoman_requests_total ${ENDED}`) ?? 0,
    batch: steps ? growth("dragoman_engine_step_sequences_sum") / steps : null,
  };
}
