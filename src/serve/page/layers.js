// Which layers move: a heat map of layers over versions, and the history of one tensor.
import {oneAtATime} from "./api.js";
import {count, element, isNumber, nameOf, plural, setText, share, short} from "./dom.js";
import {heatLegend, heightOf, imageOf, paintHeat, scaleOf} from "./heat.js";
import {paintPanels} from "./panels.js";
import {columnOf, Range, rangeTools, VersionPlot} from "./plot.js";
import {DataTable} from "./table.js";

const kTypes = ["attention", "mlp", "experts", "embeddings", "norms", "other"];
const kHistoryHeight = 240;
const kFollowMs = 5000;

export class LayersView {
  static title = "Layers";
  static topics = ["head", "theme"];

  constructor(page) {
    this.page = page;
    this.load = oneAtATime(() => this.ask());
    // A map may have 400,000 cells: with a version each second it is not asked for each second.
    this.follow = oneAtATime(async () => {
      if (this.range.to === this.range.end || !this.answer) await this.load();
      await new Promise((resolve) => setTimeout(resolve, kFollowMs));
    });
    this.rows = [];
    this.row = page.parameters.row ?? null;
    this.tensor = page.parameters.tensor ?? null;
    this.range = new Range(page.parameters, () => this.ranged());
    this.tools = rangeTools(this.range);
    this.plot = new VersionPlot({
      range: this.range, height: 60, wheelNeedsKey: true,
      label: "Share of changed weights of each layer in each version. Arrow keys move, plus and minus zoom, Enter opens a row. " +
        "The same rows are in the table below.",
      paint: (context) => this.paint(context), describe: (version, row) => this.describe(version, row),
      pick: (_, row) => this.rows[row] && this.open(this.rows[row]),
    });
    this.history = this.historyPlot();
    this.plot.left = this.history.left = 112; // one axis for both
    this.plot.pointed = (y) => (this.plot.row = Math.min(this.rows.length - 1, Math.max(0, Math.floor(y / this.tall))));
    this.plot.extraKey = (key) => this.moveRow({ArrowUp: -1, ArrowDown: 1}[key]);
    this.build();
  }

  build() {
    const choice = (label, options) => element("select", {ariaLabel: label, onchange: () => this.arrange()},
      options.map(([value, text]) => element("option", {value}, text)));
    this.type = choice("Type of module", [["", "all types"], ...kTypes.map((type) => [type, type])]);
    this.order = choice("Order of rows", [["model", "in the order of the model"], ["type", "by type"]]);
    this.back = element("button", {type: "button", onclick: () => this.openRow(null)}, "◀ All layers");
    this.note = element("p", {class: "quiet", role: "status"});
    this.legend = element("p", {class: "legend"});
    this.table = new DataTable({caption: "Layers", keyOf: ({id}) => id, columns: [
      {key: "name", label: "Layer or tensor", text: ({name}) => name, order: ({at}) => at,
        node: (row) => element("button", {type: "button", class: "link-like", onclick: () => this.open(row)}, nameOf(row.name))},
      {key: "type", label: "Type", text: ({type}) => String(type), order: ({type}) => type},
      {key: "layer", label: "Layer", number: true, text: ({layer}) => count(layer), order: ({layer}) => layer},
      {key: "tensors", label: "Tensors", number: true, text: ({tensors}) => count(tensors), order: ({tensors}) => tensors},
      {key: "elements", label: "Weights", number: true, text: ({elements}) => short(elements), order: ({elements}) => elements},
      {key: "mean", label: "Mean share changed", number: true, text: ({mean}) => share(mean), order: ({mean}) => mean},
      {key: "newest", label: "Newest", number: true, text: ({newest}) => share(newest), order: ({newest}) => newest},
    ], sortBy: "name"});
    this.table.scroller.classList.add("low");
    this.one = element("div", {hidden: true}, this.oneTitle = element("h3"), this.oneNote = element("p", {class: "quiet"}),
      element("div", {class: "card"}, this.history.node));
    this.node = element("div", {}, this.tools.node, element("div", {class: "tools"}, this.back, this.type, this.order), this.note,
      element("div", {class: "card"}, element("div", {class: "heat"}, this.plot.node), this.legend), this.one,
      element("details", {open: true}, element("summary", {}, "The rows as a table"), this.table.node));
  }

  historyPlot() {
    return new VersionPlot({
      range: this.range, height: kHistoryHeight + 20, label: "History of one tensor: share and number of changed weights",
      paint: (context, plot) => this.panels && paintPanels(context, plot, {versions: this.one.answer.columns.version,
        step: this.one.answer.step}, this.panels),
      describe: (version) => this.describeHistory(version), pick: (version) => this.page.go("version", {n: version}),
    });
  }

  update(topic) {
    const {first, head} = this.page.live;
    if (topic === "theme") this.arrange();
    else if (!isNumber(head)) setText(this.note, "Nothing was published yet.");
    else {
      this.range.setExtent(this.answer?.first ?? first ?? 0, head);
      this.follow();
    }
  }

  ranged() {
    this.page.setParameters(this.range.parameters);
    this.plot.draw();
    this.history.draw();
    this.load();
  }

  openRow(row) {
    [this.row, this.tensor, this.one.hidden] = [row, null, true];
    this.page.setParameters({row, tensor: null});
    this.load();
  }

  open(row) {
    if (this.row === null) {
      this.openRow(row.id);
      return;
    }
    this.tensor = row.tensor;
    this.page.setParameters({tensor: row.tensor});
    this.load();
  }

  moveRow(by) {
    if (!by) return false;
    this.plot.row = Math.min(this.rows.length - 1, Math.max(0, this.plot.row + by));
    this.plot.setCursor(this.plot.cursor ?? this.range.to - 1);
    return true;
  }

  async ask() {
    const {api, live} = this.page;
    this.tools.update();
    try {
      const points = Math.min(1000, Math.max(20, Math.floor(this.plot.width / 4)));
      this.answer = await api.get(`${live.path}/layers`, {...this.range.asked, points, row: this.row});
      this.range.setExtent(this.answer.first, Math.max(this.answer.head ?? 0, live.head ?? 0));
      this.arrange();
      this.complete = isComplete(this.answer);
      if (this.row !== null && this.answer.rows.length > 0) await this.askTensor(this.tensor ?? this.answer.rows[0].tensor);
    } catch (error) {
      setText(this.note, `Layers could not be read: ${error.message}`);
      if (error.status === 404 || error.status === 400) this.row = null;
      return;
    }
    if (this.complete) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.node.isConnected && this.load(), 1000);
  }

  // The rows as the choices above the map want them.
  arrange() {
    if (!this.answer) return;
    const {rows, rows_total: total, loading, step, row} = this.answer;
    this.rows = rows.map((each, at) => ({...each, at})).filter(({type}) => !this.type.value || type === this.type.value);
    if (this.order.value === "type") this.rows.sort((a, b) => kTypes.indexOf(a.type) - kTypes.indexOf(b.type) || a.at - b.at);
    for (const each of this.rows) {
      const known = each.share.filter(isNumber);
      each.mean = known.length > 0 ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
      each.newest = known.at(-1) ?? null;
    }
    this.back.hidden = row === null && this.row === null;
    this.tall = heightOf(this.rows.length);
    this.plot.height = Math.max(1, this.rows.length) * this.tall + 24;
    const scale = scaleOf(this.rows);
    this.image = imageOf(this.rows, this.answer.version.length, scale);
    this.legend.replaceChildren(...heatLegend(scale, kTypes.filter((type) => rows.some((each) => each.type === type))));
    setText(this.note, [
      loading.done < loading.total ? `Reading headers: ${count(loading.done)} of ${count(loading.total)} versions so far.` : "",
      step > 1 ? `Each column is the mean of a sample of ${count(step)} versions.` : "",
      total > rows.length ? `The first ${count(rows.length)} of ${count(total)} rows.` : "",
      row === null ? "Click a row, or press Enter on it, to see its tensors and their history." : "",
    ].filter(Boolean).join(" "));
    this.table.setRows(this.rows);
    this.plot.draw();
  }

  paint(context) {
    if (this.answer?.version.length) paintHeat(context, this.plot, this.answer, this.rows, this.image, labelOf);
  }

  describe(version, at) {
    const row = this.rows[at];
    const index = this.answer ? columnOf(this.answer.version, this.answer.step, version) : -1;
    if (!row || index < 0) return `version ${count(version)}`;
    const value = row.share[index];
    const [start, step] = [this.answer.version[index], this.answer.step];
    return `${String(row.name).slice(0, 120)} (${row.type}, ${plural(row.tensors ?? 1, "tensor")}, ${short(row.elements)} weights) · ` +
      `${step > 1 ? `versions ${count(start)}–${count(start + step - 1)}` : `version ${count(start)}`}: ` +
      (isNumber(value) ? `${share(value)} changed` : "not read, or stored whole");
  }

  async askTensor(name) {
    const {api, live} = this.page;
    const points = Math.min(4000, Math.max(50, Math.floor(this.plot.width / 2)));
    const answer = await api.get(`${live.path}/tensors/${encodeURIComponent(name)}`, {...this.range.asked, points});
    this.one.answer = answer;
    this.complete &&= isComplete(answer);
    const {columns, one_ulp: oneUlp} = answer;
    const height = kHistoryHeight / 2;
    this.panels = [{title: "Share of weights that changed", colour: "density", format: share, means: columns.share, height},
      {title: "Changed weights", colour: "bytes", format: short, means: columns.changed, height}];
    this.oneTitle.replaceChildren("History of ", nameOf(answer.name));
    setText(this.oneNote, `${answer.dtype} [${(answer.shape ?? []).join(" × ")}], ${count(answer.elements)} weights, ${answer.type}` +
      (isNumber(oneUlp) ? `. In the versions shown, about ${Math.round(oneUlp * 100)} % of its changed weights moved by one ULP.`
        : ". How many weights moved by one ULP is known only for large tensors of codec tight."));
    this.one.hidden = false;
    this.history.draw();
  }

  describeHistory(version) {
    if (!this.one.answer) return "";
    const {columns, step} = this.one.answer;
    const index = columnOf(columns.version, step, version);
    return index < 0 ? `version ${count(version)}` : `${step > 1 ? "versions from" : "version"} ${count(columns.version[index])}: ` +
      `${share(columns.share[index])} changed, ${count(Math.round(columns.changed[index] ?? NaN))} weights`;
  }
}

const isComplete = ({loading}) => loading.done >= loading.total;
const labelOf = ({name, tensors, layer, type}) => (tensors > 1 && isNumber(layer) ? `${layer} ${type}`
  : String(name).replace(/\.weight$/, "").split(".").slice(isNumber(layer) ? -2 : -1).join(".")).slice(0, 22);
