/** The words of a translation, their probabilities, and which words of the text they come from. */

import { CodePoints } from "./text.js";

/** @typedef {import("./server.js").Translation} Translation */
/**
 * @typedef {{start: number, end: number, partners: number[], probability: number | null, sentence: number}} Word
 * @typedef {{source: Word[], target: Word[]}} Words
 */

/**
 * Returns the words of both sides; `partners` are indices of the other side.
 * @param {Translation} translation
 * @returns {Words}
 */
export function findWords(translation) {
  /** @type {Words} */
  const words = { source: [], target: [] };
  const sentences = translation.alignments ?? [{ source: [], target: split(translation.text), weights: [], links: [] }];
  sentences.forEach(({ source, target, links }, sentence) => {
    const first = { source: words.source.length, target: words.target.length };
    words.source.push(...source.map((span) => ({ ...span, partners: [], probability: null, sentence })));
    words.target.push(...target.map((span) => ({ ...span, partners: [], probability: null, sentence })));
    for (const link of links) {
      words.source[first.source + link.source].partners.push(first.target + link.target);
      words.target[first.target + link.target].partners.push(first.source + link.source);
    }
  });
  if (translation.tokens) rate(words.target, translation);
  return words;
}

/**
 * Returns the spans of a text between white space.
 * @param {string} text
 */
function split(text) {
  return [...text.matchAll(/\S+/gu)].map((match) => {
    const start = [...text.slice(0, match.index)].length;
    return { start, end: start + [...match[0]].length };
  });
}

/**
 * Sets the probability of each word: the product over the tokens that begin in it.
 * @param {Word[]} words
 * @param {Translation} translation
 */
function rate(words, { text, tokens = [] }) {
  const points = [...text];
  let at = 0;
  let word = 0;
  for (const { piece, log_probability } of tokens) {
    const visible = [...piece.replaceAll("▁", "")];
    if (!visible.length) continue;
    let start = at;
    while (start < points.length && points.slice(start, start + visible.length).join("") !== visible.join("")) start++;
    if (start === points.length) continue; // an end token, or a piece that the text spells otherwise
    while (word < words.length && words[word].end <= start) word++;
    if (word === words.length) return;
    words[word].probability = (words[word].probability ?? 1) * Math.exp(log_probability);
    at = start + visible.length;
  }
}

/**
 * Returns the text before a word, without the sentences before its own.
 * @param {string} text
 * @param {Word[]} words
 * @param {number} index
 */
export function textBefore(text, words, index) {
  const first = words.findIndex((word) => word.sentence === words[index].sentence);
  return new CodePoints(text).slice(words[first].start, words[index].start);
}
