/** Says the texts of the page in the language of its reader. */

import { english, translated } from "./texts.js";

/** @typedef {import("./texts.js").Key} Key */


const STORED = "dragoman.language";
export const LANGUAGES = ["en", "de", "fr", "cs"];

let language = choose();

function choose() {
  const wanted = [localStorage.getItem(STORED) ?? "", ...navigator.languages.map((each) => each.slice(0, 2))];
  return wanted.find((each) => LANGUAGES.includes(each)) ?? "en";
}

export const currentLanguage = () => language;

/** @param {string} chosen */
export function useLanguage(chosen) {
  language = chosen;
  localStorage.setItem(STORED, chosen);
}

/**
 * Returns a text of the page, with values at the place of `{names}`.
 * @param {Key} key
 * @param {Record<string, string | number>} [values]
 */
export function say(key, values = {}) {
  const text = { ...english, ...translated[language] }[key];
  return text.replaceAll(/\{(\w+)\}/g, (_, name) => shown(name, values[name]));
}

/** @param {string} name @param {string | number} value a code if the name is `language` */
function shown(name, value) {
  if (name === "language") return languageName(String(value));
  return typeof value === "number" ? number(value) : value;
}

/**
 * Returns a number in the form of the language of the page.
 * @param {number} value
 * @param {number} [digits] after the point
 */
export const number = (value, digits = 0) =>
  value.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** Returns the name of a language in the language of the page. @param {string} code */
export const languageName = (code) => nameIn(language, code);

/** Returns the name of a language in itself. @param {string} code */
export const ownName = (code) => nameIn(code, code);

/** @param {string} reader a language of the page @param {string} code */
function nameIn(reader, code) {
  try {
    return new Intl.DisplayNames([reader], { type: "language" }).of(code) ?? code;
  } catch {
    return code; // not a code of BCP 47
  }
}

/**
 * Writes a text into an element, again in every language that is chosen later.
 * @param {HTMLElement} box
 * @param {Key | ""} key empty: no text
 * @param {Record<string, string | number>} [values]
 */
export function write(box, key, values = {}) {
  box.dataset.text = key;
  box.dataset.values = JSON.stringify(values);
  box.textContent = key && say(key, values);
}

/** Writes the texts of all elements that name one. */
export function writeTexts() {
  document.documentElement.lang = language;
  for (const each of document.querySelectorAll("[data-text], [data-label], [data-placeholder]")) {
    const { text, values, label, placeholder } = /** @type {HTMLElement} */ (each).dataset;
    if (text) each.textContent = say(/** @type {Key} */ (text), JSON.parse(values ?? "{}"));
    if (label) each.setAttribute("aria-label", say(/** @type {Key} */ (label)));
    if (placeholder) each.setAttribute("placeholder", say(/** @type {Key} */ (placeholder)));
  }
}
