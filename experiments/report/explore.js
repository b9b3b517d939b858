// The page: controls, figures, table and command, all drawn anew at each move.
const byId = (id) => document.getElementById(id);
const shown = (x) => !Number.isFinite(x) ? "-" : Math.abs(x) >= 1e4 ? x.toFixed(0) : String(Number(x.toPrecision(4)));
const upTo = (count, make) => Array.from({ length: count }, (_, i) => make(i));
const niceAbove = (x) => {
  const power = 10 ** Math.floor(Math.log10(x));
  return power * [1, 2, 4, 5, 10].find((step) => step * power >= x * (1 - 1e-9));
};
const CONTROLS = [  // key, words, least value or its key, most and step; times may be typed beyond their sliders
  ["N", "N, targets", 1, () => mostN, 1], ["d", "d, draft tokens", 1, () => state.depths, 1],
  ["draft_a_s", "a of S = a + b d, ms", "draft_least_s"], ["draft_b_s", "b, each token, ms", 0],
  ["latency_s", "link, one way, ms", 0], ["verify_a_s", "verification, ms", "verify_least_s"],
  ["plain_s", "plain step, ms", 0], ["beta", "beta, acceptance", 0, () => 1],
  ["a", "a of Beta(a, b)", 0.01, () => 20], ["b", "b of Beta(a, b)", 0.01, () => 20],
];
const ROWS = [  // quantity, unit, value
  ["N_full, targets that keep the drafter busy", "targets", (of) => of.N_full],
  ["N_max, most targets at which each gains", "targets", (of) => of.N_max], ["O, throughput, with bonus tokens", "tokens/s", (of) => O(of)],
  ["O_i, of a target", "tokens/s", (of) => O(of) / of.N], ["E[l(d)] + 1", "tokens/verification", (of) => of.mean_acceptance_length],
  ["S(d), drafter's time a round", "ms", (of) => 1e3 * of.S_s], ["Z(d), links, verification", "ms", (of) => 1e3 * of.Z_s],
  ["T_gamma, an iteration", "ms", (of) => 1e3 * of.iteration_s], ["load of the drafter", "%", (of) => 100 * of.load],
  ["T_idle, drafter's gap", "ms", (of) => 1e3 * of.idle_s], ["T_wait, of a request", "ms", (of) => 1e3 * of.wait_s],
];
let state, mostN, moved = new Set();

/** Add a number and its slider; a law that is moved becomes a straight line. */
function addControl([key, words, low, high, step = "any"]) {
  const scale = words.endsWith(", ms") ? 1e-3 : 1, value = state[key] / scale, label = document.createElement("label");
  const least = Math.min(low in state ? state[low] / scale : low, value);
  const most = Math.max(high ? high() : niceAbove(Math.max(4 * value, 10)), value);
  const rounded = (x) => Math.min(high ? most : Infinity, Math.max(least, Number(x.toPrecision(4))));
  const range = `min="${least}" step="${step}"`, end = `max="${most}"`;
  label.id = `of-${key}`;
  label.innerHTML = `<span>${words}</span><input type="range" ${range} ${end}>
    <input type="number" required ${range} ${high ? end : ""} aria-label="${words}">`;
  const inputs = label.querySelectorAll("input");
  inputs.forEach((input) => { input.value = rounded(value); });
  label.addEventListener("input", ({ target }) => {
    if (target.value === "" || !target.validity.valid) return;
    const chosen = rounded(Number(target.value)), [group] = key.split("_");
    for (const input of inputs) if (input !== target) input.value = chosen;
    state[key] = Number((chosen * scale).toPrecision(12));
    state[`${group}_rest_s`] = null;
    moved.add(group);
    if (group === "verify" && state.plain_key && !moved.has("plain")) {  // as of a token in `analytic`
      state.plain_s = state.verify_a_s - state.verify_least_s + state.verify_b_s;
      document.querySelectorAll("#of-plain_s input").forEach((input) => { input.value = shown(1e3 * state.plain_s); });
    }
    draw();
  });
  byId("controls").append(label);
}

const at = (changes, isBlock) => compute({ ...state, ...changes }, isBlock);
const O = (of) => of.throughput.with_bonus;
const text = (x, y, words, more = "") => `<text x="${x}" y="${y}" ${more}>${words}</text>`;
const axis = (x, y, words) => text(x, y, words, 'text-anchor="middle" class="soft"');
const line = (x1, y1, x2, y2, kind = "") => `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" class="${kind}"/>`;
const bar = (x, y, width, kind) => `<rect x="${x}" y="${y}" width="${width}" height="14" ${kind}/>`;

/** Draw tokens/s of chain, block and plain decoding for N or d from 1 to `most`; marks are named above. */
function plot(svg, width, key, most, title, marks) {
  const [left, right, bottom, count] = [46, width - 12, 260, Math.min(most, 200)], every = niceAbove(26 * most / width);
  const xs = upTo(count, (i) => Math.round(1 + i * (most - 1) / (count - 1)));
  const heights = (isBlock) => xs.map((x) => O(at({ [key]: x }, isBlock)));
  const chain = heights(false), block = byId("block").checked ? heights(true) : [];
  const plain = xs.map((x) => (key === "N" ? x : state.N) / state.plain_s);
  const tick = niceAbove(Math.max(...chain, ...block) / 5), X = (x) => left + (x - 1) / (most - 1) * (right - left);
  const Y = (y) => bottom - y / tick * 40;
  const points = (ys) => ys.map((y, i) => `${X(xs[i])},${Y(y)}`).filter((_, i) => ys[i] <= 5 * tick);
  const curve = (ys, hue, kind = "") => `<polyline class="${kind}" style="stroke:var(--${hue})" points="${points(ys)}"/>`;
  const ticks = upTo(6, (i) => line(left, Y(i * tick), right, Y(i * tick))
    + text(left - 6, Y(i * tick) + 4, shown(i * tick), 'text-anchor="end" class="soft"'));
  const numbers = xs.filter((x) => x === 1 || x % every === 0).map((x) => axis(X(x), bottom + 16, x));
  const named = marks.filter(([x]) => x >= 1 && x <= most).map(([x, words], row) => {
    const y = 34 + 14 * row, [gap, anchor] = 2 * x > most ? [-4, "end"] : [4, "start"];
    return line(X(x), y - 4, X(x), bottom, "mark") + text(X(x) + gap, y, words, `text-anchor="${anchor}"`);
  });
  svg.setAttribute("height", bottom + 40);
  svg.innerHTML = [...ticks, ...numbers, axis((left + right) / 2, bottom + 34, title), text(0, 14, "tokens/s"), ...named,
    curve(plain, "soft", "plain"), ...(block.length ? [curve(block, "orange")] : []), curve(chain, "blue"),
    `<circle cx="${X(state[key])}" cy="${Y(O(compute(state)))}" r="5" style="fill:var(--blue)"/>`].join("");
}

/** Draw one iteration; what begins in it and ends in the next stands at its beginning. */
function drawTimeline(svg, width, { S_s: S, Z_s: Z, iteration_s: T }) {
  const [left, right, lanes] = [66, width - 12, Math.min(state.N, 8)], bottom = 26 + 19 * lanes;
  const back = (Z - timeOf("verify", state, state.d)) / 2, X = (time) => left + time / T * (right - left);
  const box = (lane, from, length, colour) => [from % T, from % T - T]
    .map((begin) => [Math.max(begin, 0), Math.min(begin + length, T)]).filter(([low, high]) => high > low)
    .map(([low, high]) => bar(X(low), 4 + 19 * lane, X(high) - X(low), `style="fill:var(--${colour})"`)).join("");
  const lane = (number, words, boxes) => text(0, 15 + 19 * number, words, 'class="soft"')
    + bar(left, 4 + 19 * number, right - left, 'class="lane"') + boxes;
  const targets = upTo(lanes, (i) => lane(i + 1, `target ${i + 1}`, box(i + 1, i * S, S, "blue")
    + box(i + 1, (i + 1) * S, Z, "purple") + box(i + 1, (i + 1) * S + back, Z - 2 * back, "green")));
  const tick = niceAbove(T / (right < 500 ? 4 : 8)), more = state.N > lanes ? `; ${state.N - lanes} more do the same` : "";
  svg.setAttribute("height", bottom + 38);
  svg.innerHTML = [lane(0, "drafter", upTo(state.N, (i) => box(0, i * S, S, "blue")).join("")), ...targets,
    ...upTo(Math.floor(T / tick + 1e-9) + 1, (i) => axis(X(i * tick), bottom + 14, shown(1e3 * i * tick))),
    text(left, bottom + 32, `ms; an iteration takes T_gamma = ${shown(1e3 * T)} ms${more}`)].join("");
}

/** The depth that is best at this N, the shallowest of those within 1 % of the best, and its words. */
function bestDepth(isBlock) {
  const found = upTo(state.depths, (i) => O(at({ d: i + 1 }, isBlock))), most = Math.max(...found);
  const best = 1 + found.findIndex((value) => value >= 0.99 * most);
  return [best, `${best}${best === state.depths ? " or more" : ""}`];
}

const quoted = (word) => /^[\w.,:=\/+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;

/** The command that simulates the same; changes from before stay where the page has none of its own. */
function command() {
  const ours = Object.entries(changesOf(state, moved));
  const earlier = Object.entries(state.changes).filter(([key]) => !ours.some(([own]) => `${key}.`.startsWith(`${own}.`)));
  const sets = [...earlier, ...ours].map(([key, value]) => `--set ${quoted(`${key}=${value}`)}`);
  return ["specfleet simulate", quoted(state.scenario), ...sets].join(" ");
}

const targets = (count) => `${count} target${count === 1 ? "" : "s"}`;
const serves = (of) => `serves ${targets(of.N_full)} (N_full): it is then always busy, and more raise no throughput`
  + (!(state.plain_s > 0) ? "" : of.N_max ? `; with up to ${of.N_max} (N_max) each is at least as fast as without speculation`
    : "; none is as fast as without speculation (N_max = 0)");

function draw() {
  const [byN, byDepth, timeline] = ["by-N", "by-d", "timeline"].map((id) => [byId(id), byId(id).clientWidth]);
  for (const key of ["beta", "a", "b"]) byId(`of-${key}`).hidden = (state.model === "geometric") !== (key === "beta");
  const isFlat = !(state.draft_b_s > 0 || state.draft_rest_s);  // a stated S: a block's is the same
  byId("of-block").hidden = isFlat;
  byId("block").checked &&= !isFlat;
  const [[of, best], [block, bestOfBlock]] = [false, true].map((isBlock) => [compute(state, isBlock), bestDepth(isBlock)]);
  if (!(block.S_s > 0)) return byId("answer").replaceChildren("S(d) = 0: the equations need drafts that take time.");
  const each = O(of) / of.N, gain = each * state.plain_s, ofBlock = (mark) => byId("block").checked ? [mark] : [];
  byId("answer").innerHTML = `<p><b>One drafter ${serves(of)}.</b></p><p>With N = ${of.N} it works `
    + `${Math.round(100 * of.load)} % of the time; up to ${targets(keepsUpWith(of))} none waits for it.</p><p>N = ${of.N}, d = ${state.d}: <b>${shown(O(of))} tokens/s</b>, ${shown(each)} a target`
    + `${gain > 0 ? `, ${shown(gain)} times its speed without speculation, at a plain step of ${shown(1e3 * state.plain_s)} ms` : ""}. `
    + `${isFlat ? "S(d) is the same at each depth" : `The best depth at this N is ${best[1]}`}.</p>`
    + ofBlock(`<p>A block drafter: <b>${shown(O(block))} tokens/s</b>; it ${serves(block)}.</p>`).join("");
  plot(...byN, "N", mostN, "N, targets", [[of.N_full, `N_full = ${of.N_full}`], [of.N_max, `N_max = ${of.N_max}`],
    ...ofBlock([block.N_full, `block: N_full = ${block.N_full}`])]);
  plot(...byDepth, "d", state.depths, `d, draft tokens a round, at N = ${state.N}`, [
    [best[0], `best d = ${best[1]}`], ...ofBlock([bestOfBlock[0], `block: best d = ${bestOfBlock[1]}`])]);
  drawTimeline(...timeline, of);
  byId("numbers").innerHTML = ROWS.map(([words, unit, value]) => `<tr><td>${words}</td>`
    + `<td class="n">${shown(value(of))}</td><td class="n of-block">${shown(value(block))}</td><td>${unit}</td></tr>`).join("");
  document.querySelectorAll(".of-block").forEach((part) => { part.hidden = !byId("block").checked; });
  byId("command").textContent = command();
}

function start(settings) {
  state = settings;
  const { N, N_full, N_max } = compute(state);
  mostN = niceAbove(Math.max(16, 2 * N, Math.min(N_full, 180), Math.min(N_max, 180)));
  CONTROLS.filter(([key]) => state.plain_key || key !== "plain_s").forEach(addControl);
  byId("of-beta").before(byId("of-model"));
  byId("controls").append(byId("of-block"));
  byId("block").oninput = draw;
  byId("model").value = state.model;
  byId("model").oninput = ({ target }) => { state.model = target.value; draw(); };
  byId("copy").onclick = () => { getSelection().selectAllChildren(byId("command")); document.execCommand("copy"); };
  addEventListener("resize", draw);
  draw();
}
