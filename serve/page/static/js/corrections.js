/** Corrections of translations: what one keeps, and those that wait for approval. */

import { ServerError, approveCorrection, deleteCorrection, keepCorrection, listCorrections } from "./server.js";
import { write } from "./strings.js";
import { button, byId, element, said } from "./text.js";

const drawer = byId("corrections", HTMLDetailsElement);
const box = byId("correction", HTMLTextAreaElement);
const status = byId("correction-status", HTMLElement);
const waiting = byId("correction-list", HTMLUListElement);

/** @type {import("./drawers.js").Shown | null} */
let shown = null;
/** @type {(error: unknown) => void} */
let fail = () => {};
let translateAgain = () => {};

/**
 * @param {() => void} onApproved called when translations may have changed
 * @param {(error: unknown) => void} onError
 */
export function setUpCorrections(onApproved, onError) {
  translateAgain = onApproved;
  fail = onError;
  drawer.addEventListener("toggle", () => drawer.open && list().catch(fail));
  drawer.querySelector(".tools")?.append(button("keep", keep, fail));
}

/** Offers another translation for correction. @param {import("./drawers.js").Shown | null} next */
export function showCorrection(next) {
  shown = next;
  box.value = shown?.answer.translations[0].text ?? "";
}

/** Sends the correction; it changes no translation before it is approved. */
async function keep() {
  if (!shown) return write(status, "nothing_yet");
  const { source_language, target_language } = shown.direction;
  const translation = shown.answer.translations[0].text;
  await keepCorrection({ source: shown.text.trim(), target: box.value, translation, source_language, target_language });
  write(status, "kept");
  await list();
}

async function list() {
  try {
    waiting.replaceChildren(...(await listCorrections()).map(item));
  } catch (error) {
    if (!(error instanceof ServerError) || error.status !== 403) throw error;
    write(status, "no_corrections");
  }
}

/** @param {{id: number, source: string, target: string}} correction */
function item({ id, source, target }) {
  const approve = async () => {
    await approveCorrection(id);
    write(status, "");
    await list();
    translateAgain();
  };
  const remove = async () => {
    await deleteCorrection(id);
    await list();
  };
  return element(
    "li",
    {},
    element("span", { dir: "auto" }, source),
    " → ",
    element("strong", { dir: "auto" }, target),
    button("approve", approve, fail),
    button("delete", remove, fail),
  );
}
