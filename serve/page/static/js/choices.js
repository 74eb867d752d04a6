/** The choices of languages and model. */

import { languageName, say, write } from "./strings.js";
import { byId, element } from "./text.js";

/** @typedef {import("./server.js").Model} Model */

// The server detects the language of the text.
const AUTO = "auto";

const source = byId("source-language", HTMLSelectElement);
const target = byId("target-language", HTMLSelectElement);
const model = byId("model", HTMLSelectElement);

/** @type {Model[]} */
let models = [];

/** Languages of the reader, the preferred one first. */
const readers = navigator.languages.map((each) => each.split("-")[0]);

/** @param {Model[]} served */
export function setModels(served) {
  const first = !models.length;
  models = served;
  showChoices();
  if (first) proposeTarget(readers[0]);
}

/** Whether the target language was chosen, here or in the address. */
let isChosen = false;

/**
 * Proposes a target for texts of a language, another one that the reader may read, until he chooses one.
 * @param {string} code
 * @returns whether the target has changed
 */
export function proposeTarget(code) {
  if (isChosen) return false;
  const [before, targets] = [target.value, models.flatMap((each) => directTargets(each, code))];
  const wanted = [...readers, "en", ...targets].filter((each) => each !== code);
  select(AUTO, wanted.find((each) => targets.includes(each)) ?? before);
  return target.value !== before;
}

export const hasModels = () => models.length > 0;

/** Source languages of a model. @param {Model} each */
const sourcesOf = (each) =>
  each.languages.length ? each.languages : each.directions.map((direction) => direction.source_language);

/** Targets of a model. @param {Model} each @param {string} code of a source, or AUTO */
const directTargets = (each, code) =>
  !each.languages.length
    ? each.directions
        .filter((direction) => [AUTO, direction.source_language].includes(code))
        .map((direction) => direction.target_language)
    : code === AUTO || each.languages.includes(code)
      ? each.languages.filter((language) => language !== code)
      : [];

/** Target languages of a source, also through one third language. @param {string} code */
function targetsOf(code) {
  const direct = new Set(models.flatMap((each) => directTargets(each, code)));
  const pivots = code === AUTO ? [] : [...direct];
  const further = models
    .filter((each) => !each.languages.length)
    .flatMap((each) => each.directions)
    .filter((direction) => pivots.includes(direction.source_language))
    .map((direction) => direction.target_language);
  const all = models.filter((each) => pivots.some((pivot) => each.languages.includes(pivot))).flatMap((each) => each.languages);
  return [...new Set([...direct, ...further, ...all])].filter((each) => each !== code);
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
  fill(source, models.flatMap(sourcesOf));
  source.prepend(element("option", { value: AUTO }, say("detect")));
  if (before === AUTO) source.value = AUTO;
  showTargets();
}

/** Shows the target languages of the source language, and the models that translate directly. */
export function showTargets() {
  fill(target, targetsOf(source.value));
  const before = model.value;
  const able = models.filter(isAble).map((each) => each.name);
  model.replaceChildren(element("option", { value: "" }, say("any_model")), ...able.map((name) => element("option", {}, name)));
  model.value = able.includes(before) ? before : "";
  byId("model-choice", HTMLLabelElement).hidden = able.length < 2;
  showPurpose();
}

/** Shows what the models are for that translate the chosen direction. */
function showPurpose() {
  const direct = candidates().filter(isAble);
  const used = direct.length ? direct.slice(0, 1) : candidates(); // the server takes the first one
  const description = [...new Set(used.map((each) => each.description))].filter(Boolean).join("; ");
  write(byId("purpose", HTMLElement), description ? "purpose" : "", { description });
}

/** Whether a model has the chosen direction. @param {Model} each */
const isAble = (each) => directTargets(each, source.value).includes(target.value);

/** @param {string} from @param {string} to */
export function choose(from, to) {
  isChosen = true;
  select(from, to);
}

/** @param {string} from @param {string} to */
function select(from, to) {
  if ([...source.options].some((each) => each.value === from)) source.value = from;
  showTargets();
  if ([...target.options].some((each) => each.value === to)) target.value = to;
  showTargets();
}

/** Swaps the languages. @param {string} detected the language of the text, if it was detected */
export const swap = (detected) => choose(target.value, source.value === AUTO ? detected || readers[0] : source.value);

/** The fields of a request for these choices. */
export function chosen() {
  return {
    source_language: source.value,
    target_language: target.value,
    ...(model.value ? { model: model.value } : models.some(isAble) ? {} : { allow_pivot: true }),
  };
}

/** The models that may translate: the chosen one, else those with the direction, else all. */
function candidates() {
  if (model.value) return models.filter((each) => each.name === model.value);
  const direct = models.filter(isAble);
  return direct.length ? direct : models;
}

/** Whether translations have alignments. */
export const canAlign = () => candidates().length > 0 && candidates().every((each) => each.alignments);

/** The most characters of a text. */
export const mostCharacters = () => Math.min(...candidates().map((each) => each.limits.max_text_characters));

source.addEventListener("change", showTargets);
target.addEventListener("change", () => {
  isChosen = true;
  showTargets();
});
model.addEventListener("change", showPurpose);
