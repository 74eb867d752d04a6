/** The drawers below the panes: attention, other translations, engine, and the request as code. */

import { drawMap, savePng, saveSvg } from "./attention.js";
import { canAlign, chosen } from "./choices.js";
import { writeCode } from "./code.js";
import { loadBetween, sumSamples } from "./engine.js";
import { key, readMetrics, translate } from "./server.js";
import { say } from "./strings.js";
import { button, byId, element, textOf } from "./text.js";

/** @typedef {import("./server.js").Answer} Answer */
/** @typedef {{text: string, body: import("./server.js").Body, answer: Answer}} Shown */

const POLL_MILLISECONDS = 1500;
const BEAM = 5;

const drawers = Object.fromEntries(
  ["attention", "best", "engine", "code"].map((id) => [id, byId(id, HTMLDetailsElement)]),
);
/** @param {string} id */
const bodyOf = (id) => /** @type {HTMLElement} */ (drawers[id].querySelector(".body"));

/** @type {Shown | null} */
let shown = null;
let sentence = 0;

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
  sentence = 0;
  fillOpen();
}

/** Fills the drawers that are open; the others cost nothing. */
export function fillOpen() {
  if (drawers.attention.open) fillAttention();
  if (drawers.best.open) fillBest().catch(fail);
  if (drawers.code.open) fillCode();
  if (drawers.engine.open) poll();
}

const nothing = () => element("p", { class: "note" }, say("nothing_yet"));

function fillAttention() {
  const translation = shown?.answer.translations[0];
  if (!shown || !translation) return bodyOf("attention").replaceChildren(nothing());
  const maps = translation.alignments ?? [];
  if (!maps.length) return bodyOf("attention").replaceChildren(element("p", { class: "note" }, say("no_alignments")));
  sentence = Math.min(sentence, maps.length - 1);
  const map = drawMap(maps[sentence], shown.text, translation.text, say("map", { number: sentence + 1 }));
  const tools = element("div", { class: "tools" });
  if (maps.length > 1) tools.append(chooseSentence(maps.length));
  tools.append(button(say("save_svg"), () => saveSvg(map), fail), button(say("save_png"), () => savePng(map), fail));
  bodyOf("attention").replaceChildren(tools, map, element("p", { class: "note" }, say("mean_heads")));
}

/** @param {number} count */
function chooseSentence(count) {
  const select = element("select", {}, ...Array.from({ length: count }, (_, at) => element("option", {}, String(at + 1))));
  const list = /** @type {HTMLSelectElement} */ (select);
  list.selectedIndex = sentence;
  list.addEventListener("change", () => {
    sentence = list.selectedIndex;
    fillAttention();
    bodyOf("attention").querySelector("select")?.focus();
  });
  return element("label", {}, `${say("sentence")} `, list);
}

/** The n-best list of the first sentence. */
async function fillBest() {
  const translation = shown?.answer.translations[0];
  if (!shown || !translation || shown.answer.pivot) return bodyOf("best").replaceChildren(nothing());
  const asked = shown;
  const text = firstSentence(shown.text, translation);
  const options = { beam_size: BEAM, hypotheses: BEAM };
  const answer = await translate({ ...chosen(), text, split_sentences: false, options });
  if (shown !== asked) return;
  const [best] = answer.translations;
  const rows = [best, ...(best.alternatives ?? [])].map((each, rank) =>
    element(
      "tr",
      {},
      element("td", { class: "number" }, String(rank + 1)),
      element("td", {}, each.text),
      element("td", { class: "number" }, each.normalized_score.toFixed(3)),
      element("td", {}, translation.sentences === 1 ? button(say("show_best"), () => use(each.text), fail) : ""),
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
  if (!shown) return bodyOf("code").replaceChildren(nothing());
  const forms = Object.entries(writeCode(shown.body, location.origin, key.get() !== ""));
  bodyOf("code").replaceChildren(
    ...forms.flatMap(([name, code]) => [
      element(
        "div",
        { class: "tools" },
        element("strong", {}, name),
        button(say("copy_code"), () => navigator.clipboard.writeText(code), fail),
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
    value === null ? "–" : value.toLocaleString(undefined, { maximumFractionDigits: value < 100 ? 1 : 0 });
  const running = meter(round(load.running), say("running"));
  running.append(element("meter", { min: "0", max: String(load.slots || 1), value: String(load.running), "aria-label": say("running") }));
  const meters = [
    running,
    meter(round(load.slots), say("slots")),
    meter(round(load.waiting), say("waiting")),
    meter(round(load.rate), say("rate")),
    meter(round(load.batch), say("batch")),
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
        element("td", { class: "number" }, `${(1000 * seconds).toFixed(2)} ${say("milliseconds")}`),
      ),
    ),
  );
}

/** Lights the row or the column of the word that is lit in the panes. */
document.addEventListener("lit", (event) => {
  if (!drawers.attention.open || !canAlign()) return;
  const { side, index } = /** @type {CustomEvent} */ (event).detail;
  const name = side === "target" ? "row" : "column";
  const maps = shown?.answer.translations[0].alignments ?? [];
  const first = maps.slice(0, sentence).reduce((sum, each) => sum + each[/** @type {"source" | "target"} */ (side)].length, 0);
  for (const cell of bodyOf("attention").querySelectorAll(`[data-${name}="${index - first}"]`)) cell.classList.add("lit");
});
