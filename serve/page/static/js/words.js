/** The words of a translation, their probabilities, and which words of the text they come from. */

import { CodePoints, countCharacters } from "./text.js";

/** @typedef {import("./server.js").Translation} Translation */
/**
 * @typedef {{start: number, end: number, partners: number[], probability: number | null, tokens: number,
 *   sentence: number}} Word
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
    words.source.push(...source.map((span) => ({ ...span, partners: [], probability: null, tokens: 0, sentence })));
    words.target.push(...target.map((span) => ({ ...span, partners: [], probability: null, tokens: 0, sentence })));
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
    words[word].tokens += 1;
    at = start + visible.length;
  }
}

/** Returns the sum of the log-probabilities of words, and the number of their tokens. @param {Word[]} words */
function sumOf(words) {
  const rated = words.filter(({ probability }) => probability !== null);
  return {
    score: rated.reduce((sum, { probability }) => sum + Math.log(/** @type {number} */ (probability)), 0),
    tokens: rated.reduce((sum, { tokens }) => sum + tokens, 0),
  };
}

/**
 * Returns the sentence with the least mean probability per token, none if there is only one.
 * @param {Word[]} words
 */
export function leastCertain(words) {
  const sentences = [...Map.groupBy(words, ({ sentence }) => sentence)].map(([sentence, list]) => {
    const { score, tokens } = sumOf(list);
    return { sentence, mean: Math.exp(score / Math.max(1, tokens)) };
  });
  return sentences.length < 2 ? null : sentences.reduce((least, each) => (each.mean < least.mean ? each : least));
}

/** @param {{start: number, end: number}[]} spans @param {number} by */
const shifted = (spans, by) => spans.map(({ start, end }) => ({ start: start + by, end: end + by }));

/**
 * Returns a translation in which one sentence is another one, and its words.
 * @param {Translation} translation with alignments
 * @param {Words} words of it
 * @param {number} sentence
 * @param {Translation} fresh of that sentence alone, with alignments
 * @returns {{translation: Translation, words: Words}}
 */
export function withSentence(translation, words, sentence, fresh) {
  const old = (translation.alignments ?? [])[sentence];
  const [{ start }, { end }] = [old.target[0], old.target[old.target.length - 1]];
  const grown = countCharacters(fresh.text) - (end - start);
  const points = new CodePoints(translation.text);
  const alignments = (translation.alignments ?? []).map((each, at) => {
    if (at !== sentence) return at < sentence ? each : { ...each, target: shifted(each.target, grown) };
    const [{ source, target, ...others }] = fresh.alignments ?? [old];
    return { ...others, source: shifted(source, old.source[0]?.start ?? 0), target: shifted(target, start) };
  });
  const replaced = words.target.filter((word) => word.sentence === sentence);
  const rated = findWords(fresh).target;
  const change = sumOf(rated).score - sumOf(replaced).score;
  const next = {
    ...translation,
    text: points.slice(0, start) + fresh.text + points.slice(end),
    score: translation.score + change,
    target_tokens: translation.target_tokens + sumOf(rated).tokens - sumOf(replaced).tokens,
    low_confidence: undefined,
    terms: translation.sentences > 1 ? translation.terms : undefined,
    tokens: undefined,
    alignments,
  };
  const all = findWords(next);
  const known = [
    ...words.target.filter((word) => word.sentence < sentence),
    ...rated,
    ...words.target.filter((word) => word.sentence > sentence),
  ];
  all.target.forEach((word, at) => Object.assign(word, { probability: known[at].probability, tokens: known[at].tokens }));
  return { translation: next, words: all };
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
