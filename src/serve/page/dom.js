// Elements and words. All text from the API goes through textContent: names are never markup.

// element("td", {class: "name", onclick: f, ariaLabel: "x"}, "text", node, ...): nulls are left out.
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (key === "class") made.className = value;
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// Replaces what a node holds, only if its text differs: selections and screen readers are left alone.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const kLongest = 600;
// A name from outside: isolated, so that its direction cannot reorder what stands beside it.
export function nameOf(text, className = "name") {
  const whole = String(text ?? "–");
  return element("bdi", {class: className, title: whole.slice(0, kLongest)}, whole.slice(0, kLongest));
}

// A test for rows that have every word which was typed, in any of their texts.
export function finder(typed) {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  return (...texts) => {
    const text = words.length > 0 ? texts.join("\n").toLowerCase() : "";
    return words.every((word) => text.includes(word));
  };
}

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

const grouped = new Intl.NumberFormat("en-US");
export const count = (value) => (isNumber(value) ? grouped.format(value) : "–");
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

function scaled(value, step, units) {
  let unit = 0;
  // 999.6 k is 1.00 M.
  while (Math.abs(value) >= step * 0.9995 && unit < units.length - 1) [value, unit] = [value / step, unit + 1];
  return `${unit === 0 ? count(Math.round(value)) : value.toPrecision(3)} ${units[unit]}`;
}
export const bytes = (value) =>
  isNumber(value) ? scaled(value, 1000, ["B", "kB", "MB", "GB", "TB", "PB"]) : "–";
export const short = (value) => (isNumber(value) ? scaled(value, 1000, ["", "k", "M", "G", "T"]).trim() : "–");

export function share(value) {
  if (!isNumber(value)) return "–";
  const percent = value * 100;
  if (percent === 0) return "0 %";
  if (percent < 1e-5) return `${percent.toExponential(1)} %`;
  return `${Number(percent.toPrecision(percent >= 0.1 ? 3 : 2)).toLocaleString("en-US", {maximumSignificantDigits: 3})} %`;
}

// A duration: "12 ms", "1.4 s", "3 min 05 s", "2 h 10 min", "5 d".
export function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  const value = Math.max(0, seconds);
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  const whole = Math.round(value);
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

let ahead = 0; // of the server's clock, in seconds: ages are right on a machine whose clock is wrong
let stopped = null; // while the server does not answer: what is shown is as old as its last answer
export const now = () => stopped ?? Date.now() / 1000 + ahead;
export const stopClock = (time) => (stopped = isNumber(time) ? time + ahead : null);
export function setServerTime(time) {
  if (isNumber(time)) ahead = time - Date.now() / 1000;
}
// How long ago, in whole seconds.
export function age(time) {
  const seconds = Math.max(0, Math.floor(now() - time));
  return seconds < 10 ? `${seconds} s` : duration(seconds);
}
export const ago = (time) => (isNumber(time) ? `${age(time)} ago` : "–");

// Clock time of seconds since 1970, with the date where it is not today.
export function clock(time) {
  if (!isNumber(time)) return "–";
  const date = new Date(time * 1000);
  if (Number.isNaN(date.getTime())) return "–";
  const two = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} `;
  const today = date.toDateString() === new Date().toDateString();
  return `${today ? "" : day}${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}
