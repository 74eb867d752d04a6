/** Other ways to continue a translation from a word: the likeliest next tokens, each finished by the model. */

import { countTokens, translate } from "./server.js";
import { say } from "./strings.js";
import { byId, element } from "./text.js";

const MOST = 8;
const list = byId("alternatives", HTMLElement);

/** @typedef {{text: string, start: string, normalized_score: number}} Way `start`: what the request forced */

/**
 * Returns continuations whose next word differs, the likeliest first.
 * @param {import("./server.js").Body} direction languages and model
 * @param {string} sentence the sentence of the text
 * @param {string} prefix its translation before the word
 * @param {string} word the word now
 * @returns {Promise<Way[]>}
 */
export async function findWays(direction, sentence, prefix, word) {
  const base = { ...direction, split_sentences: false };
  const length = prefix.trim() ? await countTokens(direction, sentence, prefix.trimEnd()) : 0;
  // A beam that ends after one token more holds the likeliest next tokens.
  const options = { beam_size: MOST, hypotheses: MOST, max_target_tokens: length + 1 };
  const [next] = (await translate({ ...base, text: sentence, target_prefix: prefix.trimEnd(), options })).translations;
  const starts = [next, ...(next.alternatives ?? [])].map((each) => each.text);
  const forced = [...new Set(starts)].filter((start) => start.length > prefix.trimEnd().length);
  if (!forced.length) return [];
  const answer = await translate({ ...base, text: forced.map(() => sentence), target_prefix: forced });
  const found = answer.translations.map(({ text, normalized_score }, at) => ({ text, start: forced[at], normalized_score }));
  const ways = found.filter((each) => firstWord(each.text, prefix) !== word);
  const unique = [...new Map(ways.map((each) => [firstWord(each.text, prefix), each])).values()];
  return unique.sort((one, other) => other.normalized_score - one.normalized_score);
}

/** @param {string} text @param {string} prefix */
const firstWord = (text, prefix) => /^\s*([\p{L}\p{N}\p{M}'’-]+|\S)/u.exec(text.slice(prefix.trimEnd().length))?.[1] ?? "";

/** @type {HTMLElement | null} */
let opener = null;

/**
 * Opens the list below a word.
 * @param {HTMLElement} word
 * @param {Promise<Way[]>} search
 * @param {string} none shown if there is no way
 * @param {(way: Way) => void} use
 */
export async function openList(word, search, none, use) {
  opener = word;
  const box = word.getBoundingClientRect();
  list.replaceChildren(element("div", { class: "note", role: "option", "aria-disabled": "true" }, say("searching")));
  list.hidden = false;
  place(box);
  const ways = await search;
  if (opener !== word) return;
  const options = ways.map((way) => option(way, use));
  list.replaceChildren(...(options.length ? options : [element("div", { class: "note", role: "option", tabindex: "-1" }, none)]));
  place(box);
  /** @type {HTMLElement} */ (list.firstElementChild).focus();
}

/** Places the list below a word, inside the page. @param {DOMRect} word */
function place(word) {
  list.style.left = "0"; // the room to the right of the list limits its width
  const most = document.documentElement.clientWidth - list.offsetWidth - 8;
  list.style.top = `${word.bottom + scrollY + 4}px`;
  list.style.left = `${Math.max(8, Math.min(word.left + scrollX, most))}px`;
}

/** @param {Way} way @param {(way: Way) => void} use */
function option(way, use) {
  const percent = Math.round(100 * Math.exp(way.normalized_score));
  const created = element("div", { role: "option", tabindex: "-1", dir: "auto" }, way.text, element("small", {}, say("certainty", { percent })));
  const pick = () => {
    closeList();
    use(way);
  };
  created.addEventListener("click", pick);
  created.addEventListener("keydown", (event) => {
    if (event.key === "Enter") pick();
    if (event.key === "Tab") closeList(); // the focus moves on from the word
    if (event.key === "ArrowDown") /** @type {HTMLElement} */ (created.nextElementSibling)?.focus();
    if (event.key === "ArrowUp") /** @type {HTMLElement} */ (created.previousElementSibling)?.focus();
  });
  return created;
}

export function closeList() {
  if (list.hidden) return;
  list.hidden = true;
  opener?.focus();
  opener = null;
}

document.addEventListener("keydown", (event) => event.key === "Escape" && closeList());
document.addEventListener("pointerdown", (event) => {
  if (!list.contains(/** @type {Node} */ (event.target))) closeList();
});
