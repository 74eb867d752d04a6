/** Files that the server translates in the background: chosen or dropped, watched, saved and deleted. */

import { chosen } from "./choices.js";
import { ServerError, deleteDocument, readDocument, readFormats, readResult, sendFile } from "./server.js";
import { write } from "./strings.js";
import { button, byId, element, said, save } from "./text.js";

/** @typedef {import("./server.js").Doc} Doc */

const POLL_MILLISECONDS = 500;
const drawer = byId("files", HTMLDetailsElement);
const input = byId("file", HTMLInputElement);
const how = byId("files-how", HTMLElement);
const list = byId("file-list", HTMLUListElement);

/** @type {(error: unknown) => void} */
let fail = () => {};

/** Says which files the server takes, when the drawer opens. */
async function showFormats() {
  try {
    const { formats } = await readFormats();
    input.accept = formats.join(",");
    input.disabled = false;
    write(how, "files_how", { formats: formats.join(" ") });
  } catch (error) {
    if (!(error instanceof ServerError) || error.status !== 404) return fail(error);
    input.disabled = true;
    write(how, "no_files");
  }
}

/** @param {Iterable<File>} files */
function add(files) {
  drawer.open = true;
  for (const file of files) translateFile(file);
}

/** Shows one file until it is deleted. @param {File} file */
async function translateFile(file) {
  const status = said("span", {}, "sending");
  const bar = element("progress", { "aria-label": file.name, max: "1", value: "0" });
  const item = element("li", {}, element("strong", {}, file.name), bar, status);
  list.append(item);
  try {
    let found = await sendFile(file, chosen());
    item.append(button("delete", () => remove(found.id, item), fail));
    while (item.isConnected && ["queued", "translating"].includes(found.status)) {
      write(status, found.status === "queued" ? "queued" : "translating");
      bar.setAttribute("value", String(found.progress));
      await new Promise((done) => setTimeout(done, POLL_MILLISECONDS));
      found = await readDocument(found.id);
    }
    if (!item.isConnected) return;
    bar.remove();
    write(status, found.status === "done" ? "done" : found.error ? "" : "failed");
    if (found.error) status.textContent = found.error;
    if (found.status === "done") status.after(button("save_file", () => saveResult(found), fail));
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    if (!item.isConnected) return; // deleted meanwhile
    bar.remove();
    write(status, error.status === 404 ? "no_files" : error.message ? "" : "unreachable");
    if (error.message && error.status !== 404) status.textContent = error.message;
    if (error.status === 401) fail(error);
  }
}

/** @param {string} id @param {HTMLElement} item */
async function remove(id, item) {
  item.remove();
  input.focus();
  await deleteDocument(id);
}

/** @param {Doc} found */
async function saveResult({ id, name }) {
  // The translation of a PDF file is Markdown.
  save(URL.createObjectURL(await readResult(id)), name.replace(/\.pdf$/i, ".md"));
}

/** @param {(error: unknown) => void} onError */
export function setUpFiles(onError) {
  fail = onError;
  drawer.addEventListener("toggle", () => drawer.open && showFormats());
  input.addEventListener("change", () => {
    add(input.files ?? []);
    input.value = "";
  });
  document.addEventListener("dragover", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    add(event.dataTransfer.files);
  });
}
