/** Lets screen readers speak a translation sentence by sentence while it grows. */

import { byId, element } from "./text.js";

const region = byId("announcer", HTMLElement);
const segmenter = new Intl.Segmenter(undefined, { granularity: "sentence" });

/** Sentences of the last complete translation: an edit of the text lets only new ones be spoken. */
let before = new Set();
/** @type {string[]} */
let sentences = [];

/** Begins another translation. */
export function beginSpeaking() {
  sentences = [];
  region.replaceChildren();
}

/**
 * Speaks the sentences that are complete: the last one of a growing translation is not.
 * @param {string} text the translation so far
 * @param {boolean} complete
 */
export function speak(text, complete) {
  const found = [...segmenter.segment(text)].map(({ segment }) => segment.trim());
  if (!complete) found.pop();
  for (const sentence of found.slice(sentences.length)) {
    if (sentence && !before.has(sentence)) region.append(element("p", {}, sentence));
    sentences.push(sentence);
  }
  if (complete) before = new Set(sentences);
}

/** Lets every sentence of the next translation be spoken. */
export function forgetSpoken() {
  beginSpeaking();
  before = new Set();
}
