/** Text in code points, as the server counts, and in DOM nodes. */

import { write } from "./strings.js";

/** @param {string} text */
export const countCharacters = (text) => [...text].length;

/** Cuts texts at offsets in code points. */
export class CodePoints {
  /** @param {string} text */
  constructor(text) {
    this.points = [...text];
  }

  /**
   * @param {number} start
   * @param {number} [end]
   */
  slice(start, end) {
    return this.points.slice(start, end).join("");
  }
}

/**
 * Returns the text from the first to the last of some spans.
 * @param {string} text
 * @param {{start: number, end: number}[]} spans
 */
export const textOf = (text, spans) => new CodePoints(text).slice(spans[0].start, spans[spans.length - 1].end);

/**
 * Creates an element. Text becomes a text node, never markup.
 * @param {string} name
 * @param {Record<string, string>} [attributes]
 * @param {...(Node | string)} children
 */
export function element(name, attributes = {}, ...children) {
  const created = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) created.setAttribute(attribute, value);
  created.append(...children);
  return created;
}

/**
 * Creates an element with a text of the page.
 * @param {string} name
 * @param {Record<string, string>} attributes
 * @param {import("./texts.js").Key | ""} key
 * @param {Record<string, string | number>} [values]
 */
export function said(name, attributes, key, values) {
  const created = element(name, attributes);
  write(created, key, values);
  return created;
}

/**
 * Creates a button.
 * @param {import("./texts.js").Key} text
 * @param {() => unknown} act
 * @param {(error: unknown) => void} fail called with an error of the action
 */
export function button(text, act, fail) {
  const created = said("button", { type: "button" }, text);
  created.addEventListener("click", () => Promise.resolve(act()).catch(fail));
  return created;
}

/**
 * Copies a text. Browsers offer the clipboard to pages over HTTPS or of this machine; others have the older command.
 * @param {string} text
 */
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const focused = document.activeElement;
  const area = /** @type {HTMLTextAreaElement} */ (element("textarea", { class: "hidden", "aria-hidden": "true" }, text));
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
}

/**
 * Saves what an address holds as a file.
 * @param {string} address of a blob or of data
 * @param {string} name
 */
export function save(address, name) {
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
export function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`#${id}: expected ${kind.name}`);
  return found;
}
