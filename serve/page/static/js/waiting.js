/** Says that an answer of the server is awaited, and that it is late. */

import { write } from "./strings.js";
import { byId } from "./text.js";

// Most translations come earlier: a note would only flicker.
const NOTE_MILLISECONDS = 1000;
// After this time without a sign of the server, it seems to hang.
export const SILENT_MILLISECONDS = 5000;

const note = byId("waiting", HTMLElement);

/** @type {ReturnType<typeof setTimeout>[]} */
let timers = [];

/** Begins a wait, or another one after a sign of the server. */
export function beginWaiting() {
  endWaiting();
  timers = [
    setTimeout(() => write(note, "awaited"), NOTE_MILLISECONDS),
    setTimeout(() => write(note, "no_answer"), SILENT_MILLISECONDS),
  ];
}

export function endWaiting() {
  timers.forEach(clearTimeout);
  write(note, "");
}
