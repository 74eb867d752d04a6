/** The attention of a sentence as a map of cells: one row per word of the translation, one column per word of the text. */

import { CodePoints, save } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const CELL = 26;
const CHARACTER = 7.6;
// A map shrinks to the width of the page, but no further than this.
const MIN_SCALE = 0.7;
// A cell is as opaque as its weight is large; the style sheet has its color in both themes, a saved file this one.
const COLOR = "#0d5e57";

/** @typedef {import("./server.js").Alignment} Alignment */

/**
 * @param {string} name
 * @param {Record<string, string | number>} attributes
 * @param {string} [text]
 */
function node(name, attributes, text = "") {
  const created = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, String(value));
  created.append(text);
  return created;
}

/** Small weights stay visible. @param {number} weight */
const opacity = (weight) => Math.sqrt(Math.min(1, Math.max(0, weight))).toFixed(3);

/**
 * Returns the map of one sentence.
 * @param {Alignment} alignment
 * @param {string} text
 * @param {string} translation
 * @param {string} label
 */
export function drawMap(alignment, text, translation, label) {
  const [from, to] = [new CodePoints(text), new CodePoints(translation)];
  const columns = alignment.source.map(({ start, end }) => from.slice(start, end));
  const rows = alignment.target.map(({ start, end }) => to.slice(start, end));
  const longest = (/** @type {string[]} */ list) => CHARACTER * Math.max(3, ...list.map((each) => [...each].length));
  const left = longest(rows) + 12;
  const top = longest(columns) * 0.8 + 16;
  const [width, height] = [left + columns.length * CELL + top * 0.7, top + rows.length * CELL + 4];
  const map = /** @type {SVGSVGElement} */ (
    node("svg", { class: "map", viewBox: `0 0 ${width} ${height}`, width, height, role: "img" })
  );
  map.style.minWidth = `${MIN_SCALE * width}px`;
  map.append(node("title", {}, label));
  columns.forEach((word, index) => {
    const [x, y] = [left + index * CELL + CELL * 0.6, top - 8];
    map.append(node("text", { x, y, transform: `rotate(-50 ${x} ${y})` }, word));
  });
  rows.forEach((word, row) => {
    map.append(node("text", { x: left - 8, y: top + row * CELL + CELL * 0.66, "text-anchor": "end" }, word));
    columns.forEach((other, column) => {
      const weight = alignment.weights[row][column];
      const cell = node("rect", {
        x: left + column * CELL,
        y: top + row * CELL,
        width: CELL - 1,
        height: CELL - 1,
        fill: COLOR,
        "fill-opacity": opacity(weight),
        "data-row": row,
        "data-column": column,
      });
      cell.append(node("title", {}, `${word} ← ${other}: ${(100 * weight).toFixed(1)} %`));
      map.append(cell);
    });
  });
  return map;
}

/**
 * Returns the map as a file: fonts and colors are attributes, because a file has no style sheet.
 * @param {SVGSVGElement} map
 */
function standalone(map) {
  const copy = /** @type {SVGSVGElement} */ (map.cloneNode(true));
  copy.setAttribute("xmlns", SVG);
  copy.removeAttribute("style");
  for (const each of copy.querySelectorAll("text")) {
    each.setAttribute("font-family", "sans-serif");
    each.setAttribute("font-size", "13");
    each.setAttribute("fill", "#1b2425");
  }
  copy.prepend(node("rect", { width: "100%", height: "100%", fill: "#fff", stroke: "none" }));
  return new XMLSerializer().serializeToString(copy);
}

/** @param {SVGSVGElement} map @param {string} name of the file, without its ending */
export function saveSvg(map, name) {
  save(URL.createObjectURL(new Blob([standalone(map)], { type: "image/svg+xml" })), `${name}.svg`);
}

/** @param {SVGSVGElement} map @param {string} name of the file, without its ending */
export async function savePng(map, name) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(standalone(map))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  const scale = 2;
  [canvas.width, canvas.height] = [map.width.baseVal.value * scale, map.height.baseVal.value * scale];
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  save(canvas.toDataURL("image/png"), `${name}.png`);
}
