// Bars over versions, one panel under the other, on the x axis of a plot.
import {isNumber} from "./dom.js";
import {palette} from "./plot.js";

const kTitle = 18;
const kWidest = 40;

// A panel is {title, colour, format, height, means}: means has a number or null for each column.
export function paintPanels(context, plot, {versions, step}, panels) {
  let top = 0;
  for (const panel of panels) {
    paintPanel(context, plot, versions, step, panel, top);
    top += panel.height;
  }
  return top;
}

function scaleOf(panel) {
  const values = panel.means.filter((value) => isNumber(value) && value > 0).sort((a, b) => a - b);
  if (values.length === 0) return {top: 1, y: () => 0, ticks: [], log: false};
  const [least, top] = [values[0], values.at(-1)];
  // Whole versions among deltas: a linear scale would show nothing else.
  if (top / values[values.length >> 1] > 30) {
    const low = 10 ** Math.floor(Math.log10(least / 3));
    const span = Math.log10(top / low);
    const decades = [];
    for (let at = low * 10; at <= top; at *= 10) decades.push(at);
    const every = Math.ceil(decades.length / 3);
    return {log: true, y: (value) => (value > low ? Math.log10(value / low) / span : 0),
      ticks: decades.filter((_, index) => (decades.length - 1 - index) % every === 0)};
  }
  const power = 10 ** Math.floor(Math.log10(top / 2));
  const tick = [5, 2, 1].map((factor) => factor * power).find((size) => size * 2 <= top) ?? power;
  return {log: false, y: (value) => value / top, ticks: [tick, 2 * tick, 3 * tick].filter((at) => at <= top)};
}

function paintPanel(context, plot, versions, step, panel, top) {
  const colours = palette();
  const scale = scaleOf(panel);
  const [room, bottom] = [panel.height - kTitle - 6, top + panel.height - 6];
  context.textAlign = "left";
  context.fillStyle = colours.ink;
  context.fillText(panel.title + (scale.log ? " (logarithmic)" : ""), plot.left, top + kTitle / 2);
  context.textAlign = "right";
  for (const tick of scale.ticks) {
    const y = Math.round(bottom - scale.y(tick) * room);
    context.fillStyle = colours.line;
    context.fillRect(plot.left, y, plot.width, 1);
    context.fillStyle = colours.quiet;
    context.fillText(panel.format(tick), plot.left - 6, y);
  }
  context.fillStyle = colours.line;
  context.fillRect(plot.left, bottom, plot.width, 1);
  context.fillStyle = colours[panel.colour];
  for (let index = 0; index < versions.length; ++index) {
    let [a, b] = [plot.x(versions[index]), plot.x(versions[index] + step)];
    if (b - a > kWidest) [a, b] = [(a + b - kWidest) / 2, (a + b + kWidest) / 2];
    const [from, to] = [Math.max(a, plot.left), Math.min(b, plot.left + plot.width)];
    const wide = Math.max(1, to - from - (b - a > 3 ? 1 : 0));
    if (to <= from) continue;
    const value = panel.means[index];
    if (!isNumber(value)) continue;
    const tall = Math.max(value > 0 ? 1 : 0, scale.y(value) * room);
    context.fillRect(from, bottom - tall, wide, tall);
  }
}
