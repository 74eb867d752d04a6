// Reads a list of messages of ICU, and writes the structure and the texts of each, or null if one is malformed.
//
// The arguments of a text are sorted: a translation may have another order of words.

import { parse, TYPE } from "@formatjs/icu-messageformat-parser";

function read(elements, texts) {
  const literals = elements.filter((each) => each.type === TYPE.literal).map((each) => each.value);
  const text = literals.join(" ");
  if (/\p{L}/u.test(text)) texts.push(text);
  return elements
    .filter((each) => each.type !== TYPE.literal)
    .map((each) => ({
      type: each.type,
      value: each.value,
      kind: each.pluralType,
      offset: each.offset,
      options: Object.entries(each.options ?? {}).map(([name, branch]) => [name, read(branch.value, texts)]),
    }))
    .sort((left, right) => JSON.stringify(left).localeCompare(JSON.stringify(right)));
}

function describe(message) {
  const texts = [];
  try {
    return { structure: read(parse(message, { ignoreTag: true }), texts), texts };
  } catch {
    return null;
  }
}

let input = "";
for await (const part of process.stdin) input += part;
console.log(JSON.stringify(JSON.parse(input).map(describe)));
