/** Both panes: the words of text and translation, lit together while a pointer, the focus or the caret is on one. */

import { CodePoints, byId, element } from "./text.js";

/** @typedef {import("./words.js").Words} Words */

// A word below the first probability is underlined; below the second, doubly so.
const UNSURE = 0.6;
const DOUBTFUL = 0.25;
// The backdrop gives the text area its height, and must have its last line too if that is empty.
const LAST_LINE = "\n";

const source = byId("source", HTMLTextAreaElement);
const backdrop = byId("backdrop", HTMLElement);
const target = byId("target", HTMLElement);

/** @type {{source: HTMLElement[], target: HTMLElement[]}} */
let shown = { source: [], target: [] };
/** @type {Words} */
let words = { source: [], target: [] };

/** @type {(index: number) => void} called when a word of the translation is chosen */
let choose = () => {};

/** @param {(index: number) => void} listener */
export const onChoice = (listener) => (choose = listener);

/** Shows a growing translation. @param {string} text */
export function showGrowing(text) {
  reset();
  target.classList.add("growing");
  target.textContent = text;
}

/** Removes the words; the text of the translation stays. */
export function reset() {
  shown = { source: [], target: [] };
  words = { source: [], target: [] };
  backdrop.replaceChildren(source.value, LAST_LINE);
  target.classList.remove("growing");
}

/**
 * Shows the words of a translation.
 * @param {string} translation
 * @param {Words} found
 * @param {(probability: number | null) => string} describe
 */
export function showWords(translation, found, describe) {
  reset();
  words = found;
  shown.source = fill(backdrop, source.value, found.source, () => element("span"));
  shown.target = fill(target, translation, found.target, (index) => targetWord(index, describe));
  backdrop.append(LAST_LINE);
  if (shown.target.length) shown.target[0].tabIndex = 0;
}

/**
 * @param {HTMLElement} box
 * @param {string} text
 * @param {import("./words.js").Word[]} list
 * @param {(index: number) => HTMLElement} create
 */
function fill(box, text, list, create) {
  const points = new CodePoints(text);
  const elements = list.map((word, index) => {
    const created = create(index);
    created.textContent = points.slice(word.start, word.end);
    return created;
  });
  box.replaceChildren();
  let at = 0;
  list.forEach(({ start, end }, index) => {
    if (start < at) return; // units of scripts without spaces may share characters
    box.append(points.slice(at, start), elements[index]);
    at = end;
  });
  box.append(points.slice(at));
  return elements;
}

/**
 * @param {number} index
 * @param {(probability: number | null) => string} describe
 */
function targetWord(index, describe) {
  const { probability } = words.target[index];
  const created = element("span", { class: "word", role: "button", tabindex: "-1", title: describe(probability) });
  if (probability !== null && probability < UNSURE) created.classList.add(probability < DOUBTFUL ? "doubtful" : "unsure");
  created.addEventListener("pointerenter", () => light("target", index));
  created.addEventListener("pointerleave", dim);
  created.addEventListener("focus", () => light("target", index));
  created.addEventListener("blur", dim);
  created.addEventListener("click", () => choose(index));
  return created;
}

/** @returns {HTMLElement} @param {number} index */
export const targetElement = (index) => shown.target[index];

/**
 * Lights a word and its partners.
 * @param {"source" | "target"} side
 * @param {number} index
 */
export function light(side, index) {
  dim();
  const other = side === "source" ? "target" : "source";
  shown[side][index]?.classList.add("lit");
  for (const partner of words[side][index]?.partners ?? []) shown[other][partner]?.classList.add("lit");
  document.dispatchEvent(new CustomEvent("lit", { detail: { side, index } }));
}

function dim() {
  for (const each of document.querySelectorAll(".lit")) each.classList.remove("lit");
}

/** Lights the word of the text at the caret. */
function followCaret() {
  if (document.activeElement !== source) return;
  const at = [...source.value.slice(0, source.selectionStart)].length;
  const index = words.source.findIndex(({ start, end }) => start <= at && at < end);
  if (index >= 0) light("source", index);
  else dim();
}

/** Lights the word of the text under the pointer; the backdrop itself gets no events. @param {PointerEvent} event */
function followPointer({ clientX, clientY }) {
  const index = shown.source.findIndex((each) =>
    [...each.getClientRects()].some(
      (box) => box.left <= clientX && clientX <= box.right && box.top <= clientY && clientY <= box.bottom,
    ),
  );
  if (index >= 0) light("source", index);
  else dim();
}

/** Moves the focus between words: one of them is in the tab order. @param {KeyboardEvent} event */
function moveFocus(event) {
  const now = shown.target.indexOf(/** @type {HTMLElement} */ (event.target));
  if (now < 0) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    choose(now);
    return;
  }
  const forward = getComputedStyle(target).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
  const steps = { ArrowLeft: -1, ArrowRight: -1, ArrowUp: -1, ArrowDown: 1, [forward]: 1 };
  const last = shown.target.length - 1;
  const next = { Home: 0, End: last }[event.key] ?? (event.key in steps ? now + steps[event.key] : null);
  if (next === null || next < 0 || next > last) return;
  event.preventDefault();
  shown.target[now].tabIndex = -1;
  shown.target[next].tabIndex = 0;
  shown.target[next].focus();
}

document.addEventListener("selectionchange", followCaret);
source.addEventListener("pointermove", followPointer);
source.addEventListener("pointerleave", dim);
target.addEventListener("keydown", moveFocus);
