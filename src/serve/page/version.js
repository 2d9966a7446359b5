// One version: what its manifest and its parts say, and what a new replica fetches for it.
import {oneAtATime} from "./api.js";
import {bytes, clock, count, duration, element, isNumber, nameOf, plural, setText, share} from "./dom.js";
import {DataTable} from "./table.js";

const text = (key, label, more = {}) => ({key, label, text: (row) => String(row[key] ?? "–"), order: (row) => row[key], ...more});
const name = (key, label) => text(key, label, {node: (row) => nameOf(row[key])});
const number = (key, label, format = count) => ({key, label, number: true, text: (row) => format(row[key]), order: (row) => row[key]});
const digest = (key, label) => text(key, label, {node: (row) => element("code", {title: String(row[key])}, String(row[key] ?? "–").slice(0, 16))});

export class VersionView {
  static title = "Version";
  static topics = ["head"];

  constructor(page) {
    this.page = page;
    this.load = oneAtATime(() => this.ask());
    this.input = element("input", {type: "number", min: 0, ariaLabel: "Version", onchange: () => this.show(this.input.value)});
    const button = (label, onclick) => element("button", {type: "button", onclick}, label);
    this.older = button("◀ Older", () => this.show(this.version - 1));
    this.newer = button("Newer ▶", () => this.show(this.version + 1));
    this.note = element("p", {class: "quiet", role: "status"});
    this.body = element("div");
    this.node = element("div", {}, element("div", {class: "tools"}, element("label", {}, "Version ", this.input),
      this.older, this.newer, button("Newest", () => this.show(null))), this.note, this.body);
    this.show(page.parameters.n ?? null, true);
  }

  // null: the newest, whichever that is.
  show(wanted, silent = false) {
    const number = wanted === null || wanted === "" ? null : Math.max(0, Math.floor(Number(wanted)));
    this.chosen = Number.isFinite(number) ? number : null;
    if (!silent) this.page.setParameters({n: this.chosen});
    this.load();
  }

  // The version that is shown stays while others are published: somebody reads it.
  update() {
    if (this.version === undefined) this.load();
    this.newer.disabled = this.version >= (this.page.live.head ?? 0);
  }

  async ask() {
    const {api, live} = this.page;
    const version = this.chosen ?? live.head;
    if (!isNumber(version)) {
      setText(this.note, "Nothing was published yet.");
      return;
    }
    this.version = version;
    this.input.value = version;
    this.older.disabled = version <= 0;
    const path = `${live.path}/versions/${version}`;
    try {
      const [answer, plan] = await Promise.all([api.get(path, {tensors: 1000}),
        api.get(`${path}/plan`).catch((error) => ({error: error.message}))]);
      setText(this.note, "");
      this.body.replaceChildren(...this.draw(answer, plan));
    } catch (error) {
      setText(this.note, `Version ${count(version)} could not be read: ${error.message}`);
      this.body.replaceChildren();
    }
    this.update();
  }

  draw(answer, plan) {
    const files = [name("name", "Name"), number("bytes", "Bytes", bytes), digest("sha256", "SHA-256")];
    const pair = (...sides) => element("div", {class: "pair"}, sides.map((side) => element("div", {}, side)));
    return [element("p", {class: "card"}, nameOf(answer.text)),
      pair(this.facts(answer), [...this.plan(plan), ...list("Payloads by codec, without names and headers", answer.codecs, [name("name", "Codec"),
        number("tensors", "Tensors"), number("changed", "Changed weights"), number("bytes", "Bytes", bytes)], "bytes")]),
      ...list(titleOf("Tensors", answer.tensors, answer.tensors_total, "those with the most changed weights first"), answer.tensors, [
        name("name", "Tensor"), text("type", "Type"), text("dtype", "Dtype"),
        text("shape", "Shape", {text: ({shape}) => (shape ?? []).join(" × "), order: ({elements}) => elements}),
        number("changed", "Changed weights"), number("share", "Share changed", share), text("codec", "Codec"),
        number("bytes", "Bytes", bytes), digest("digest", "Digest"),
      ], null),
      pair(list(titleOf("Parts", answer.parts, answer.parts_total), answer.parts, files, null),
        list(titleOf("Files beside the weights", answer.files, answer.files_total), answer.files, files, null))];
  }

  facts(answer) {
    const code = (value) => (value ? element("code", {}, String(value)) : "–");
    const signed = answer.signed_by ? element("span", {}, "signed with ", code(answer.signed_by),
      answer.checked ? ", checked by this server" : ", not checked by this server: it was given no keys") : "not signed";
    const hops = (answer.also ?? []).map(({base, bytes: size}) =>
      `${base === null ? "anchor" : `merged delta from version ${count(base)}`} (${bytes(size)})`);
    const rows = [
      ["Published", `${clock(answer.created)}${isNumber(answer.seconds) ? `, in ${duration(answer.seconds)}` : ""}`],
      ["Publisher", nameOf(answer.publisher)],
      ["Kind", answer.kind === "full" ? `whole${answer.reason ? `: ${answer.reason}` : ""}` : `delta onto version ${count(answer.base)}`],
      answer.kind === "full" ? null : ["Changed", `${count(answer.changed)} of ${count(answer.elements)} weights (${share(answer.share)}), in ` +
        `${count(answer.tensors_changed)} of ${plural(answer.tensors_total, "tensor")}`],
      ["Size", `${bytes(answer.bytes)} in ${plural(answer.parts_total ?? answer.parts?.length ?? 0, "part")}, codec ${answer.codec === "auto" ? "chosen for each tensor" : answer.codec ?? "–"}`],
      ["Signature", signed],
      ["Also reached by", hops.length > 0 ? hops.join(", ") : "nothing else"],
      answer.anchor === answer.version ? null : ["Anchor before it", isNumber(answer.anchor) ? `version ${count(answer.anchor)}, ${bytes(answer.anchor_bytes)}` : "–"],
      ["Held by", element("span", {}, plural(answer.num_replicas, "replica"), answer.replicas?.length ? ": " : "",
        (answer.replicas ?? []).slice(0, 20).flatMap((replica, at) => [at > 0 ? ", " : "", nameOf(replica)]))],
      ["Run", code(answer.run)], ["Manifest", code(answer.manifest)], ["Parent", code(answer.parent)],
      ["State digest", code(answer.state_digest)],
      answer.quantization ? ["Quantization", nameOf(answer.quantization)] : null,
      answer.origin ? ["Imported from", nameOf(answer.origin)] : null,
    ].filter(Boolean);
    return [element("h3", {}, "This version"), element("dl", {class: "card facts"},
      rows.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]))];
  }

  plan(plan) {
    const heading = element("h3", {}, "What a new replica fetches");
    if (plan.error) return [heading, element("p", {class: "card error"}, `The plan could not be made: ${plan.error}`)];
    const saved = plan.all_deltas_bytes > plan.bytes ? ` All single deltas would be ${bytes(plan.all_deltas_bytes)}.` : "";
    const columns = [text("kind", "Step"), {key: "base", label: "From", number: true, order: ({base}) => base,
      text: ({base}) => (base === null ? "nothing" : count(base))}, number("version", "To"), number("parts", "Parts"),
      number("bytes", "Bytes", bytes)];
    return [heading, element("p", {class: "card"}, nameOf(plan.text), saved),
      ...(plan.notes ?? []).map((note) => element("p", {class: "error"}, nameOf(note))),
      ...list(titleOf("Steps of that plan", plan.hops, plan.hops_total), plan.hops, columns, null)];
  }
}

const titleOf = (title, rows, total, more) =>
  [title, isNumber(total) && rows && total > rows.length ? ` (${count(rows.length)} of ${count(total)}` + (more ? `, ${more})` : ")") : ""].join("");

function list(title, rows, columns, sortBy) {
  if (!rows || rows.length === 0) return [];
  const table = new DataTable({caption: title, columns, keyOf: (row) => rows.indexOf(row), sortBy, descending: true, pageSize: 200});
  table.scroller.classList.add("low");
  table.setRows(rows);
  return [element("h3", {}, title), table.node];
}
