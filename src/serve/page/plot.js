// A canvas whose x axis is versions: the part that is shown, zooming and panning, the cursor, the axis.
import {count, element, setText} from "./dom.js";

const kLeastVersions = 10;
const kColours = ["ink", "quiet", "line", "soft", "panel", "accent", "good", "warn", "bad", "bytes", "density", "time",
  "attention", "mlp", "experts", "embeddings", "norms", "other"];

// The versions that are shown, as [from, to): all, the newest so many, or some that were chosen.
export class Range {
  constructor({from, to, newest}, chosen) {
    this.chosen = chosen;
    [this.first, this.end] = [0, 1];
    this.newest = Number(newest) || null;
    const given = [from, to].map((text) => (text === null || text === undefined ? NaN : Number(text)));
    this.fixed = given.every(Number.isFinite) ? [given[0], given[1] + 1] : null;
    this.fit();
  }

  setExtent(first, head) {
    [this.first, this.end] = [first ?? 0, (head ?? 0) + 1];
    this.fit();
  }

  fit() {
    const least = Math.min(kLeastVersions, this.end - this.first);
    if (this.newest) {
      [this.from, this.to] = [Math.max(this.first, this.end - Math.max(this.newest, least)), this.end];
    } else if (this.fixed) {
      const span = Math.min(Math.max(this.fixed[1] - this.fixed[0], least), this.end - this.first);
      this.from = Math.min(Math.max(this.fixed[0], this.first), this.end - span);
      this.to = this.from + span;
    } else {
      [this.from, this.to] = [this.first, this.end];
    }
  }

  get span() {
    return this.to - this.from;
  }

  // What to ask the server for: whole versions, both included.
  get asked() {
    return {from: Math.floor(this.from), to: Math.max(Math.floor(this.from), Math.ceil(this.to) - 1)};
  }

  get parameters() {
    if (this.newest) return {newest: this.newest, from: null, to: null};
    return this.fixed ? {newest: null, ...this.asked} : {newest: null, from: null, to: null};
  }

  show(from, to) {
    this.newest = null;
    this.fixed = from <= this.first && to >= this.end ? null : [from, to];
    this.fit();
    if (this.fixed) this.fixed = [this.from, this.to];
    this.chosen();
  }

  showNewest(number) {
    this.fixed = null;
    this.newest = number && number < this.end - this.first ? number : null;
    this.fit();
    this.chosen();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    const span = Math.max(this.span * factor, Math.min(kLeastVersions, this.end - this.first));
    // At the newest version the end stays in view, and goes on following.
    if (this.to === this.end && at >= this.to - this.span * 0.02) {
      this.showNewest(Math.round(span));
      return;
    }
    const from = at - ((at - this.from) / this.span) * span;
    this.show(from, from + span);
  }

  pan(share) {
    const [from, span] = [this.from + this.span * share, this.span];
    if (from + span >= this.end) this.showNewest(Math.round(span));
    else this.show(Math.max(from, this.first), Math.max(from, this.first) + span);
  }
}

// Buttons for what the wheel and keys do: touch screens have neither.
export function rangeTools(range) {
  const button = (label, name, onclick) => element("button", {type: "button", ariaLabel: name, title: name, onclick}, label);
  const newest = [10, 100, 1000, 10000].map((number) =>
    button(count(number), `The newest ${count(number)} versions`, () => range.showNewest(number)));
  const ends = ["From", "To"].map((label) => element("input", {type: "number", min: 0, ariaLabel: `${label} version`}));
  const go = () => range.show(Number(ends[0].value), Number(ends[1].value) + 1);
  for (const end of ends) end.onchange = () => ends.every(({value}) => value !== "") && go();
  const node = element("div", {class: "tools", role: "group", ariaLabel: "Versions that are shown"},
    element("span", {class: "quiet"}, "Newest"), newest, button("all", "All versions", () => range.showNewest(null)),
    button("−", "Zoom out", () => range.zoom(2)), button("+", "Zoom in", () => range.zoom(0.5)),
    button("◀", "Older", () => range.pan(-0.5)), button("▶", "Newer", () => range.pan(0.5)),
    element("span", {class: "range"}, ends[0], " – ", ends[1]));
  const update = () => {
    const {from, to} = range.asked;
    if (document.activeElement !== ends[0]) ends[0].value = from;
    if (document.activeElement !== ends[1]) ends[1].value = to;
    newest.forEach((made, index) => (made.ariaPressed = String(range.newest === 10 ** (index + 1))));
  };
  return {node, update};
}

let colours = null;
// The colours of style.css as canvases want them, for the theme that is on.
export function palette() {
  if (colours) return colours;
  const probe = document.body.appendChild(element("span", {hidden: true}));
  colours = {};
  for (const name of kColours) {
    probe.style.color = `var(--${name})`;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return colours;
}
export const forgetPalette = () => (colours = null);

export class VersionPlot {
  // paint(context, plot) draws; describe(version) is the readout's text; pick(version) on click and Enter.
  constructor({range, label, height, paint, describe, pick, wheelNeedsKey = false}) {
    Object.assign(this, {range, height, paint, describe, pick, wheelNeedsKey});
    this.left = 62;
    this.hint = `${wheelNeedsKey ? "Shift and the wheel" : "The wheel"} or + and − zoom, dragging chooses, a click or Enter opens.`;
    this.cursor = null;
    this.row = 0;
    this.canvas = element("canvas", {tabIndex: 0, role: "img", ariaLabel: label});
    this.readout = element("p", {class: "readout", role: "status"});
    this.node = element("figure", {class: "chart"}, this.readout, this.canvas);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.listen();
  }

  get width() {
    return Math.max(1, (this.canvas.clientWidth || 600) - this.left - 8);
  }
  x(version) {
    return this.left + ((version - this.range.from) / this.range.span) * this.width;
  }
  versionAt(x) {
    const version = this.range.from + ((x - this.left) / this.width) * this.range.span;
    return Math.min(Math.max(version, this.range.from), this.range.to - 1e-9);
  }

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.drawNow();
    });
  }

  drawNow() {
    const [wide, ratio] = [this.canvas.clientWidth, window.devicePixelRatio || 1];
    if (wide === 0) return;
    this.canvas.style.height = `${this.height}px`;
    const [width, height] = [Math.round(wide * ratio), Math.round(this.height * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, {width, height});
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, wide, this.height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.paint(context, this);
    this.drawAxis(context);
    this.drawCursor(context);
    setText(this.readout, this.cursor === null ? this.hint : this.describe(Math.floor(this.cursor), this.row));
  }

  drawAxis(context) {
    const {quiet, line} = palette();
    const bottom = this.height - 20;
    context.fillStyle = line;
    context.fillRect(this.left, bottom, this.width, 1);
    const step = niceStep(this.range.span / Math.max(2, this.width / 64));
    context.textAlign = "center";
    for (let at = Math.ceil(this.range.from / step) * step; at < this.range.to; at += step) {
      const x = this.x(at + (this.range.span < 200 ? 0.5 : 0));
      context.fillStyle = line;
      context.fillRect(Math.round(x), bottom, 1, 4);
      context.fillStyle = quiet;
      if (x > this.left + 8 && x < this.left + this.width - 14) context.fillText(count(at), x, bottom + 12);
    }
  }

  drawCursor(context) {
    if (this.selecting) {
      const [a, b] = this.selecting;
      context.globalAlpha = 0.2;
      context.fillStyle = palette().accent;
      context.fillRect(Math.min(a, b), 0, Math.abs(b - a), this.height - 20);
      context.globalAlpha = 1;
    }
    if (this.cursor === null || this.cursor < this.range.from || this.cursor >= this.range.to) return;
    context.fillStyle = palette().ink;
    context.fillRect(Math.round(this.x(Math.floor(this.cursor) + 0.5)), 0, 1, this.height - 20);
  }

  setCursor(version, y) {
    this.cursor = version;
    if (y !== undefined) this.pointed?.(y);
    this.draw();
  }

  listen() {
    const {canvas} = this;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("wheel", (event) => {
      if (this.wheelNeedsKey && !event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const [x] = place(event);
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && !event.shiftKey) this.range.pan(Math.sign(event.deltaX) * 0.1);
      else this.range.zoom(event.deltaY + event.deltaX > 0 ? 1.3 : 1 / 1.3, this.versionAt(x));
    }, {passive: false});
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const [x] = place(event);
      canvas.setPointerCapture(event.pointerId);
      this.held = {x, touch: event.pointerType === "touch", from: this.range.from, span: this.range.span};
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (this.held && Math.abs(x - this.held.x) > 4) this.held.moved = true;
      if (this.held?.moved && this.held.touch) {
        const from = this.held.from - ((x - this.held.x) / this.width) * this.held.span;
        this.range.show(from, from + this.held.span);
      } else {
        this.selecting = this.held?.moved ? [this.held.x, x] : null;
        this.setCursor(this.versionAt(x), y);
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      const [held, [x, y]] = [this.held, place(event)];
      this.held = this.selecting = null;
      if (!held) return;
      this.setCursor(this.versionAt(x), y);
      if (!held.moved) this.pick?.(Math.floor(this.cursor), this.row);
      else if (!held.touch) this.range.show(...[held.x, x].map((at) => this.versionAt(at)).sort((a, b) => a - b));
    });
    canvas.addEventListener("pointerleave", () => !this.held && this.setCursor(null));
    canvas.addEventListener("blur", () => this.setCursor(null));
    canvas.addEventListener("dblclick", () => this.range.showNewest(null));
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.key(event.key)) return;
      event.preventDefault();
    });
  }

  key(key) {
    const {range} = this;
    const step = Math.max(1, Math.round(range.span / Math.min(200, this.width)));
    const at = this.cursor ?? range.to - 1;
    const move = (version) => this.setCursor(Math.min(Math.max(Math.floor(version), range.from), range.to - 1e-9));
    if (key === "ArrowLeft") move(this.cursor === null ? at : at - step);
    else if (key === "ArrowRight") move(at + step);
    else if (key === "+" || key === "=") range.zoom(0.5, at);
    else if (key === "-") range.zoom(2, at);
    else if (key === "0") range.showNewest(null);
    else if (key === "PageUp") range.pan(-0.8);
    else if (key === "PageDown") range.pan(0.8);
    else if (key === "Home") range.show(range.first, range.first + range.span);
    else if (key === "End") range.showNewest(Math.round(range.span));
    else if (key === "Enter") this.pick?.(Math.floor(at), this.row);
    else if (key === "Escape") this.setCursor(null);
    else return this.extraKey?.(key) ?? false;
    return true;
  }
}

// 1, 2 or 5 times a power of ten; a whole number.
export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? power;
}

// The column of an answer that has a version; -1: none.
export const columnOf = (versions, step, version) => versions.indexOf(Math.floor(version / step) * step);
