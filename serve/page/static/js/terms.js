/** Terms with given translations: those that one types, and stored glossaries. */

import { canAlign } from "./choices.js";
import { listGlossaries } from "./server.js";
import { say } from "./strings.js";
import { byId, element, said } from "./text.js";

const box = byId("terms-text", HTMLTextAreaElement);
const stored = byId("glossaries", HTMLFieldSetElement);
const applied = byId("terms-applied", HTMLElement);
const problems = byId("terms-problem", HTMLElement);
// A line is not complete while it is typed.
const PAUSE_MILLISECONDS = 800;

/** @typedef {{line: number, source: string, targets: string[], problem: "term_form" | "term_twice" | "", text: string}} Line */

/**
 * Reads the lines "term = translation | another form", counted from 1; with nothing after =, the term stays as it is.
 * @returns {Line[]}
 */
function readLines() {
  const known = new Set();
  return box.value.split("\n").map((whole, at) => {
    const text = whole.trim();
    const [source, forms] = text.split(/=(.*)/s).map((each) => each.trim());
    const targets = (forms ?? "").split("|").map((each) => each.trim());
    const problem = text && (!source || forms === undefined) ? "term_form" : known.has(source) ? "term_twice" : "";
    if (source && !problem) known.add(source);
    return { line: at + 1, source, targets: targets.filter(Boolean), problem, text: problem === "term_twice" ? source : text };
  });
}

const validLines = () => readLines().filter(({ source, problem }) => source && !problem);

/** Shows which lines are not used, and what they should be. */
function showProblems() {
  const wrong = readLines().filter(({ problem }) => problem);
  problems.replaceChildren(...wrong.map(({ line, problem, text }) => said("p", {}, problem, { line, text })));
}

/** Returns a message of the server, with the line and the term in place of an index. @param {string} message */
export function describeTermProblem(message) {
  const [, index, rest] = /^terms\[(\d+)\][^:]*: (.*)$/s.exec(message) ?? [];
  const found = index && validLines()[Number(index)];
  return found ? say("term_problem", { line: found.line, text: found.source, problem: rest }) : message;
}

/** Returns the fields of a request, none if there are no terms. @returns {import("./server.js").Body} */
export function chosenTerms() {
  if (!canAlign()) return {};
  const terms = validLines().map(({ source, targets }) => ({ source, targets }));
  const glossary = [...stored.querySelectorAll("input:checked")].map((each) => /** @type {HTMLInputElement} */ (each).value);
  return { ...(terms.length ? { terms } : {}), ...(glossary.length ? { glossary } : {}) };
}

/** Shows the terms of a translation, and how they came in. @param {import("./server.js").Translation | null} translation */
export function showTerms(translation) {
  const rows = (translation?.terms ?? []).map(({ source, target, way }) =>
    element("tr", {}, element("td", {}, source), element("td", {}, target), said("td", {}, way)),
  );
  const note = canAlign() ? "no_terms" : "no_alignments";
  applied.replaceChildren(rows.length ? element("table", {}, ...rows) : said("p", { class: "note" }, note));
}

/** Lists the stored glossaries when the drawer opens. @param {(error: unknown) => void} fail */
async function listStored(fail) {
  try {
    const kept = new Set(chosenTerms().glossary);
    const labels = (await listGlossaries()).map(({ id, name }) => {
      const check = element("input", { type: "checkbox", value: id });
      /** @type {HTMLInputElement} */ (check).checked = kept.has(id);
      return element("label", {}, check, ` ${name}`);
    });
    stored.replaceChildren(/** @type {Node} */ (stored.firstElementChild), ...labels);
    stored.hidden = !labels.length;
  } catch (error) {
    fail(error);
  }
}

/**
 * @param {() => void} onChange
 * @param {(error: unknown) => void} onError
 */
export function setUpTerms(onChange, onError) {
  const drawer = byId("terms", HTMLDetailsElement);
  drawer.addEventListener("toggle", () => drawer.open && listStored(onError));
  drawer.addEventListener("input", onChange);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let pause;
  box.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(showProblems, PAUSE_MILLISECONDS);
  });
}
