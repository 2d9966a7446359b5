// A heat map on the x axis of a plot: a row for a group of tensors, a colour for the share of weights that changed.
import {element, isNumber, share} from "./dom.js";
import {palette} from "./plot.js";

const kLight = ["#e3eefa", "#a9cdec", "#5ea3d6", "#2b72b8", "#3c3f9e", "#43125f"];
const kDark = ["#17283f", "#1c4c79", "#2480a9", "#3fb6a8", "#9fd873", "#fdf2a0"];

const stopsNow = () => (channelsOf(palette().panel)[0] < 128 ? kDark : kLight);
const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// Powers of ten around the shares of all rows.
export function scaleOf(rows) {
  let [low, high] = [Infinity, 0];
  for (const {share: values} of rows) {
    for (const value of values) {
      if (!isNumber(value) || value <= 0) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  if (high === 0) return {low: 1e-4, high: 1};
  low = Math.max(10 ** Math.floor(Math.log10(low)), 1e-9);
  return {low, high: Math.min(1, Math.max(10 ** Math.ceil(Math.log10(high)), low * 10))};
}

// One pixel a cell; painting scales it. Unknown cells are transparent, unchanged ones grey.
export function imageOf(rows, columns, {low, high}) {
  const image = new ImageData(Math.max(1, columns), Math.max(1, rows.length));
  const stops = stopsNow().map(channels);
  const zero = channelsOf(palette().soft);
  rows.forEach((row, y) => {
    for (let x = 0; x < columns; ++x) {
      const value = row.share[x];
      if (!isNumber(value)) continue;
      const part = (Math.log(Math.max(value, low) / low) / Math.log(high / low)) * (stops.length - 1);
      const at = Math.min(stops.length - 2, Math.max(0, Math.floor(part)));
      const mix = Math.min(1, part - at);
      const colour = value === 0 ? zero : stops[at].map((channel, i) => channel + (stops[at + 1][i] - channel) * mix);
      image.data.set([...colour, 255], (y * columns + x) * 4);
    }
  });
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

const channelsOf = (text) => (text.match(/[\d.]+/g) ?? [128, 128, 128]).slice(0, 3).map(Number);

export const heightOf = (rows) => (rows <= 64 ? 14 : rows <= 120 ? 8 : rows <= 400 ? 4 : 2);

export function paintHeat(context, plot, {version, step}, rows, image, labelOf) {
  const colours = palette();
  const tall = heightOf(rows.length);
  context.save();
  context.beginPath();
  context.rect(plot.left, 0, plot.width, rows.length * tall);
  context.clip();
  context.imageSmoothingEnabled = false;
  const [from, to] = [plot.x(version[0]), plot.x(version.at(-1) + step)];
  context.drawImage(image, from, 0, to - from, rows.length * tall);
  context.restore();
  context.textAlign = "right";
  let free = -Infinity;
  rows.forEach((row, index) => {
    context.fillStyle = colours[row.type] ?? colours.other;
    context.fillRect(plot.left - 6, index * tall, 4, Math.max(1, tall - (tall > 4 ? 1 : 0)));
    const middle = index * tall + tall / 2;
    if (middle - free < 13) return;
    context.fillStyle = colours.quiet;
    context.fillText(labelOf(row), plot.left - 10, Math.max(6, middle), plot.left - 12);
    free = middle;
  });
  if (plot.cursor === null || !rows[plot.row]) return;
  context.strokeStyle = colours.ink;
  context.strokeRect(plot.left + 0.5, plot.row * tall + 0.5, plot.width - 1, tall - 1);
}

export function heatLegend({low, high}, types) {
  const swatch = (colour) => {
    const made = element("span", {class: "swatch"});
    made.style.background = colour;
    return made;
  };
  return [
    element("span", {}, `${share(low)} `, stopsNow().map(swatch), ` ${share(high)} of the weights changed (logarithmic)`),
    element("span", {}, swatch("var(--soft)"), "none changed"), element("span", {}, swatch("var(--panel)"), "not read, or stored whole"),
    ...types.map((type) => element("span", {}, swatch(`var(--${type})`), type)),
  ];
}
