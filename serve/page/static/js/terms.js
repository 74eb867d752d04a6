/** Terms with given translations: those that one types, and stored glossaries. */

import { canAlign } from "./choices.js";
import { listGlossaries } from "./server.js";
import { say } from "./strings.js";
import { byId, element } from "./text.js";

const box = byId("terms-text", HTMLTextAreaElement);
const stored = byId("glossaries", HTMLFieldSetElement);
const applied = byId("terms-applied", HTMLElement);

/**
 * Reads a line "term = translation | another form"; without translation, the term stays as it is.
 * @param {string} line
 */
function readLine(line) {
  const [source, forms = ""] = line.split(/=(.*)/s).map((each) => each.trim());
  const targets = forms.split("|").map((each) => each.trim());
  return { source, targets: targets.filter(Boolean) };
}

/** Returns the fields of a request, none if there are no terms. @returns {import("./server.js").Body} */
export function chosenTerms() {
  if (!canAlign()) return {};
  const terms = box.value.split("\n").map(readLine).filter(({ source }) => source);
  const glossary = [...stored.querySelectorAll("input:checked")].map((each) => /** @type {HTMLInputElement} */ (each).value);
  return { ...(terms.length ? { terms } : {}), ...(glossary.length ? { glossary } : {}) };
}

/** Shows the terms of a translation, and how they came in. @param {import("./server.js").Translation | null} translation */
export function showTerms(translation) {
  const rows = (translation?.terms ?? []).map(({ source, target, way }) =>
    element("tr", {}, element("td", {}, source), element("td", {}, target), element("td", {}, say(way))),
  );
  const note = canAlign() ? "no_terms" : "no_alignments";
  applied.replaceChildren(rows.length ? element("table", {}, ...rows) : element("p", { class: "note" }, say(note)));
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
}
