/** The drawers below the panes: other translations, engine, and the request as code. */

import { writeCode } from "./code.js";
import { loadBetween, sumSamples } from "./engine.js";
import { key, readMetrics, translate } from "./server.js";
import { number, say } from "./strings.js";
import { button, byId, copyText, element, textOf } from "./text.js";

/** @typedef {import("./server.js").Answer} Answer */
/**
 * @typedef {{text: string, body: import("./server.js").Body, direction: import("./server.js").Body, answer: Answer}} Shown
 *   `direction`: languages and model, without detection
 */

const POLL_MILLISECONDS = 1500;
const BEAM = 5;

const drawers = Object.fromEntries(
  ["best", "engine", "code"].map((id) => [id, byId(id, HTMLDetailsElement)]),
);
/** @param {string} id */
const bodyOf = (id) => /** @type {HTMLElement} */ (drawers[id].querySelector(".body"));

/** @type {Shown | null} */
let shown = null;

/** @type {(message: unknown) => void} */
let fail = () => {};
/** @type {(text: string) => void} */
let use = () => {};

/**
 * @param {(error: unknown) => void} onError
 * @param {(text: string) => void} onUse called with a translation to show instead
 */
export function setUpDrawers(onError, onUse) {
  fail = onError;
  use = onUse;
  for (const drawer of Object.values(drawers)) drawer.addEventListener("toggle", fillOpen);
}

/** Shows another translation in the drawers. @param {Shown | null} next */
export function showInDrawers(next) {
  shown = next;
  fillOpen();
}

/** Fills the drawers that are open; the others cost nothing. */
export function fillOpen() {
  if (drawers.best.open) fillBest().catch(fail);
  if (drawers.code.open) fillCode();
  if (drawers.engine.open) poll();
}

/** @param {import("./strings.js").Key} key */
const note = (key) => element("p", { class: "note" }, say(key));

/** The n-best list of the first sentence. */
async function fillBest() {
  const translation = shown?.answer.translations[0];
  if (!shown || !translation) return bodyOf("best").replaceChildren(note("nothing_yet"));
  if (shown.answer.pivot) return bodyOf("best").replaceChildren(note("no_pivot_ways"));
  if (shown.body.format) return bodyOf("best").replaceChildren(note("no_html"));
  const asked = shown;
  const text = firstSentence(shown.text, translation);
  const options = { beam_size: BEAM, hypotheses: BEAM };
  const answer = await translate({ ...shown.direction, text, split_sentences: false, options });
  if (shown !== asked) return;
  const [best] = answer.translations;
  const rows = [best, ...(best.alternatives ?? [])].map((each, rank) =>
    element(
      "tr",
      {},
      element("td", { class: "number" }, String(rank + 1)),
      element("td", { dir: "auto" }, each.text),
      element("td", { class: "number" }, number(each.normalized_score, 3)),
      element("td", {}, translation.alignments?.length ? button(say("show_best"), () => use(each.text), fail) : ""),
    ),
  );
  const heads = [say("rank"), say("translation"), say("score"), ""];
  const head = element("tr", {}, ...heads.map((each) => element(each ? "th" : "td", each ? { scope: "col" } : {}, each)));
  bodyOf("best").replaceChildren(
    element("p", { class: "note" }, say("best_first")),
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)),
  );
}

/**
 * @param {string} text
 * @param {import("./server.js").Translation} translation
 */
function firstSentence(text, translation) {
  const units = translation.alignments?.[0]?.source;
  if (!units?.length || translation.sentences === 1) return text.trim();
  return textOf(text, units);
}

function fillCode() {
  if (!shown) return bodyOf("code").replaceChildren(note("nothing_yet"));
  const forms = Object.entries(writeCode(shown.body, location.origin, key.get() !== ""));
  bodyOf("code").replaceChildren(
    ...forms.flatMap(([name, code]) => [
      element(
        "div",
        { class: "tools" },
        element("strong", {}, name),
        button(say("copy_code"), () => copyText(code), fail),
      ),
      element("pre", { tabindex: "0", "aria-label": name }, code),
    ]),
  );
}

/** @type {{sums: Map<string, number>, seconds: number} | null} */
let reading = null;
let polling = false;

/** Reads the metrics while the drawer is open and the page is visible. */
async function poll() {
  if (polling) return;
  polling = true;
  while (drawers.engine.open) {
    if (!document.hidden) {
      try {
        const now = { sums: sumSamples(await readMetrics()), seconds: performance.now() / 1000 };
        fillEngine(loadBetween(reading, now));
        reading = now;
      } catch (error) {
        fail(error);
        drawers.engine.open = false;
      }
    }
    await new Promise((done) => setTimeout(done, POLL_MILLISECONDS));
  }
  polling = false;
}

/** @param {import("./engine.js").Load} load */
function fillEngine(load) {
  const round = (/** @type {number | null} */ value) =>
    value === null ? "–" : number(value, value < 100 && !Number.isInteger(value) ? 1 : 0);
  const running = meter(round(load.running), say("running"));
  running.append(element("meter", { min: "0", max: String(load.slots || 1), value: String(load.running), "aria-label": say("running") }));
  const meters = [
    running,
    meter(round(load.slots), say("slots")),
    meter(round(load.waiting), say("waiting")),
    meter(round(load.rate), say("rate")),
    meter(round(load.batch), say("batch")),
    meter(round(load.ended), say("ended")),
  ];
  bodyOf("engine").replaceChildren(element("div", { class: "meters" }, ...meters), ...(shown ? [phases(shown.answer)] : []));
}

/** @param {string} value @param {string} label */
const meter = (value, label) => element("div", { class: "meter" }, element("b", {}, value), element("span", {}, label));

/** @param {Answer} answer */
function phases({ timings }) {
  const { tokenize_seconds: tokenize, queue_seconds: queue, inference_seconds: inference, total_seconds: total } = timings;
  const rest = Math.max(0, total - tokenize - queue - inference);
  /** @type {[import("./strings.js").Key, number][]} */
  const rows = [["tokenize", tokenize], ["queue", queue], ["inference", inference], ["other", rest]];
  return element(
    "table",
    {},
    element("caption", { class: "note" }, say("phases")),
    ...rows.map(([name, seconds]) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, say(name)),
        element("td", { class: "number" }, `${number(1000 * seconds, 2)} ${say("milliseconds")}`),
      ),
    ),
  );
}
