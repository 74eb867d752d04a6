/** The translator: translates while one types, and shows the result. */

import { closeList, findWays, openList } from "./alternatives.js";
import { canAlign, choose, chosen, mostCharacters, setModels, showChoices, swap } from "./choices.js";
import { fillOpen, setUpDrawers, showInDrawers } from "./drawers.js";
import { setUpFiles } from "./files.js";
import { onChoice, reset, showGrowing, showWords, targetElement } from "./panes.js";
import { ServerError, key, listModels, stream, translate } from "./server.js";
import { LANGUAGES, currentLanguage, languageName, say, useLanguage, writeTexts } from "./strings.js";
import { chosenTerms, setUpTerms, showTerms } from "./terms.js";
import { CodePoints, byId, countCharacters, element, textOf } from "./text.js";
import { findWords, textBefore } from "./words.js";

/** @typedef {import("./server.js").Answer} Answer */

const PAUSE_MILLISECONDS = 200;
// Below this mean probability per token, the page warns if the model states no limit of its own.
const LOW_CERTAINTY = 0.4;
const THEMES = ["auto", "light", "dark"];

const source = byId("source", HTMLTextAreaElement);
const target = byId("target", HTMLElement);
const count = byId("count", HTMLElement);
const problem = byId("error", HTMLElement);
const html = byId("html", HTMLInputElement);
const preview = byId("preview", HTMLIFrameElement);
const dialog = byId("key-dialog", HTMLDialogElement);

/** @type {AbortController | null} */
let running = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let pause;
let detected = "";
/** @type {{text: string, translation: string, words: import("./words.js").Words} | null} */
let shown = null;

/** Translates after a pause; a translation in progress ends at once, which frees its slot. */
function translateSoon() {
  clearTimeout(pause);
  running?.abort();
  pause = setTimeout(translateNow, PAUSE_MILLISECONDS);
  showCount();
}

async function translateNow() {
  clearTimeout(pause);
  running?.abort();
  closeList();
  problem.textContent = "";
  const text = source.value;
  writeLink();
  if (!text.trim() || countCharacters(text) > mostCharacters()) return clearTranslation();
  const controller = (running = new AbortController());
  try {
    const body = requestBody(text);
    let grown = "";
    const show = (/** @type {string} */ more) => {
      if (!controller.signal.aborted) showGrowing((grown += more));
    };
    const answer = body.format ? await translate(body, controller.signal) : await stream(body, show, controller.signal);
    if (!controller.signal.aborted) showAnswer(text, body, answer);
  } catch (error) {
    if (!controller.signal.aborted) showError(error);
  }
}

/** @param {string} text @returns {import("./server.js").Body} */
function requestBody(text) {
  const common = { text, ...chosen(), ...chosenTerms() };
  if (html.checked) return { ...common, format: "html" };
  return { ...common, options: { token_scores: true, ...(canAlign() ? { alignments: "words" } : {}) } };
}

/**
 * @param {string} text
 * @param {import("./server.js").Body} body
 * @param {Answer} answer
 */
function showAnswer(text, body, answer) {
  const [translation] = answer.translations;
  showTranslation(text, translation);
  preview.hidden = !html.checked;
  if (html.checked) preview.srcdoc = translation.text;
  byId("route", HTMLElement).textContent = answer.pivot
    ? say("route_pivot", { language: languageName(answer.pivot.language), first: answer.pivot.model, second: answer.model })
    : say("route", { model: answer.model });
  showDetected(translation.detected_language);
  const mean = Math.exp(translation.score / Math.max(1, translation.target_tokens + translation.sentences));
  const certainty = byId("certainty", HTMLElement);
  const low = translation.low_confidence ?? mean < LOW_CERTAINTY;
  certainty.textContent = say(low ? "low_certainty" : "certainty", { percent: Math.round(100 * mean) });
  certainty.classList.toggle("over", low);
  showInDrawers({ text, body, answer });
  showTerms(translation);
}

/** @param {{code: string, confidence: number} | undefined} found */
function showDetected(found) {
  detected = found?.code ?? "";
  const percent = Math.round(100 * (found?.confidence ?? 0));
  byId("detected", HTMLElement).textContent = found ? say("detected", { language: languageName(detected), percent }) : "";
}

/** @param {string} text @param {import("./server.js").Translation} translation */
function showTranslation(text, translation) {
  const words = html.checked ? { source: [], target: [] } : findWords(translation);
  target.lang = chosen().target_language;
  showWords(translation.text, words, (probability) =>
    probability === null ? say("choose_word") : say("probability", { percent: Math.round(100 * probability) }),
  );
  shown = { text, translation: translation.text, words };
  announce(translation.text, words);
}

/** Lets screen readers speak each sentence of a finished translation. @param {string} text @param {import("./words.js").Words} words */
function announce(text, words) {
  const sentences = Map.groupBy(words.target, (word) => word.sentence);
  const spoken = [...sentences.values()].map((list) => textOf(text, list));
  byId("announcer", HTMLElement).replaceChildren(...(spoken.length ? spoken : [text]).map((each) => element("p", {}, each)));
}

function clearTranslation() {
  reset();
  target.textContent = "";
  preview.hidden = true;
  for (const id of ["route", "certainty", "detected"]) byId(id, HTMLElement).textContent = "";
  shown = null;
  showInDrawers(null);
  showTerms(null);
}

/** Shows alternatives at a word of the translation. @param {number} index */
function showAlternatives(index) {
  if (!shown || !shown.words.source.length) return;
  const { text, translation, words } = shown;
  const word = words.target[index];
  const sentence = sentenceOf(text, words, word.sentence);
  const now = textOf(translation, [word]);
  const search = findWays(sentence, textBefore(translation, words.target, index), now).catch((error) => {
    showError(error);
    return [];
  });
  openList(targetElement(index), search, (way) => replaceSentence(word.sentence, way.text));
}

/** @param {string} text @param {import("./words.js").Words} words @param {number} sentence */
function sentenceOf(text, words, sentence) {
  return textOf(text, words.source.filter((word) => word.sentence === sentence));
}

/** Shows a chosen translation of one sentence, with its alignment. @param {number} sentence @param {string} chosenText */
async function replaceSentence(sentence, chosenText) {
  if (!shown) return;
  const { text, translation, words } = shown;
  const units = words.target.filter((word) => word.sentence === sentence);
  const points = new CodePoints(translation);
  const whole = points.slice(0, units[0].start) + chosenText + points.slice(units[units.length - 1].end);
  if (words.target[words.target.length - 1].sentence > 0) {
    // A text of several sentences takes no prefix: the words of the others stay, without links.
    return showTranslation(text, { ...bare, text: whole });
  }
  try {
    // A forced start and terms exclude each other.
    const body = { ...requestBody(text), terms: undefined, glossary: undefined, target_prefix: chosenText };
    showAnswer(text, requestBody(text), await translate(body));
  } catch (error) {
    showError(error);
  }
}

/** @type {import("./server.js").Translation} */
const bare = { text: "", score: 0, normalized_score: 0, finish_reason: "eos", source_tokens: 0, target_tokens: 0, sentences: 1 };

/** @param {unknown} error */
function showError(error) {
  if (!(error instanceof ServerError)) throw error;
  target.classList.remove("growing");
  if (error.status === 401) {
    if (!dialog.open) dialog.showModal();
    return;
  }
  if (error.reason === "unreachable") problem.textContent = say("unreachable");
  else if (error.status === 429) problem.textContent = say("busy");
  else if (error.status === 503) problem.textContent = say("not_ready");
  else problem.textContent = error.message;
}

function showCount() {
  const [now, limit] = [countCharacters(source.value), mostCharacters()];
  count.textContent = say(now > limit ? "too_long" : "count", { count: now.toLocaleString(), limit: limit.toLocaleString() });
  count.classList.toggle("over", now > limit);
}

/** Keeps languages and text in the address, so that it can be shared. The part after # is not sent to a server. */
function writeLink() {
  const { source_language: from, target_language: to } = chosen();
  history.replaceState(null, "", `#${from}/${to}/${encodeURIComponent(source.value)}`);
}

function readLink() {
  const [, from, to, text] = /^#([^/]*)\/([^/]*)\/(.*)$/s.exec(location.hash) ?? [];
  if (from === undefined) return;
  choose(from, to);
  source.value = decodeURIComponent(text);
}

function swapLanguages() {
  swap(detected);
  if (shown && !html.checked) source.value = shown.translation;
  reset();
  translateSoon();
}

/** @param {string} theme */
function useTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("dragoman.theme", theme);
  const button = byId("theme", HTMLButtonElement);
  button.textContent = { light: "☀", dark: "☾" }[theme] ?? "◐";
  button.setAttribute("aria-label", say(/** @type {import("./strings.js").Key} */ (`theme_${theme}`)));
  button.title = button.getAttribute("aria-label") ?? "";
}

const currentTheme = () => localStorage.getItem("dragoman.theme") ?? "auto";

/** Writes every text of the page again, in the chosen language. */
function rewrite() {
  writeTexts();
  useTheme(currentTheme());
  showChoices();
  showCount();
  fillOpen();
  preview.title = say("preview");
}

async function start() {
  const languages = byId("ui-language", HTMLSelectElement);
  languages.replaceChildren(...LANGUAGES.map((code) => element("option", { value: code }, code)));
  languages.value = currentLanguage();
  writeTexts();
  useTheme(currentTheme());
  try {
    setModels(await listModels());
  } catch (error) {
    return showError(error);
  }
  rewrite();
  readLink();
  showCount();
  if (source.value) translateNow();
}

function listen() {
  source.addEventListener("input", translateSoon);
  for (const id of ["source-language", "target-language", "model", "html"])
    byId(id, HTMLElement).addEventListener("change", translateSoon);
  byId("swap", HTMLButtonElement).addEventListener("click", swapLanguages);
  byId("clear", HTMLButtonElement).addEventListener("click", () => {
    source.value = "";
    source.focus();
    translateSoon();
  });
  byId("copy", HTMLButtonElement).addEventListener("click", async ({ target: button }) => {
    await navigator.clipboard.writeText(shown?.translation ?? "");
    /** @type {HTMLElement} */ (button).textContent = say("copied");
    setTimeout(() => (/** @type {HTMLElement} */ (button).textContent = say("copy")), 1500);
  });
  byId("theme", HTMLButtonElement).addEventListener("click", () =>
    useTheme(THEMES[(THEMES.indexOf(currentTheme()) + 1) % THEMES.length]),
  );
  byId("ui-language", HTMLSelectElement).addEventListener("change", ({ target: select }) => {
    useLanguage(/** @type {HTMLSelectElement} */ (select).value);
    rewrite();
  });
  dialog.addEventListener("close", () => {
    key.set(byId("key", HTMLInputElement).value);
    if (key.get()) start();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.ctrlKey) translateNow();
    if (event.key.toLowerCase() === "s" && event.altKey) {
      event.preventDefault();
      swapLanguages();
    }
  });
  onChoice(showAlternatives);
  setUpTerms(translateSoon, showError);
  setUpFiles(showError);
  setUpDrawers(showError, (text) => replaceSentence(0, text));
}

listen();
start();
