// What happened, the newest first, as the server tells it.
import {clock, count, element, finder, isNumber, nameOf, plural, setText} from "./dom.js";
import {kEventsKept} from "./live.js";
import {DataTable} from "./table.js";

const kTones = {ok: "", warning: "warn", error: "bad"};
const words = (kind) => (kind === "catch_up" ? "update" : String(kind).replaceAll("_", " "));

export class EventsView {
  static title = "Events";
  static topics = ["events"];

  constructor(page) {
    this.page = page;
    const {q, kind, level} = page.parameters;
    this.filter = element("input", {type: "search", value: q ?? "", placeholder: "Name, host, version, text…",
      ariaLabel: "Filter events", oninput: () => this.changed()});
    this.level = element("select", {ariaLabel: "How serious", onchange: () => this.changed()},
      [["", "all but updates"], ["all", "all events"], ["warning", "warnings and errors"], ["error", "errors"]].map(([value, label]) =>
        element("option", {value, selected: value === level}, label)));
    this.kind = element("select", {ariaLabel: "Kind of event", onchange: () => this.changed()}, element("option", {value: ""}, "every kind"));
    this.kinds = new Set();
    this.wanted = kind ?? "";
    this.found = element("span", {class: "quiet", role: "status"});
    this.table = new DataTable({caption: "Events", keyOf: ({id}) => id, classOf: ({state}) => kTones[state] ?? "", columns: [
      {key: "time", label: "Time", text: ({time}) => clock(time)},
      {key: "kind", label: "Event", text: ({kind: its}) => words(its),
        node: (row) => element("span", {class: `state ${kTones[row.state] ?? ""}`}, words(row.kind))},
      {key: "version", label: "Version", number: true, text: ({version}) => count(version),
        node: ({version}) => (isNumber(version) ? element("a", {href: page.link("version", {n: version})}, count(version)) : "–")},
      {key: "replica", label: "Replica", text: ({replica}) => replica ?? "", node: ({replica}) => (replica ? nameOf(replica) : "")},
      {key: "host", label: "Host", text: ({host}) => host ?? "", node: ({host}) => (host ? nameOf(host) : "")},
      {key: "text", label: "What happened", wide: true, text: ({text}) => String(text), node: ({text}) => nameOf(text)},
    ], empty: "No event matches."});
    this.node = element("div", {}, element("div", {class: "tools"}, this.filter, this.level, this.kind, this.found), this.table.node);
  }

  changed() {
    this.wanted = this.kind.value;
    this.page.setParameters({q: this.filter.value || null, kind: this.wanted || null, level: this.level.value || null});
    this.table.page = 0;
    this.update();
  }

  update() {
    const {events} = this.page.live;
    for (const {kind} of events) {
      if (this.kinds.has(kind)) continue;
      this.kinds.add(kind);
      this.kind.append(element("option", {value: kind, selected: kind === this.wanted}, words(kind)));
    }
    const found = finder(this.filter.value);
    const serious = {warning: ["warning", "error"], error: ["error"]}[this.level.value];
    const isWanted = ({kind}) => (this.wanted ? kind === this.wanted : this.level.value !== "" || kind !== "catch_up");
    const shown = events.filter((event) => (!serious || serious.includes(event.state)) && isWanted(event) &&
      found(event.text, event.replica, event.host, event.version, event.kind));
    const all = `${events.length >= kEventsKept ? "the newest " : ""}${plural(events.length, "event")}`;
    setText(this.found, shown.length === events.length ? all : `${count(shown.length)} of ${all}`);
    this.table.setRows(shown.reverse());
  }
}
