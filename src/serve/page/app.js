// The page: which chain and which view, the health sentence, the theme. The hash holds all that a shared link needs.
import {Api} from "./api.js";
import {ChainView} from "./chain.js";
import {clock, count, duration, element, isNumber, nameOf, setText, stopClock} from "./dom.js";
import {EventsView} from "./events.js";
import {FleetView} from "./fleet.js";
import {LayersView} from "./layers.js";
import {Live} from "./live.js";
import {forgetPalette} from "./plot.js";
import {sinceText} from "./states.js";
import {VersionView} from "./version.js";

const kViews = {fleet: FleetView, chain: ChainView, layers: LayersView, version: VersionView, events: EventsView};
const kTones = {ok: "good", warning: "warn", error: "bad"};
const kNames = 8;
const find = (selector) => document.querySelector(selector);

class Page {
  constructor() {
    this.api = new Api((again) => askForToken(again));
    this.nav = new Map(Object.entries(kViews).map(([key, {title}]) => {
      const tally = element("span", {class: "tally"});
      return [key, {tally, link: element("a", {href: `#${key}`}, title, " ", tally)}];
    }));
    find("nav").append(...[...this.nav.values()].map(({link}) => link));
    addEventListener("hashchange", () => this.route());
    setInterval(() => this.changed("tick"), 1000);
    this.start();
  }

  async start() {
    for (;;) {
      try {
        const answer = await this.api.get("chains");
        this.chains = answer.chains;
        break;
      } catch (error) {
        setText(find("#link"), "not connected");
        find("#link").dataset.state = "lost";
        setHealth("bad", [element("p", {}, `The server does not answer: ${error.message}`), element("p", {}, "The page tries again every two seconds.")]);
        await new Promise((resolve) => setTimeout(resolve, 2000));
      }
    }
    this.chooseChains();
    this.route();
  }

  // Where the store holds another run now, nothing of the one before stays on the page.
  checkRun(health) {
    const run = health?.run;
    if (!run || run === this.chain.run) return;
    const replaced = Boolean(this.chain.run);
    this.chain.run = run;
    this.drawStore();
    if (!replaced) return;
    const {chain} = this.parameters;
    this.parameters = {};
    this.setParameters({chain});
    this.follow(this.chain);
    this.route();
  }

  drawStore() {
    const {store, run} = this.chain;
    find("#store").replaceChildren(nameOf(store), run ? ` · run ${run.slice(0, 8)}` : "");
  }

  chooseChains() {
    const select = find("#chains select");
    select.append(...this.chains.map(({id, store}) => element("option", {value: id}, store.slice(0, 200))));
    select.onchange = () => (location.hash = `fleet?${new URLSearchParams({chain: select.value})}`);
    find("#chains").hidden = this.chains.length < 2;
  }

  // "#chain?from=3&to=9": a view and its parameters.
  route() {
    if (!this.chains) return;
    const [key, query] = location.hash.slice(1).split("?");
    this.key = Object.hasOwn(kViews, key) ? key : "fleet";
    this.parameters = Object.fromEntries(new URLSearchParams(query));
    const chain = this.chains.find(({id}) => id === this.parameters.chain) ?? this.chains[0];
    if (this.chain !== chain) this.follow(chain);
    for (const [each, {link}] of this.nav) {
      link.ariaCurrent = each === this.key ? "page" : null;
      link.href = `#${each}${this.chains.length > 1 ? `?chain=${chain.id}` : ""}`;
    }
    const heading = element("h2", {tabIndex: -1}, kViews[this.key].title);
    const moved = Boolean(this.view);
    this.view = null;
    this.view = new kViews[this.key](this);
    find("#main").replaceChildren(element("section", {}, element("header", {}, heading), this.view.node));
    document.title = `${kViews[this.key].title} – deltawire`;
    if (moved) heading.focus();
    this.view.update?.(kViews[this.key].topics[0]);
  }

  follow(chain) {
    this.live?.stop();
    this.chain = chain;
    find("#chains select").value = chain.id;
    this.drawStore();
    this.live = new Live(this.api, chain.id, (topic) => this.changed(topic));
  }

  go(key, parameters) {
    location.hash = this.link(key, parameters);
  }

  link(key, parameters) {
    const chain = this.chains.length > 1 ? {chain: this.chain.id} : {};
    return `#${key}?${new URLSearchParams({...parameters, ...chain})}`;
  }

  // Keeps the hash in step with the view, without a new entry in the history.
  setParameters(parameters) {
    Object.assign(this.parameters, parameters);
    const given = Object.entries(this.parameters).filter(([, value]) => value !== null && value !== undefined);
    const query = new URLSearchParams(given).toString();
    history.replaceState(null, "", `#${this.key}${query ? `?${query}` : ""}`);
  }

  changed(topic) {
    if (!this.live) return;
    if (topic === "health") this.checkRun(this.live.health);
    if (["link", "health", "tick"].includes(topic)) this.drawHealth();
    if (topic === "fleet") setText(this.nav.get("fleet").tally, count(this.live.replicas.size));
    if (this.view && kViews[this.key].topics.includes(topic)) this.view.update(topic);
  }

  drawHealth() {
    const {link, health} = this.live;
    stopClock(link.state === "lost" ? link.heard : null);
    find("#main").classList.toggle("stale", link.state === "lost");
    setText(find("#link"), {live: "live", polling: "asking every 5 s", lost: "not connected"}[link.state] ?? "connecting");
    find("#link").dataset.state = link.state;
    if (link.state === "lost") {
      setHealth("bad stale", [element("p", {}, `The server has not answered${isNumber(link.heard) ? ` since ${clock(link.heard)}` : ""}; ` +
        "what is shown is from then."), element("p", {}, `${link.error}. The page tries again by itself.`),
      health ? element("p", {}, "Then: ", nameOf(health.text)) : null]);
      return;
    }
    if (!health) return;
    const problems = health.problems ?? [];
    const reading = health.loading && health.loading.done < health.loading.total
      ? `Reading the chain: ${count(health.loading.done)} of ${count(health.loading.total)} versions.` : null;
    setHealth(kTones[health.state] ?? "", [element("p", {}, nameOf(health.text || "The server is reading the chain.")),
      health.advice ? element("p", {}, nameOf(health.advice), detailsOf(problems[0])) : null,
      problems.length > 1 ? element("ul", {}, problems.slice(1).map((problem) => element("li", {}, nameOf(problem.text), ".",
        detailsOf(problem), " ", nameOf(problem.advice)))) : null,
      element("p", {class: "quiet"}, factsOf(health)), reading ? element("p", {class: "quiet"}, reading) : null]);
  }
}

// Since when, and which replicas where they are several.
function detailsOf({since, replicas = [], num_replicas: number} = {}) {
  const names = replicas.slice(0, kNames).flatMap((name, at) => [at > 0 ? ", " : " Replicas: ", nameOf(name)]);
  return [isNumber(since) ? ` Since ${sinceText(since)}.` : "",
    ...(number > 1 ? [...names, number > kNames ? ` and ${count(number - kNames)} more.` : "."] : [])];
}

const factsOf = (health) => [
  isNumber(health.head) ? `Newest version ${count(health.head)}, published ${clock(health.head_created)}` : "Nothing was published yet",
  health.publish_interval > 0 ? `one every ${duration(health.publish_interval)}` : null,
  isNumber(health.catch_up_seconds) ? `all replicas had it ${duration(health.catch_up_seconds)} later` : null,
].filter(Boolean).join(" · ");

function setHealth(tone, children) {
  const panel = find("#health");
  const made = element("div", {}, children);
  panel.className = tone;
  if (panel.textContent !== made.textContent) panel.replaceChildren(...made.childNodes);
  // A screen reader hears what is new, not each number that counts up.
  const sentence = panel.firstElementChild.textContent;
  const same = (text) => text.replace(/[\d.,:]+/g, "");
  if (same(find("#said").textContent) !== same(sentence)) setText(find("#said"), sentence);
}

function askForToken(again) {
  const dialog = find("#ask");
  const [form, input] = [dialog.querySelector("form"), dialog.querySelector("input")];
  setText(find("#ask-error"), again ? "The server did not accept this token." : "");
  input.value = "";
  dialog.oncancel = (event) => event.preventDefault();
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      dialog.close();
      resolve(input.value.trim());
    };
  });
}

function followTheme(page) {
  const button = find("#theme");
  const themes = ["system", "light", "dark"];
  let theme = localStorage.getItem("deltawire-theme") ?? "system";
  const apply = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    setText(button, `Theme: ${theme}`);
    forgetPalette();
    page.changed("theme");
  };
  button.onclick = () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    localStorage.setItem("deltawire-theme", theme);
    apply();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  apply();
}

followTheme(new Page());
