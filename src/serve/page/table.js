// A table that is sorted by its headings and shown page by page, so that thousands of rows stay quick.
// Rows keep their elements while they are shown: a refresh moves neither the focus nor a selection.
import {count, element, setText} from "./dom.js";

export class DataTable {
  // columns: {key, label, help, number, wide, text(row), node(row), order(row)}. A cell with a node is made anew when its text differs.
  constructor({caption, columns, keyOf, classOf, pageSize = 100, empty = "Nothing to show.", sortBy, descending}) {
    Object.assign(this, {columns, keyOf, classOf, pageSize, empty, sortBy, descending: Boolean(descending)});
    this.page = 0;
    this.rows = [];
    this.shown = new Map();
    this.headings = columns.map((column) => this.heading(column));
    this.body = element("tbody");
    this.table = element("table", {}, element("caption", {class: "unseen"}, caption),
      element("thead", {}, element("tr", {}, this.headings)), this.body);
    this.note = element("span", {class: "quiet"});
    this.back = element("button", {type: "button", onclick: () => this.turn(-1)}, "Previous");
    this.next = element("button", {type: "button", onclick: () => this.turn(1)}, "Next");
    this.pager = element("div", {class: "pager"}, this.back, this.next, this.note);
    this.scroller = element("div", {class: "scroller", tabIndex: 0, role: "region", ariaLabel: caption}, this.table);
    this.node = element("div", {}, this.scroller, this.pager);
  }

  heading(column) {
    const cell = element("th", {scope: "col", class: column.number ? "number" : null, title: column.help});
    if (!column.order) {
      cell.append(column.label);
    } else {
      cell.append(element("button", {type: "button", class: "sort", onclick: () => this.sort(column)}, column.label));
    }
    return cell;
  }

  sort(column) {
    this.descending = this.sortBy === column.key ? !this.descending : Boolean(column.number);
    this.sortBy = column.key;
    this.page = 0;
    this.onsort?.(this.sortBy, this.descending);
    this.draw();
  }

  turn(by) {
    this.page += by;
    this.draw();
    this.scroller.scrollTop = 0;
  }

  setRows(rows) {
    this.rows = rows;
    this.draw();
  }

  draw() {
    const column = this.columns.find(({key}) => key === this.sortBy);
    const sorted = column ? this.rows.map((row) => [column.order(row), row]).sort(compare) : null;
    if (sorted && this.descending) sorted.reverse();
    const pages = Math.max(1, Math.ceil(this.rows.length / this.pageSize));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    const first = this.page * this.pageSize;
    const visible = (sorted ? sorted.map(([, row]) => row) : this.rows).slice(first, first + this.pageSize);
    this.headings.forEach((cell, index) => {
      const sorting = this.columns[index].key === this.sortBy;
      if (this.columns[index].order) cell.ariaSort = sorting ? (this.descending ? "descending" : "ascending") : "none";
    });
    this.fill(visible);
    this.pager.hidden = pages === 1;
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page === pages - 1;
    setText(this.note, `${count(first + 1)}–${count(first + visible.length)} of ${count(this.rows.length)}`);
  }

  fill(visible) {
    const before = this.shown;
    this.shown = new Map();
    let place = this.body.firstChild;
    for (const row of visible) {
      const key = this.keyOf(row);
      const line = before.get(key) ?? this.line();
      before.delete(key);
      this.shown.set(key, line);
      this.update(line, row);
      if (line === place) place = place.nextSibling;
      else this.body.insertBefore(line, place);
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
    if (visible.length === 0) {
      this.body.append(element("tr", {}, element("td", {colSpan: this.columns.length, class: "quiet"}, this.empty)));
    }
  }

  line() {
    return element("tr", {}, this.columns.map(({number, wide}, index) => element(index === 0 ? "th" : "td",
      {scope: index === 0 ? "row" : null, class: number ? "number" : wide ? "wide" : null})));
  }

  update(line, row) {
    const name = this.classOf?.(row) ?? "";
    if (line.className !== name) line.className = name;
    this.columns.forEach((column, index) => {
      const cell = line.children[index];
      if (!column.node) {
        setText(cell, column.text(row));
        return;
      }
      const text = column.text ? column.text(row) : null;
      if (text !== null && cell.shownText === text) return;
      cell.shownText = text;
      cell.replaceChildren(column.node(row));
    });
  }
}

function compare([a, rowA], [b, rowB]) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return a < b ? -1 : 1;
}
