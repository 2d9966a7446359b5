// The chain over its versions: bytes, changes, times, anchors, merged deltas, and where each replica is.
import {oneAtATime} from "./api.js";
import {bytes, clock, count, duration, element, isNumber, setText, share} from "./dom.js";
import {paintPanels} from "./panels.js";
import {columnOf, palette, Range, rangeTools, VersionPlot} from "./plot.js";
import {engineDiffers, stateOf} from "./states.js";
import {DataTable} from "./table.js";

const kPanels = [
  {key: "bytes", title: "Bytes of a version", colour: "bytes", format: bytes, height: 104},
  {key: "share", title: "Share of weights that changed", colour: "density", format: share, height: 104},
  {key: "seconds", title: "Time to publish", colour: "time", format: duration, height: 88},
];
const kMarks = 62;
const kReplicas = 96;

const kColumns = [
  {key: "version", label: "Version", number: true, text: (row) => row.label, order: (row) => row.version},
  {key: "count", label: "Versions", number: true, text: (row) => count(row.count), order: (row) => row.count},
  {key: "bytes", label: "Mean bytes", number: true, text: (row) => bytes(row.bytes), order: (row) => row.bytes},
  {key: "share", label: "Mean share changed", number: true, text: (row) => share(row.share), order: (row) => row.share},
  {key: "seconds", label: "Mean time", number: true, text: (row) => duration(row.seconds), order: (row) => row.seconds},
  {key: "created", label: "Published", text: (row) => clock(row.created), order: (row) => row.created},
  {key: "full", label: "Whole", number: true, text: (row) => count(row.full), order: (row) => row.full},
  {key: "failed", label: "Failed", number: true, text: (row) => count(row.failed), order: (row) => row.failed},
  {key: "late", label: "Late", text: (row) => (row.late ? `${duration(row.gap)} after the one before` : ""),
    order: (row) => row.late},
];

export class ChainView {
  static title = "Chain";
  static topics = ["head", "fleet", "theme"];

  constructor(page) {
    this.page = page;
    this.load = oneAtATime(() => this.ask());
    this.range = new Range(page.parameters, () => this.ranged());
    this.tools = rangeTools(this.range);
    this.plot = new VersionPlot({
      range: this.range, height: kPanels.reduce((sum, {height}) => sum + height, kMarks + kReplicas + 20),
      label: "Bytes, share of changed weights and time of each version; anchors, merged deltas and replicas. " +
        "Arrow keys move, plus and minus zoom, Page Up and Page Down pan, 0 shows all, Enter opens a version. " +
        "The same numbers are in the table below.",
      paint: (context) => this.paint(context), describe: (version) => this.describe(version),
      pick: (version) => page.go("version", {n: version}),
    });
    this.note = element("p", {class: "quiet", role: "status"});
    this.table = new DataTable({caption: "Versions", columns: kColumns, keyOf: ({version}) => version,
      sortBy: "version", descending: true});
    this.details = element("details", {ontoggle: () => this.fillTable()}, element("summary", {}, "The same as a table"),
      this.table.node);
    this.node = element("div", {}, this.tools.node, this.note, element("div", {class: "card"}, this.plot.node, legend()),
      this.details);
  }

  update(topic) {
    const {first, head} = this.page.live;
    if (topic !== "head") {
      this.plot.draw();
      return;
    }
    if (!isNumber(head)) {
      setText(this.note, "Nothing was published yet.");
      return;
    }
    this.range.setExtent(this.answer?.first ?? first ?? 0, head);
    this.load();
  }

  ranged() {
    this.page.setParameters(this.range.parameters);
    this.tools.update();
    this.plot.draw();
    this.load();
  }

  async ask() {
    const points = Math.min(4000, Math.max(50, Math.floor(this.plot.width / 2)));
    try {
      this.take(await this.page.api.get(`${this.page.live.path}/versions`, {...this.range.asked, points}));
    } catch (error) {
      setText(this.note, `Versions could not be read: ${error.message}`);
    }
  }

  take(answer) {
    this.answer = answer;
    this.range.setExtent(answer.first, Math.max(answer.head ?? 0, this.page.live.head ?? 0));
    this.rows = rowsOf(answer);
    const {loading} = answer;
    setText(this.note, loading && loading.done < loading.total
      ? `Reading the chain: ${count(loading.done)} of ${count(loading.total)} versions so far.`
      : answer.step > 1 ? `Each bar is the mean of ${count(answer.step)} versions.` : "");
    this.tools.update();
    this.plot.draw();
    this.fillTable();
  }

  fillTable() {
    if (this.details.open && this.rows) this.table.setRows(this.rows);
  }

  paint(context) {
    if (!this.answer) return;
    const {columns, step} = this.answer;
    const panels = kPanels.map((panel) => ({...panel, means: this.rows.map((row) => row[panel.key])}));
    const top = paintPanels(context, this.plot, {versions: columns.version, step}, panels);
    paintMarks(context, this.plot, this.answer, this.rows, top);
    paintReplicas(context, this.plot, [...this.page.live.replicas.values()], top + kMarks);
  }

  describe(version) {
    const index = this.answer ? columnOf(this.answer.columns.version, this.answer.step, version) : -1;
    if (index < 0) return `version ${count(version)}`;
    const row = this.rows[index];
    if (!row.count) return `${row.label}: not there`;
    const here = [...this.page.live.replicas.values()].filter((replica) => replica.state !== "gone" &&
      replica.version >= row.version && replica.version < row.version + this.answer.step);
    const end = row.version + this.answer.step;
    const inColumn = (at) => at >= row.version && at < end;
    return [`${row.label}: ${bytes(row.bytes)}`, `${share(row.share)} changed`, duration(row.seconds), clock(row.created),
      this.answer.anchors.some((anchor) => inColumn(anchor.version)) ? "anchor" : null,
      this.answer.merged.some((merged) => inColumn(merged.version)) ? "merged delta" : null,
      row.failed ? `${count(row.failed)} failed publishes` : null, row.late ? `late, ${duration(row.gap)} after the one before` : null,
      here.length > 0 ? `${count(here.length)} here: ${here.slice(0, 3).map(({name}) => String(name).slice(0, 40)).join(", ")}` : null,
    ].filter(Boolean).join(" · ");
  }
}

// The columns as rows with means. A version is late if it came four times as long after the one before as is usual.
function rowsOf({columns, step}) {
  const rows = columns.version.map((version, index) => {
    const [number, created] = [columns.count[index], columns.created[index]];
    const before = columns.created[index - 1];
    return {version, count: number, created, label: step > 1 ? `${count(version)}–${count(version + step - 1)}` : count(version),
      bytes: number ? columns.bytes[index] / number : null, share: columns.share[index], seconds: columns.seconds[index],
      full: columns.full[index], failed: columns.failed[index],
      gap: isNumber(created) && isNumber(before) ? created - before : null};
  });
  const gaps = rows.map(({gap}) => gap).filter(isNumber).sort((a, b) => a - b);
  const usual = gaps[gaps.length >> 1] ?? 0;
  for (const row of rows) row.late = row.gap !== null && row.gap > 4 * usual && row.gap > 5;
  return rows;
}

function paintMarks(context, plot, {anchors, merged}, rows, top) {
  const colours = palette();
  context.textAlign = "left";
  context.fillStyle = colours.ink;
  context.fillText("Anchors, merged deltas, failed and late publishes", plot.left, top + 9, plot.width);
  const inside = (x) => x >= plot.left && x <= plot.left + plot.width;
  // A merged delta is a line from its base to its version; longer ones are lower.
  context.fillStyle = colours.accent;
  for (const {base, version} of merged) {
    const [from, to] = [plot.x(base + 0.5), plot.x(version + 0.5)];
    const y = top + 36 + Math.min(5, Math.floor(Math.log2(Math.max(1, version - base)) / 2)) * 4;
    const start = Math.max(plot.left, from);
    const end = Math.min(plot.left + plot.width, to);
    if (end > start) context.fillRect(start, y, Math.max(1, end - start - 1), 1);
    if (inside(to)) context.fillRect(to - 2, y - 1, 3, 3);
  }
  context.textAlign = "center";
  context.fillStyle = colours.good;
  for (const {version} of anchors) {
    const x = plot.x(version + 0.5);
    if (inside(x)) context.fillText("▲", x, top + 25);
  }
  for (const row of rows) {
    const x = plot.x(row.version) + (plot.x(row.version + 1) - plot.x(row.version)) / 2;
    if (!inside(x)) continue;
    context.fillStyle = row.failed ? colours.bad : colours.warn;
    if (row.failed) context.fillText("✕", x, top + 25);
    else if (row.late) context.fillText("○", x, top + 25);
  }
}

function paintReplicas(context, plot, replicas, top) {
  const colours = palette();
  const bottom = top + kReplicas - 4;
  const alive = replicas.filter(({version, state}) => isNumber(version) && state !== "gone" && state !== "other");
  context.textAlign = "left";
  context.fillStyle = colours.ink;
  context.fillText("Replicas: the version that each holds", plot.left, top + 9);
  const [older, newer] = [alive.filter(({version}) => version < Math.floor(plot.range.from)).length,
    alive.filter(({version}) => version >= plot.range.to).length];
  context.fillStyle = colours.warn;
  const elsewhere = [older > 0 ? `◀ ${count(older)} at older versions` : "", newer > 0 ? `${count(newer)} at newer versions ▶` : ""];
  if (older + newer > 0) context.fillText(elsewhere.filter(Boolean).join("   "), plot.left, top + 23, plot.width);
  // Three pixels and more a place, so that neighbours are told apart.
  const wide = Math.max(4, Math.min(14, plot.x(1) - plot.x(0) - 1));
  const places = new Map();
  for (const replica of alive) {
    const x = plot.x(replica.version + 0.5);
    if (x < plot.left || x > plot.left + plot.width) continue;
    const place = Math.round(x / wide);
    if (!places.has(place)) places.set(place, []);
    places.get(place).push(replica);
  }
  const tallest = Math.max(1, ...[...places.values()].map((here) => here.length));
  const free = [Infinity, Infinity, Infinity];
  for (const [, here] of [...places].sort(([a], [b]) => b - a)) {
    const x = plot.x(here[0].version + 0.5) - wide / 2;
    const tall = Math.max(5, (30 * Math.log1p(here.length)) / Math.log1p(tallest));
    let y = bottom;
    for (const tone of ["good", "warn", "bad"]) {
      const part = here.filter((replica) => toneOf(replica) === tone).length / here.length;
      context.fillStyle = colours[tone];
      context.fillRect(x, y - tall * part, wide - 1, tall * part);
      y -= tall * part;
    }
    // Its label, in the first of three lines that has room.
    const label = here.length === 1 ? String(here[0].name).slice(0, 24) : `${count(here.length)} replicas`;
    const end = x + wide;
    const start = end - context.measureText(label).width - 8;
    const line = free.findIndex((at) => end <= at);
    if (line < 0 || start < plot.left) continue;
    free[line] = start;
    context.textAlign = "right";
    context.fillStyle = colours.quiet;
    context.fillText(label, end - 4, top + 25 + line * 12);
    context.fillStyle = colours.line;
    context.fillRect(end - 2, top + 20 + line * 12, 1, bottom - tall - top - 20 - line * 12);
  }
}

const toneOf = (replica) =>
  replica.state === "current" && engineDiffers(replica) ? "warn" : ["good", "warn", "bad"].find((tone) => tone === stateOf(replica).tone) ?? "bad";

const legend = () => element("p", {class: "legend"}, ["▲ anchor: a version stored whole", "━ merged delta: several versions in one",
  "✕ failed publish", "○ late publish"].map((text) => element("span", {}, text)));
