/** The drawers below the panes: other translations, engine, and the request as code. */

import { writeCode } from "./code.js";
import { loadBetween, sumSamples } from "./engine.js";
import { ServerError, key, readMetrics, translate } from "./server.js";
import { number, say } from "./strings.js";
import { button, byId, copyText, element, said, textOf } from "./text.js";
import { SILENT_MILLISECONDS } from "./waiting.js";

/** @typedef {import("./server.js").Answer} Answer */
/** @typedef {import("./server.js").Body} Body */
/**
 * @typedef {{body: Body, sentence: number | null}} Choice
 *   what the reader chose last: the request that returns it, and the sentence if the text has several
 * @typedef {{text: string, body: Body, direction: Body, answer: Answer, choice?: Choice}} Shown
 *   `direction`: languages and model, without detection
 */

const POLL_MILLISECONDS = 1500;
const BEAM = 5;
// Other interfaces have no field for a chosen translation.
const OWN_FORMS = ["curl", "Python", "gRPC"];

const drawers = Object.fromEntries(
  ["best", "engine", "code"].map((id) => [id, byId(id, HTMLDetailsElement)]),
);
/** @param {string} id */
const bodyOf = (id) => /** @type {HTMLElement} */ (drawers[id].querySelector(".body"));

/** @type {Shown | null} */
let shown = null;

/** @type {(message: unknown) => void} */
let fail = () => {};
/** @type {(fields: Body) => void} */
let use = () => {};

/**
 * @param {(error: unknown) => void} onError
 * @param {(fields: Body) => void} onUse called with the fields of a request for another translation
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
const note = (key) => said("p", { class: "note" }, key);

/** The n-best list of the first sentence. */
async function fillBest() {
  const [body, translation] = [bodyOf("best"), shown?.answer.translations[0]];
  body.ariaBusy = "false";
  if (!shown || !translation) return body.replaceChildren(note("nothing_yet"));
  if (shown.answer.pivot) return body.replaceChildren(note("no_pivot_ways"));
  if (shown.body.format) return body.replaceChildren(note("no_html"));
  const asked = shown;
  body.ariaBusy = "true"; // until the answer, the list is that of an earlier text
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
      element("td", {}, translation.alignments?.length ? button("show_best", () => use(fieldsOf(each.text, rank)), fail) : ""),
    ),
  );
  /** @type {import("./strings.js").Key[]} */
  const heads = ["rank", "translation", "score"];
  const head = element("tr", {}, ...heads.map((each) => said("th", { scope: "col" }, each)), element("td"));
  body.ariaBusy = "false";
  body.replaceChildren(
    note("best_first"),
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)),
  );
}

/** Returns the fields of a request that returns one of the best translations first. @param {string} text @param {number} rank from 0 */
const fieldsOf = (text, rank) => (rank === 0 ? { options: { beam_size: BEAM } } : { target_prefix: text });

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
  const { body, choice } = shown;
  const written = writeCode(choice?.body ?? body, location.origin, key.get() !== "");
  const forms = Object.entries(written).filter(([name]) => !choice || OWN_FORMS.includes(name));
  const number = (choice?.sentence ?? 0) + 1;
  const why = said("p", { class: "note" }, choice?.sentence === null ? "chosen_text" : "chosen_sentence", { number });
  bodyOf("code").replaceChildren(
    ...(choice ? [why] : []),
    ...forms.flatMap(([name, code]) => [
      element(
        "div",
        { class: "tools" },
        element("strong", {}, name),
        button("copy_code", () => copyText(code), fail),
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
    if (!document.hidden) await read();
    await new Promise((done) => setTimeout(done, POLL_MILLISECONDS));
  }
  polling = false;
}

/** Shows the numbers of now; if the server does not answer, the drawer keeps the old ones and says so. */
async function read() {
  try {
    const sums = sumSamples(await readMetrics(AbortSignal.timeout(SILENT_MILLISECONDS)));
    const now = { sums, seconds: performance.now() / 1000 };
    fillEngine(loadBetween(reading, now));
    reading = now;
  } catch (error) {
    reading = null; // the next server counts from 0
    const body = bodyOf("engine");
    if (body.querySelector("[role=status]")) return;
    const key = body.querySelector(".meters") ? "old_numbers" : "no_answer";
    body.prepend(said("p", { class: "over", role: "status" }, key));
    if (error instanceof ServerError && error.status === 401) fail(error);
  }
}

/** @param {import("./engine.js").Load} load */
function fillEngine(load) {
  const round = (/** @type {number | null} */ value) =>
    value === null ? "–" : number(value, value < 100 && !Number.isInteger(value) ? 1 : 0);
  const running = meter(round(load.running), "running");
  const label = { "data-label": "running", "aria-label": say("running") };
  running.append(element("meter", { min: "0", max: String(load.slots || 1), value: String(load.running), ...label }));
  const meters = [
    running,
    meter(round(load.slots), "slots"),
    meter(round(load.waiting), "waiting"),
    meter(round(load.rate), "rate"),
    meter(round(load.batch), "batch"),
    meter(round(load.ended), "ended"),
  ];
  bodyOf("engine").replaceChildren(element("div", { class: "meters" }, ...meters), ...(shown ? [phases(shown.answer)] : []));
}

/** @param {string} value @param {import("./strings.js").Key} label */
const meter = (value, label) => element("div", { class: "meter" }, element("b", {}, value), said("span", {}, label));

/** @param {Answer} answer */
function phases({ timings }) {
  const { tokenize_seconds: tokenize, queue_seconds: queue, inference_seconds: inference, total_seconds: total } = timings;
  const rest = Math.max(0, total - tokenize - queue - inference);
  /** @type {[import("./strings.js").Key, number][]} */
  const rows = [["tokenize", tokenize], ["queue", queue], ["inference", inference], ["other", rest]];
  return element(
    "table",
    {},
    said("caption", { class: "note" }, "phases"),
    ...rows.map(([name, seconds]) =>
      element(
        "tr",
        {},
        said("th", { scope: "row" }, name),
        element("td", { class: "number" }, `${number(1000 * seconds, 2)} ${say("milliseconds")}`),
      ),
    ),
  );
}
