// Every replica: which version it has, how far it is behind, since when and why.
import {ago, count, duration, element, finder, isNumber, nameOf, plural, setText} from "./dom.js";
import {engineDiffers, kStates, reasonOf, severity, sinceOf, sinceText, stateOf} from "./states.js";
import {DataTable} from "./table.js";

const columnsOf = (page) => [
  {key: "name", label: "Replica", help: "Its name opens its events", text: (row) => row.name ?? row.id,
    node: ({name, id}) => element("a", {href: page.link("events", {q: name ?? id, level: "all"})}, nameOf(name ?? id)),
    order: (row) => String(row.name ?? row.id).toLowerCase()},
  {key: "state", label: "State", help: "current: it lacks no version that is older than ten seconds", text: (row) => stateOf(row).label,
    node: (row) => element("span", {class: `state ${stateOf(row).tone}`}, stateOf(row).label), order: severity},
  {key: "lag", label: "Versions behind", number: true, text: (row) => count(row.lag_versions), order: (row) => row.lag_versions},
  {key: "since", label: "Since", help: "Since when it lacks a version, is gone, or is in this state",
    text: (row) => sinceText(sinceOf(row)), order: sinceOf},
  {key: "why", label: "Why", text: reasonOf, node: (row) => nameOf(reasonOf(row)), order: reasonOf, wide: true},
  {key: "version", label: "Holds", help: "The last version that it fetched and proved", number: true,
    text: (row) => count(row.version), order: (row) => row.version},
  {key: "serving", label: "Serves", help: "The version that its engine loaded last; –: it tells of no engine", number: true,
    text: (row) => count(row.serving), order: (row) => row.serving},
  {key: "pause", label: "Engine pause", help: "How long its engine paused its requests for the last update; –: it does not tell",
    number: true, text: (row) => duration(row.pause_seconds), order: (row) => row.pause_seconds},
  {key: "seen", label: "Last seen", help: "Its last heartbeat", number: true, text: (row) => ago(row.seen), order: (row) => -row.seen},
  {key: "host", label: "Host", text: (row) => row.host ?? "–", node: (row) => nameOf(row.host),
    order: (row) => String(row.host ?? "").toLowerCase()},
  {key: "proof", label: "Proof", help: "proven: every tensor has the digest in the chain's manifest; differs: it holds something else; unknown: it holds nothing",
    text: (row) => row.proof ?? "–", order: (row) => row.proof},
  {key: "run", label: "Run", help: "Which run of the trainer its version belongs to", text: (row) => String(row.run ?? "–").slice(0, 8),
    node: (row) => element("code", {}, String(row.run ?? "–").slice(0, 8)), order: (row) => row.run},
  {key: "pid", label: "Process", number: true, text: (row) => (isNumber(row.pid) ? String(row.pid) : "–"),
    order: (row) => row.pid},
];

export class FleetView {
  static title = "Fleet";
  static topics = ["fleet", "tick"];

  constructor(page) {
    this.page = page;
    const {q, state, sort, down} = page.parameters;
    this.state = state ?? "";
    this.filter = element("input", {type: "search", value: q ?? "", placeholder: "Name, host, version, reason…",
      ariaLabel: "Filter replicas", oninput: () => this.changed()});
    this.chips = element("div", {class: "tools", role: "group", ariaLabel: "Show only replicas in a state"});
    this.chosen = new Map(["", ...Object.keys(kStates)].map((key) => [key, this.chip(key)]));
    this.chips.append(...this.chosen.values());
    this.found = element("span", {class: "quiet", role: "status"});
    this.table = new DataTable({
      caption: "Replicas", columns: columnsOf(page), keyOf: (row) => row.id, sortBy: sort ?? "state", descending: down === "1",
      classOf: (row) => (row.state === "current" && engineDiffers(row) ? "warn" : stateOf(row).tone),
      empty: "No replica matches. A replica appears here with its first heartbeat.",
    });
    this.table.node.className = "fleet";
    this.table.onsort = () => this.changed();
    this.node = element("div", {}, element("div", {class: "tools"}, this.filter, this.found), this.chips, this.table.node);
  }

  chip(key) {
    return element("button", {type: "button", onclick: () => {
      this.state = this.state === key ? "" : key;
      this.changed();
    }});
  }

  changed() {
    this.page.setParameters({q: this.filter.value || null, state: this.state || null, sort: this.table.sortBy,
      down: this.table.descending ? "1" : null});
    this.table.page = 0;
    this.update();
  }

  update() {
    const {replicas} = this.page.live;
    const rows = [...replicas.values()];
    const counts = Map.groupBy(rows, ({state}) => state);
    for (const [key, chip] of this.chosen) {
      const number = key === "" ? rows.length : (counts.get(key)?.length ?? 0);
      setText(chip, `${key === "" ? "all" : kStates[key].label} ${count(number)}`);
      chip.hidden = number === 0 && key !== "" && key !== this.state;
      chip.ariaPressed = String(this.state === key);
    }
    const found = finder(this.filter.value);
    const shown = rows.filter((row) => (this.state === "" || row.state === this.state) &&
      found(row.name, row.host, row.version, row.run, row.proof, stateOf(row).label, reasonOf(row)));
    setText(this.found, shown.length === rows.length ? "" : `${count(shown.length)} of ${plural(rows.length, "replica")}`);
    this.table.setRows(shown);
  }
}
