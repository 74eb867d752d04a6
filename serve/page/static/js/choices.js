/** The choices of languages and model. */

import { languageName, say } from "./strings.js";
import { byId, element } from "./text.js";

/** @typedef {import("./server.js").Model} Model */

// The server detects the language of the text.
const AUTO = "auto";

const source = byId("source-language", HTMLSelectElement);
const target = byId("target-language", HTMLSelectElement);
const model = byId("model", HTMLSelectElement);

/** @type {Model[]} */
let models = [];

/** @param {Model[]} served */
export function setModels(served) {
  models = served;
  showChoices();
}

const directions = () => models.flatMap((each) => each.directions);

/** Target languages of a source, also through one third language. @param {string} code */
function targetsOf(code) {
  if (code === AUTO) return directions().map((each) => each.target_language);
  const direct = directions().filter((each) => each.source_language === code).map((each) => each.target_language);
  const further = directions().filter((each) => direct.includes(each.source_language)).map((each) => each.target_language);
  return [...new Set([...direct, ...further])].filter((each) => each !== code);
}

/**
 * @param {HTMLSelectElement} select
 * @param {string[]} codes
 */
function fill(select, codes) {
  const before = select.value;
  const named = [...new Set(codes)].map((code) => ({ code, name: languageName(code) }));
  named.sort((one, other) => one.name.localeCompare(other.name));
  select.replaceChildren(...named.map(({ code, name }) => element("option", { value: code }, name)));
  if (codes.includes(before)) select.value = before;
}

/** Shows what the models offer, in the language of the page. */
export function showChoices() {
  const before = source.value;
  fill(source, directions().map((each) => each.source_language));
  source.prepend(element("option", { value: AUTO }, say("detect")));
  if (before === AUTO) source.value = AUTO;
  showTargets();
}

/** Shows the target languages of the source language, and the models that translate directly. */
export function showTargets() {
  fill(target, targetsOf(source.value));
  const before = model.value;
  const able = models.filter((each) => each.directions.some(isChosen)).map((each) => each.name);
  model.replaceChildren(element("option", { value: "" }, say("any_model")), ...able.map((name) => element("option", {}, name)));
  model.value = able.includes(before) ? before : "";
  byId("model-choice", HTMLLabelElement).hidden = able.length < 2;
}

/** @param {{source_language: string, target_language: string}} direction */
const isChosen = (direction) =>
  [AUTO, direction.source_language].includes(source.value) && direction.target_language === target.value;

/** @param {string} from @param {string} to */
export function choose(from, to) {
  if ([...source.options].some((each) => each.value === from)) source.value = from;
  showTargets();
  if ([...target.options].some((each) => each.value === to)) target.value = to;
  showTargets();
}

/** Swaps the languages. @param {string} detected the language of the text, if it was detected */
export const swap = (detected) => choose(target.value, source.value === AUTO ? detected : source.value);

/** The fields of a request for these choices. */
export function chosen() {
  return {
    source_language: source.value,
    target_language: target.value,
    ...(model.value ? { model: model.value } : models.some((each) => each.directions.some(isChosen)) ? {} : { allow_pivot: true }),
  };
}

/** The models that may translate: the chosen one, else those with the direction, else all. */
function candidates() {
  if (model.value) return models.filter((each) => each.name === model.value);
  const direct = models.filter((each) => each.directions.some(isChosen));
  return direct.length ? direct : models;
}

/** Whether translations have alignments. */
export const canAlign = () => candidates().length > 0 && candidates().every((each) => each.alignments);

/** The most characters of a text. */
export const mostCharacters = () => Math.min(...candidates().map((each) => each.limits.max_text_characters));

source.addEventListener("change", showTargets);
target.addEventListener("change", showTargets);
