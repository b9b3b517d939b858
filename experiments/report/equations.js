"use strict";
// The equations of sim/analytic.py for like targets, in seconds and tokens.
const ROUNDING = 1e-12;

/** A law a + b d, and what a bent one has beyond that from d = 1 on. */
const timeOf = (step, of, d) => of[`${step}_a_s`] + of[`${step}_b_s`] * d + (of[`${step}_rest_s`]?.[d - 1] ?? 0);

/** E[l(d)], accepted draft tokens of a round, and the share of drafts that are accepted whole. */
function survive({ model, beta, a, b }, d) {
  let reached = 1, accepted = 0;
  for (let earlier = 0; earlier < d; earlier++) {
    reached *= model === "geometric" ? beta : (a + earlier) / (a + b + earlier);
    accepted += reached;
  }
  return [accepted, reached];
}

/** Equation (7), the drafter never waits; (12), the least N for which it holds; the most of which no request waits. */
const isFull = (N, S, Z) => Z <= (N - 1) * S * (1 + ROUNDING);
const fullFrom = (S, Z, N = Math.ceil(Z / S) + 1) => isFull(N - 1, S, Z) ? N - 1 : N;
const keepsUpWith = ({ N_full, S_s, Z_s }) => N_full - ((N_full - 1) * S_s > Z_s * (1 + ROUNDING));

/** The largest N at which each target is as fast as without the drafter. Section 4.2. */
function gainsUpTo(S, Z, tokensPerRound, plain_s) {
  const slowest = tokensPerRound * plain_s * (1 + ROUNDING);
  return S + Z > slowest ? 0 : Math.max(1, 1 + Math.floor((1 - S / slowest) / (S / slowest)));
}

/** What `specfleet analytic` says, by its names; of a block drafter S(d) is one pass, whatever d. */
function compute(of, isBlock = false) {
  const { N, d } = of, [accepted, whole] = survive(of, d), committed = accepted + 1;
  const bytes = of.bytes + of.bytes_per_token * d + Math.round(of.bytes_per_state * committed);
  const S = isBlock ? timeOf("draft", of, 1) : timeOf("draft", of, d) + of.catch_up_s * whole;
  const Z = 2 * of.latency_s + bytes * of.s_per_byte + timeOf("verify", of, d);
  const idle = Math.max(0, Z - (N - 1) * S), T = N * S + idle;
  return {
    N_full: fullFrom(S, Z), N_max: gainsUpTo(S, Z, committed, of.plain_s), N, S_s: S, Z_s: Z,
    iteration_s: T, idle_s: idle, wait_s: Math.max(0, N * S - (S + Z)), load: N * S / T,
    mean_acceptance_length: committed, throughput: { with_bonus: committed * N / T },
  };
}

/** What `--set` takes to simulate the same: the times that are `moved`, and N, d and acceptance. */
function changesOf(of, moved) {
  const step = (a_s, b_s) => `[{first = 1, step = {base_s = ${Math.max(a_s, 0)}, per_token_s = ${b_s}}}]`;
  const [a_s, b_s] = [of.draft_a_s - of.draft_least_s, of.draft_b_s].map((time_s) => time_s / of.slowdown);
  const numbers = of.model === "geometric" ? `beta = ${of.beta}` : `a = ${of.a}, b = ${of.b}`;
  return {
    "drafters.depth": of.d, "verifiers.count": of.N, acceptance: `{model = "${of.model}", ${numbers}}`,
    ...moved.has("draft") && { "drafters.tiers": step(a_s, b_s) },
    ...moved.has("verify") && { "verifiers.tiers": step(of.verify_a_s - of.verify_least_s, of.verify_b_s) },
    ...of.plain_key && (moved.has("verify") || moved.has("plain")) && { [of.plain_key]: `${of.plain_s}s` },
    ...moved.has("latency") && { "link.latency_s": of.latency_s },
    ...moved.has("latency") && of.s_per_byte && { "link.bandwidth_bytes_per_s": 1 / of.s_per_byte },
    ...of.requests < 20 * of.N && { "workload.requests": 20 * of.N },
  };
}
