/** Calls of this server's REST interface. */

import { readEvents } from "./sse.js";

/**
 * @typedef {{start: number, end: number}} Span characters in code points
 * @typedef {{source: Span[], target: Span[], weights: number[][], links: {source: number, target: number}[]}} Alignment
 * @typedef {{piece: string, log_probability: number}} Token
 * @typedef {{text: string, score: number, normalized_score: number, tokens?: Token[], alignments?: Alignment[],
 *   terms?: {source: string, target: string, way: "present" | "decoded" | "placed"}[],
 *   alternatives?: Translation[], finish_reason: string, source_tokens: number, target_tokens: number,
 *   sentences: number, detected_language?: {code: string, confidence: number}, low_confidence?: boolean,
 *   origin?: "memory" | "mixed"}} Translation
 * @typedef {{tokenize_seconds: number, queue_seconds: number, inference_seconds: number, total_seconds: number}} Timings
 * @typedef {{translations: Translation[], timings: Timings, model: string,
 *   pivot?: {language: string, model: string}}} Answer
 * @typedef {{name: string, description: string, state: string, alignments: boolean, precision: string, languages: string[],
 *   directions: {source_language: string, target_language: string}[],
 *   limits: {max_text_characters: number, engine_slots: number, slots: number, queue_limit: number}}} Model
 * @typedef {{id: string, name: string, status: string, progress: number, error: string | null}} Doc a document of the server
 * @typedef {Record<string, any>} Body fields of a request
 */

const KEY = "dragoman.key";

/** An error response; `status` is 0 if there was none. */
export class ServerError extends Error {
  /**
   * @param {string} message
   * @param {number} status
   * @param {string} reason
   */
  constructor(message, status, reason) {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

/** The API key lives as long as the tab. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  /** @param {string} value */
  set: (value) => sessionStorage.setItem(KEY, value),
};

/**
 * @param {string} path
 * @param {Body | FormData | null} body
 * @param {AbortSignal} [signal]
 * @param {string} [method]
 */
async function send(path, body, signal, method = body ? "POST" : "GET") {
  /** @type {Record<string, string>} */
  const headers = key.get() ? { authorization: `Bearer ${key.get()}` } : {};
  headers.prefer = "respond-async"; // the progress of a download instead of a long wait
  const form = body instanceof FormData;
  if (body && !form) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: form ? body : body && JSON.stringify(body), signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ServerError("", 0, "unreachable");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new ServerError(problem.detail ?? response.statusText, response.status, problem.reason ?? "");
}

/** Models that are served, then those that the server fetches for a request. @returns {Promise<Model[]>} */
export async function listModels() {
  const { models, available = [] } = await (await send("/v1/models", null)).json();
  const { limits } = models[0];
  const unknown = { description: "", alignments: false, precision: "", languages: [], limits };
  return [...models, ...available.map((/** @type {Body} */ each) => ({ ...unknown, ...each, directions: [each] }))];
}

const DOCUMENTS = "/v1/documents";

/** @returns {Promise<{id: string, name: string}[]>} */
export const listGlossaries = async () => (await (await send("/v1/glossaries", null)).json()).glossaries;

const CORRECTIONS = "/v1/corrections";

/** @returns {Promise<{id: number, source: string, target: string}[]>} */
export const listCorrections = async () => (await (await send(CORRECTIONS, null)).json()).corrections;

/** @param {Body} correction */
export const keepCorrection = (correction) => send(CORRECTIONS, correction);

/** @param {number} id */
export const approveCorrection = (id) => send(`${CORRECTIONS}/${id}/approve`, {});

/** @param {number} id */
export const deleteCorrection = (id) => send(`${CORRECTIONS}/${id}`, null, undefined, "DELETE");

/** @returns {Promise<{formats: string[]}>} */
export const readFormats = async () => (await send(`${DOCUMENTS}/formats`, null)).json();

/** Sends a file to be translated. @param {File} file @param {Body} fields @returns {Promise<Doc>} */
export async function sendFile(file, fields) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, String(value));
  form.append("file", file);
  return (await send(DOCUMENTS, form)).json();
}

/** @param {string} id @returns {Promise<Doc>} */
export const readDocument = async (id) => (await send(`${DOCUMENTS}/${id}`, null)).json();

/** @param {string} id */
export const readResult = async (id) => (await send(`${DOCUMENTS}/${id}/result`, null)).blob();

/** @param {string} id */
export const deleteDocument = (id) => send(`${DOCUMENTS}/${id}`, null, undefined, "DELETE");

/** @param {AbortSignal} signal @returns {Promise<string>} */
export const readMetrics = async (signal) => (await send("/metrics", null, signal)).text();

/**
 * @param {Body} body
 * @param {AbortSignal} [signal]
 * @returns {Promise<Answer>}
 */
export const translate = async (body, signal) => (await send("/v1/translate", body, signal)).json();

/**
 * Returns the attention of a layer and head for given translations.
 * @param {Body} body
 * @returns {Promise<{attentions: {translation: string, alignment: Alignment}[], layers: number, heads: number}>}
 */
export const readAttention = async (body) => (await send("/v1/attention", body)).json();

/**
 * Returns the number of tokens of a translation.
 * @param {Body} direction
 * @param {string} text
 * @param {string} translation
 * @returns {Promise<number>}
 */
export async function countTokens(direction, text, translation) {
  const answer = await (await send("/v1/score", { ...direction, pairs: [{ text, translation }] })).json();
  return answer.scores[0].tokens.length - 1; // without the end token
}

/**
 * Translates one text; passes each growth of the translation.
 * @param {Body} body
 * @param {(text: string) => void} grow
 * @param {AbortSignal} signal
 * @returns {Promise<Answer>}
 */
export async function stream(body, grow, signal) {
  const response = await send("/v1/translate/stream", body, signal);
  if (response.body)
    for await (const { event, data } of readEvents(response.body)) {
      const content = JSON.parse(data);
      if (event === "delta") grow(content.text);
      if (event === "result") return content;
      if (event === "error") throw new ServerError(content.detail, content.status, content.reason);
    }
  throw new ServerError("", 0, "unreachable");
}
