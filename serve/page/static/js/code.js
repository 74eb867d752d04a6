/** The request on the screen, as code for other programs. */

/** @typedef {import("./server.js").Body} Body */

/** @param {unknown} value */
const json = (value) => JSON.stringify(value);

/** Quotes for a POSIX shell. @param {string} text */
const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Writes a value as Python. @param {unknown} value @returns {string} */
function python(value) {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value && typeof value === "object" && !Array.isArray(value))
    return `{${Object.entries(value)
      .filter(([, each]) => each !== undefined)
      .map(([name, each]) => `${json(name)}: ${python(each)}`)
      .join(", ")}}`;
  return json(value);
}

/**
 * Returns the forms of a request, by name. Keys never appear: the variable DRAGOMAN_KEY holds one.
 * @param {Body} body
 * @param {string} origin
 * @param {boolean} withKey
 * @returns {Record<string, string>}
 */
export function writeCode(body, origin, withKey) {
  const header = withKey ? ` \\\n  --header "authorization: Bearer $DRAGOMAN_KEY"` : "";
  const host = new URL(origin).hostname;
  const { text, source_language: source, target_language: target, format } = body;
  // DeepL detects the language if none is named.
  const languages = { ...(source === "auto" ? {} : { source_lang: source.toUpperCase() }), target_lang: target.toUpperCase() };
  const authorization = withKey ? `, headers={"authorization": f"Bearer {os.environ['DRAGOMAN_KEY']}"}` : "";
  return {
    curl: `curl ${origin}/v1/translate --header 'content-type: application/json'${header} \\\n  --data ${quote(json(body))}`,
    Python: `${withKey ? "import os\n" : ""}import httpx

response = httpx.post(
    ${json(`${origin}/v1/translate`)},
    json=${python(body)}${authorization},
)
print(response.json()["translations"][0]["text"])`,
    gRPC: `grpcurl -plaintext${withKey ? ` -H "authorization: Bearer $DRAGOMAN_KEY"` : ""} -d ${quote(json({ ...body, text: [text] }))} \\
  ${host}:8001 dragoman.v1.TranslationService/Translate`,
    DeepL: `curl ${origin}/v2/translate --header 'content-type: application/json' \\
  --header "authorization: DeepL-Auth-Key ${withKey ? "$DRAGOMAN_KEY" : "any"}" \\
  --data ${quote(json({ text: [text], ...languages, tag_handling: format }))}`,
    LibreTranslate: `curl ${origin}/translate --header 'content-type: application/json' \\
  --data ${quote(json({ q: text, source, target, format: format ?? "text" }))}${withKey ? ' --header "authorization: Bearer $DRAGOMAN_KEY"' : ""}`,
  };
}
