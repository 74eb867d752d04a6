/** The attention drawer: the map of a sentence, of the alignment heads or of any layer and head. */

import { drawMap, savePng, saveSvg } from "./attention.js";
import { canAlign } from "./choices.js";
import { ServerError, readAttention } from "./server.js";
import { say } from "./strings.js";
import { button, byId, element, textOf } from "./text.js";

/** @typedef {import("./server.js").Alignment} Alignment */
/** @typedef {import("./drawers.js").Shown} Shown */
/** @typedef {{layers: number, heads: number}} Heads */

// The heads whose mean is the alignment of the model, and the mean over all.
const ALIGNMENT = "alignment";
const ALL = "all";

const drawer = byId("attention", HTMLDetailsElement);
const body = /** @type {HTMLElement} */ (drawer.querySelector(".body"));

/** @type {Shown | null} */
let shown = null;
let sentence = 0;
let [layer, head] = [ALIGNMENT, ALL];
/** @type {SVGSVGElement | null} */
let map = null;
/** @type {Map<string, Heads | null>} what each model gives; null: the mean only */
const known = new Map();
/** Counts drawings: an answer that comes after the next drawing began is dropped. */
let drawings = 0;
/** @type {(error: unknown) => void} */
let fail = () => {};

/** @param {(error: unknown) => void} onError */
export function setUpMap(onError) {
  fail = onError;
  drawer.addEventListener("toggle", fillMap);
}

/** Shows another translation. @param {Shown | null} next */
export function showInMap(next) {
  shown = next;
  sentence = 0;
  fillMap();
}

/** Fills the drawer if it is open. */
export function fillMap() {
  if (drawer.open) fill().catch(fail);
}

const maps = () => shown?.answer.translations[0].alignments ?? [];

async function fill() {
  const drawing = ++drawings;
  if (!shown) return explain("nothing_yet");
  if (shown.body.format) return explain("no_html");
  if (!maps().length) return explain("no_alignments");
  sentence = Math.min(sentence, maps().length - 1);
  const { pivot, model } = shown.answer;
  fillTools();
  await drawChosen(drawing);
  if (pivot || known.has(model)) return;
  known.set(model, await findHeads());
  if (drawing !== drawings) return;
  fillTools();
  await drawChosen(drawing);
}

/** @param {import("./strings.js").Key} note */
function explain(note) {
  map = null;
  body.replaceChildren(element("p", { class: "note" }, say(note)));
}

/** What `/v1/attention` gives for the model of the translation. @returns {Heads | null} */
const heads = () => (shown?.answer.pivot ? null : (known.get(shown?.answer.model ?? "") ?? null));

/** Asks the server once per model. @returns {Promise<Heads | null>} */
async function findHeads() {
  try {
    const { layers, heads } = await read({});
    return { layers, heads };
  } catch (error) {
    if (error instanceof ServerError && error.status === 400) return null;
    throw error;
  }
}

/** Reads the attention of the sentence. @param {Record<string, number>} place */
async function read(place) {
  const { text, answer, direction } = /** @type {Shown} */ (shown);
  const { source, target } = maps()[sentence];
  const pairs = [{ text: textOf(text, source), translation: textOf(answer.translations[0].text, target) }];
  const { source_language, target_language } = direction;
  return readAttention({ pairs, source_language, target_language, model: answer.model, ...place });
}

/** Draws the map of the chosen sentence, layer and head. @param {number} drawing */
async function drawChosen(drawing) {
  const { text, answer } = /** @type {Shown} */ (shown);
  const label = say("map", { number: sentence + 1 });
  if (layer === ALIGNMENT || !heads()) return put(drawMap(maps()[sentence], text, answer.translations[0].text, label));
  const place = { ...(layer === ALL ? {} : { layer: Number(layer) }), ...(head === ALL ? {} : { head: Number(head) }) };
  const { source } = maps()[sentence];
  const { attentions } = await read(place);
  if (drawing !== drawings) return;
  put(drawMap(attentions[0].alignment, textOf(text, source), attentions[0].translation, `${label}. ${say("shown_head", names())}`));
}

/** The chosen layer and head in words. */
const names = () => ({ layer: layer === ALL ? say("all") : layer, head: head === ALL ? say("all") : head });

/** @param {SVGSVGElement} drawn */
function put(drawn) {
  map = drawn;
  const note = layer === ALIGNMENT || !heads() ? say("mean_heads") : `${say("shown_head", names())} ${say("cells")}`;
  // A choice that is moved would lose the focus.
  for (const each of [...body.children]) if (!each.matches(".tools")) each.remove();
  body.append(drawn, element("p", { class: "note" }, [note, limits()].filter(Boolean).join(" ")));
  if (document.querySelector("#panes .lit")) lightCells();
}

/** Why there is no choice of layer and head, if there is none. */
function limits() {
  if (shown?.answer.pivot) return say("pivot_mean");
  return known.get(shown?.answer.model ?? "") === null ? say("only_mean") : "";
}

/** Shows the choices; the focus stays where it is. */
function fillTools() {
  const focused = document.activeElement?.id;
  const tools = element("div", { class: "tools" });
  if (maps().length > 1)
    tools.append(select("sentence", maps().map((_, at) => [String(at), String(at + 1)]), String(sentence), (value) => (sentence = Number(value))));
  const found = heads();
  if (found) {
    const numbers = (/** @type {number} */ count) => Array.from({ length: count }, (_, at) => [String(at), String(at)]);
    const layers = [[ALIGNMENT, say("alignment_heads")], [ALL, say("all")], ...numbers(found.layers)];
    tools.append(select("layer", layers, layer, (value) => (layer = value)));
    if (layer !== ALIGNMENT)
      tools.append(select("head", [[ALL, say("all")], ...numbers(found.heads)], head, (value) => (head = value)));
  }
  const saves = [button("save_svg", () => map && saveSvg(map, fileName()), fail), button("save_png", () => map && savePng(map, fileName()), fail)];
  [saves[0].id, saves[1].id] = ["map-svg", "map-png"]; // to find the focus again
  tools.append(...saves);
  const before = body.querySelector(".tools");
  if (before) before.replaceWith(tools);
  else body.replaceChildren(tools);
  if (focused) document.getElementById(focused)?.focus();
}

const fileName = () => (layer === ALIGNMENT || !heads() ? "attention" : `attention-layer-${layer}-head-${head}`);

/**
 * @param {"sentence" | "layer" | "head"} name
 * @param {string[][]} options values and texts
 * @param {string} value
 * @param {(value: string) => void} use
 */
function select(name, options, value, use) {
  const list = element("select", { id: `map-${name}` }, ...options.map(([each, text]) => element("option", { value: each }, text)));
  const box = /** @type {HTMLSelectElement} */ (list);
  box.value = value;
  box.addEventListener("change", () => {
    use(box.value);
    fillMap();
  });
  return element("label", {}, `${say(name)} `, box);
}

/** The word of the panes that was lit last. @type {{side: string, index: number}} */
let lit = { side: "target", index: -1 };

/** Lights the row or the column of the word that is lit in the panes. */
function lightCells() {
  if (!drawer.open || !canAlign()) return;
  const { side, index } = lit;
  const name = side === "target" ? "row" : "column";
  const first = maps().slice(0, sentence).reduce((sum, each) => sum + each[/** @type {"source" | "target"} */ (side)].length, 0);
  for (const cell of body.querySelectorAll(`[data-${name}="${index - first}"]`)) cell.classList.add("lit");
}

document.addEventListener("lit", (event) => {
  lit = /** @type {CustomEvent} */ (event).detail;
  lightCells();
});
