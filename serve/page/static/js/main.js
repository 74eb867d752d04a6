/** The translator: translates while one types, and shows the result. */

import { closeList, findWays, openList } from "./alternatives.js";
import { beginSpeaking, forgetSpoken, speak } from "./announcer.js";
import { canAlign, choose, chosen, hasModels, mostCharacters, proposeTarget, setModels, showChoices, swap } from "./choices.js";
import { setUpCorrections, showCorrection } from "./corrections.js";
import { fillOpen, setUpDrawers, showInDrawers } from "./drawers.js";
import { setUpFiles } from "./files.js";
import { fillMap, setUpMap, showInMap } from "./map_drawer.js";
import { onChoice, reset, showGrowing, showWords, targetElement } from "./panes.js";
import { ServerError, key, listModels, stream, translate } from "./server.js";
import { LANGUAGES, currentLanguage, ownName, say, useLanguage, write, writeTexts } from "./strings.js";
import { chosenTerms, describeTermProblem, setUpTerms, showTerms } from "./terms.js";
import { byId, copyText, countCharacters, element, textOf } from "./text.js";
import { beginWaiting, endWaiting } from "./waiting.js";
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
  reset();
  showCount();
}

/** Marks whether the text on the right is not yet the translation of the one on the left. @param {boolean} busy */
const setBusy = (busy) => target.setAttribute("aria-busy", String(busy));

async function translateNow() {
  clearTimeout(pause);
  running?.abort();
  closeList();
  write(problem, "");
  const text = source.value;
  if (hasModels()) writeLink();
  if (!text.trim() || countCharacters(text) > mostCharacters()) return clearTranslation();
  if (!hasModels()) return; // the page translates when it has them
  setBusy(true);
  beginWaiting();
  const controller = (running = new AbortController());
  try {
    const body = requestBody(text);
    let grown = "";
    beginSpeaking();
    const show = (/** @type {string} */ more) => {
      if (controller.signal.aborted) return;
      beginWaiting();
      showGrowing((grown += more));
      speak(grown, false);
    };
    const answer = body.format ? await translate(body, controller.signal) : await stream(body, show, controller.signal);
    if (controller.signal.aborted) return;
    // A newcomer would get his own sentence back.
    const { code = "" } = answer.translations[0].detected_language ?? {};
    if (code === body.target_language && proposeTarget(code)) return translateNow();
    showAnswer(text, body, answer);
  } catch (error) {
    if (controller.signal.aborted) return;
    clearTranslation(); // what is left belongs to another text
    showError(error);
  } finally {
    if (running === controller) endWaiting();
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
 * @param {import("./drawers.js").Choice} [choice] of the reader, in that translation
 */
function showAnswer(text, body, answer, words, choice) {
  const [translation] = answer.translations;
  showDetected(translation.detected_language);
  const direction = { ...chosen(), ...(detected ? { source_language: detected } : {}) };
  shown = { text, body, direction, answer, choice, words: showTranslation(translation, words) };
  preview.hidden = !body.format;
  if (body.format) preview.srcdoc = translation.text;
  const { model, pivot } = answer;
  const route = byId("route", HTMLElement);
  if (translation.origin === "memory") write(route, "from_memory");
  else if (pivot) write(route, "route_pivot", { language: pivot.language, first: pivot.model, second: model });
  else write(route, "route", { model });
  showCertainty(translation, shown.words);
  showInDrawers(shown);
  showInMap(shown);
  showTerms(translation);
  showCorrection(shown);
  setBusy(false);
}

/** @param {import("./server.js").Translation} translation @param {import("./words.js").Words} words */
function showCertainty(translation, words) {
  const mean = Math.exp(translation.score / Math.max(1, translation.target_tokens + translation.sentences));
  const low = translation.low_confidence || mean < LOW_CERTAINTY;
  const least = leastCertain(words.target);
  const [all, one] = [element("span"), element("span")];
  write(all, low ? "low_certainty" : "certainty", { percent: Math.round(100 * mean) });
  if (least) write(one, "least_certain", { number: least.sentence + 1, percent: Math.round(100 * least.mean) });
  const certainty = byId("certainty", HTMLElement);
  if (translation.origin === "memory") return write(certainty, "");
  certainty.replaceChildren(all, ...(least ? [". ", one] : []));
  certainty.classList.toggle("over", low);
}

/** @param {{code: string, confidence: number} | undefined} found */
function showDetected(found) {
  detected = found?.code ?? "";
  const percent = Math.round(100 * (found?.confidence ?? 0));
  const key = detected === chosen().target_language ? "no_other_language" : "detected";
  write(byId("detected", HTMLElement), found ? key : "", { language: detected, percent });
}

/**
 * Shows a translation; returns its words.
 * @param {import("./server.js").Translation} translation
 * @param {import("./words.js").Words} [words]
 */
function showTranslation(translation, words = html.checked ? { source: [], target: [] } : findWords(translation)) {
  target.lang = chosen().target_language;
  writeWords(translation, words);
  speak(translation.text, true);
  return words;
}

/** @param {import("./server.js").Translation} translation @param {import("./words.js").Words} words */
function writeWords(translation, words) {
  showWords(translation.text, words, (probability) => {
    const certainty = probability === null ? [] : [say("probability", { percent: Math.round(100 * probability) })];
    return [...certainty, ...(words.source.length ? [say("choose_word")] : [])].join(". ");
  });
}

function clearTranslation() {
  reset();
  forgetSpoken();
  target.textContent = "";
  preview.hidden = true;
  for (const id of ["route", "certainty", "detected"]) write(byId(id, HTMLElement), "");
  shown = null;
  setBusy(false);
  showInDrawers(null);
  showInMap(null);
  showTerms(null);
  showCorrection(null);
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
  openList(targetElement(index), search, say("none"), (way) => replaceSentence(word.sentence, { target_prefix: way.start }));
}

/** @param {string} text @param {import("./words.js").Words} words @param {number} sentence */
function sentenceOf(text, words, sentence) {
  return textOf(text, words.source.filter((word) => word.sentence === sentence));
}

/**
 * Shows a chosen translation of one sentence, with its alignment.
 * @param {number} sentence
 * @param {import("./server.js").Body} fields that lead to it; a forced start and terms exclude each other
 */
async function replaceSentence(sentence, fields) {
  if (!shown) return;
  const { text, body, answer, words, direction } = shown;
  const options = { ...body.options, ...fields.options };
  const asked = { ...direction, ...fields, text: sentenceOf(text, words, sentence), split_sentences: false, options };
  try {
    const [fresh] = (await translate(asked)).translations;
    if (shown?.answer !== answer) return;
    const [before] = answer.translations;
    const next = withSentence(before, words, sentence, fresh);
    beginSpeaking();
    const choice = { body: asked, sentence: before.sentences > 1 ? sentence : null };
    showAnswer(text, body, { ...answer, translations: [next.translation] }, next.words, choice);
  } catch (error) {
    showError(error);
  }
}

/** @param {unknown} error */
function showError(error) {
  if (!(error instanceof ServerError)) throw error;
  target.classList.remove("growing");
  if (error.status === 401) {
    write(byId("key-problem", HTMLElement), key.get() ? "key_wrong" : "");
    if (!dialog.open) dialog.showModal();
    return;
  }
  problem.classList.toggle("progress", error.reason === "fetching");
  if (error.reason === "unreachable") write(problem, "unreachable");
  else if (error.status === 429) write(problem, "busy");
  else if (error.reason === "fetching") {
    const [, model, done, total] = /^fetching ([^ ,]+)(?:, (\d+) of (\d+) MB)?/.exec(error.message) ?? ["", ""];
    write(problem, total ? "fetching_size" : "fetching", { model, done, total });
    pause = setTimeout(translateNow, RETRY_MILLISECONDS);
  } else if (error.status === 503 && !error.message.includes(": cannot be fetched: ")) write(problem, "not_ready");
  else {
    write(problem, "");
    problem.textContent = describeTermProblem(error.message);
  }
}

function showCount() {
  const [now, limit] = [countCharacters(source.value), mostCharacters()];
  write(count, now > limit ? "too_long" : "count", { count: now, limit });
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
  if (shown && target.ariaBusy === "false") {
    writeWords(shown.answer.translations[0], shown.words);
    showTerms(shown.answer.translations[0]);
  }
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
  beginWaiting();
  try {
    setModels(await listModels());
    write(problem, "");
  } catch (error) {
    const starts = error instanceof ServerError && [0, 503].includes(error.status);
    if (starts) setTimeout(start, RETRY_MILLISECONDS);
    return showError(error);
  } finally {
    endWaiting();
  }
  rewrite();
  source.value = readLink() || source.value;
  reset();
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
    write(/** @type {HTMLElement} */ (button), "copied");
    setTimeout(() => write(/** @type {HTMLElement} */ (button), "copy"), 1500);
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
  setUpCorrections(translateSoon, showError);
  setUpFiles(showError);
  setUpMap(showError);
  setUpDrawers(showError, (fields) => replaceSentence(0, fields));
}

listen();
start();
