/** The translator: translates while one types, and shows the result. */

import { closeList, findWays, openList } from "./alternatives.js";
import { beginSpeaking, forgetSpoken, speak } from "./announcer.js";
import { canAlign, choose, chosen, hasModels, mostCharacters, setModels, showChoices, swap } from "./choices.js";
import { fillOpen, setUpDrawers, showInDrawers } from "./drawers.js";
import { setUpFiles } from "./files.js";
import { fillMap, setUpMap, showInMap } from "./map_drawer.js";
import { onChoice, reset, showGrowing, showWords, targetElement } from "./panes.js";
import { ServerError, key, listModels, stream, translate } from "./server.js";
import { LANGUAGES, currentLanguage, languageName, number, ownName, say, useLanguage, writeTexts } from "./strings.js";
import { chosenTerms, setUpTerms, showTerms } from "./terms.js";
import { byId, copyText, countCharacters, element, textOf } from "./text.js";
import { findWords, leastCertain, textBefore, withSentence } from "./words.js";

/** @typedef {import("./server.js").Answer} Answer */

const PAUSE_MILLISECONDS = 200;
// Below this mean probability per token, the page warns even if the model's own limit is lower.
const LOW_CERTAINTY = 0.4;
const THEMES = ["auto", "light", "dark"];
// Between two attempts to reach a server that starts.
const RETRY_MILLISECONDS = 2000;

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
/** @type {(import("./drawers.js").Shown & {words: import("./words.js").Words}) | null} */
let shown = null;

/** Translates after a pause; a translation in progress ends at once, which frees its slot. */
function translateSoon() {
  clearTimeout(pause);
  running?.abort();
  setBusy(true);
  pause = setTimeout(translateNow, PAUSE_MILLISECONDS);
  showCount();
}

/** Marks whether the text on the right is not yet the translation of the one on the left. @param {boolean} busy */
const setBusy = (busy) => target.setAttribute("aria-busy", String(busy));

async function translateNow() {
  clearTimeout(pause);
  running?.abort();
  closeList();
  problem.textContent = "";
  const text = source.value;
  if (hasModels()) writeLink();
  if (!text.trim() || countCharacters(text) > mostCharacters()) return clearTranslation();
  if (!hasModels()) return; // the page translates when it has them
  setBusy(true);
  const controller = (running = new AbortController());
  try {
    const body = requestBody(text);
    let grown = "";
    beginSpeaking();
    const show = (/** @type {string} */ more) => {
      if (controller.signal.aborted) return;
      showGrowing((grown += more));
      speak(grown, false);
    };
    const answer = body.format ? await translate(body, controller.signal) : await stream(body, show, controller.signal);
    if (!controller.signal.aborted) showAnswer(text, body, answer);
  } catch (error) {
    if (controller.signal.aborted) return;
    clearTranslation(); // what is left belongs to another text
    showError(error);
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
 * @param {import("./words.js").Words} [words] of the translation, if it was put together
 */
function showAnswer(text, body, answer, words) {
  const [translation] = answer.translations;
  showDetected(translation.detected_language);
  const direction = { ...chosen(), ...(detected ? { source_language: detected } : {}) };
  shown = { text, body, direction, answer, words: showTranslation(translation, words) };
  preview.hidden = !body.format;
  if (body.format) preview.srcdoc = translation.text;
  byId("route", HTMLElement).textContent = answer.pivot
    ? say("route_pivot", { language: languageName(answer.pivot.language), first: answer.pivot.model, second: answer.model })
    : say("route", { model: answer.model });
  showCertainty(translation, shown.words);
  showInDrawers(shown);
  showInMap(shown);
  showTerms(translation);
  setBusy(false);
}

/** @param {import("./server.js").Translation} translation @param {import("./words.js").Words} words */
function showCertainty(translation, words) {
  const mean = Math.exp(translation.score / Math.max(1, translation.target_tokens + translation.sentences));
  const certainty = byId("certainty", HTMLElement);
  const low = translation.low_confidence || mean < LOW_CERTAINTY;
  const least = leastCertain(words.target);
  certainty.textContent = [
    say(low ? "low_certainty" : "certainty", { percent: Math.round(100 * mean) }),
    ...(least ? [say("least_certain", { number: least.sentence + 1, percent: Math.round(100 * least.mean) })] : []),
  ].join(". ");
  certainty.classList.toggle("over", low);
}

/** @param {{code: string, confidence: number} | undefined} found */
function showDetected(found) {
  detected = found?.code ?? "";
  const percent = Math.round(100 * (found?.confidence ?? 0));
  byId("detected", HTMLElement).textContent = found ? say("detected", { language: languageName(detected), percent }) : "";
}

/**
 * Shows a translation; returns its words.
 * @param {import("./server.js").Translation} translation
 * @param {import("./words.js").Words} [words]
 */
function showTranslation(translation, words = html.checked ? { source: [], target: [] } : findWords(translation)) {
  target.lang = chosen().target_language;
  showWords(translation.text, words, (probability) => {
    const certainty = probability === null ? [] : [say("probability", { percent: Math.round(100 * probability) })];
    return [...certainty, ...(words.source.length ? [say("choose_word")] : [])].join(". ");
  });
  speak(translation.text, true);
  return words;
}

function clearTranslation() {
  reset();
  forgetSpoken();
  target.textContent = "";
  preview.hidden = true;
  for (const id of ["route", "certainty", "detected"]) byId(id, HTMLElement).textContent = "";
  shown = null;
  setBusy(false);
  showInDrawers(null);
  showInMap(null);
  showTerms(null);
}

/** Shows alternatives at a word of the translation. @param {number} index */
function showAlternatives(index) {
  // A word of an earlier translation may still be on the screen.
  if (!shown || !shown.words.source.length || !targetElement(index)) return;
  const { text, answer, words, direction } = shown;
  if (answer.pivot) return openList(targetElement(index), Promise.resolve([]), say("no_pivot_ways"), () => {});
  const translation = answer.translations[0].text;
  const word = words.target[index];
  const sentence = sentenceOf(text, words, word.sentence);
  const now = textOf(translation, [word]);
  const search = findWays(direction, sentence, textBefore(translation, words.target, index), now).catch((error) => {
    showError(error);
    return [];
  });
  openList(targetElement(index), search, say("none"), (way) => replaceSentence(word.sentence, way.text));
}

/** @param {string} text @param {import("./words.js").Words} words @param {number} sentence */
function sentenceOf(text, words, sentence) {
  return textOf(text, words.source.filter((word) => word.sentence === sentence));
}

/** Shows a chosen translation of one sentence, with its alignment. @param {number} sentence @param {string} chosenText */
async function replaceSentence(sentence, chosenText) {
  if (!shown) return;
  const { text, body, answer, words, direction } = shown;
  const forced = { text: sentenceOf(text, words, sentence), split_sentences: false, target_prefix: chosenText };
  try {
    const [fresh] = (await translate({ ...direction, ...forced, options: body.options })).translations;
    if (shown?.answer !== answer) return;
    const [before] = answer.translations;
    const next = withSentence(before, words, sentence, fresh);
    // A forced start and terms exclude each other; in a text of several sentences no request has a forced start.
    beginSpeaking();
    const asked = before.sentences > 1 ? body : { ...body, terms: undefined, glossary: undefined, target_prefix: chosenText };
    showAnswer(text, asked, { ...answer, translations: [next.translation] }, next.words);
  } catch (error) {
    showError(error);
  }
}

/** @param {unknown} error */
function showError(error) {
  if (!(error instanceof ServerError)) throw error;
  target.classList.remove("growing");
  if (error.status === 401) {
    byId("key-problem", HTMLElement).textContent = key.get() ? say("key_wrong") : "";
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
  count.textContent = say(now > limit ? "too_long" : "count", { count: number(now), limit: number(limit) });
  count.classList.toggle("over", now > limit);
}

/** Keeps languages and text in the address, so that it can be shared. The part after # is not sent to a server. */
function writeLink() {
  const { source_language: from, target_language: to } = chosen();
  history.replaceState(null, "", `#${from}/${to}/${encodeURIComponent(source.value)}`);
}

/** Chooses the languages of the address; returns its text. */
function readLink() {
  const [, from, to, text] = /^#([^/]*)\/([^/]*)\/(.*)$/s.exec(location.hash) ?? [];
  if (from === undefined) return "";
  choose(from, to);
  try {
    return decodeURIComponent(text.replaceAll(/%(?![0-9a-f]{2})/gi, "%25")); // "100 %", written by hand
  } catch {
    return text; // not UTF-8
  }
}

function swapLanguages() {
  swap(detected);
  if (shown && !html.checked) source.value = shown.answer.translations[0].text;
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
  fillMap();
  preview.title = say("preview");
}

async function start() {
  const languages = byId("ui-language", HTMLSelectElement);
  languages.replaceChildren(...LANGUAGES.map((code) => element("option", { value: code, lang: code }, ownName(code))));
  languages.value = currentLanguage();
  writeTexts();
  useTheme(currentTheme());
  try {
    setModels(await listModels());
    problem.textContent = "";
  } catch (error) {
    const starts = error instanceof ServerError && [0, 503].includes(error.status);
    if (starts) setTimeout(start, RETRY_MILLISECONDS);
    return showError(error);
  }
  rewrite();
  source.value = readLink() || source.value;
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
    if (!target.textContent) return;
    await copyText(target.textContent);
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
  addEventListener("hashchange", () => {
    source.value = readLink();
    translateSoon();
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
  setUpMap(showError);
  setUpDrawers(showError, (text) => replaceSentence(0, text));
}

listen();
start();
