// What is known of one chain, kept up to date: by the server's stream, and by asking while there is none.
import {setServerTime} from "./dom.js";

export const kEventsKept = 2000; // as the server
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Live {
  // changed(topic): "link", "health", "fleet", "head" or "events" is different now.
  constructor(api, chain, changed) {
    Object.assign(this, {api, chain, changed});
    this.path = `chains/${encodeURIComponent(chain)}`;
    this.link = {state: "connecting", heard: null, error: null};
    this.health = this.head = this.first = this.loading = this.revision = null;
    this.replicas = new Map();
    this.events = [];
    this.lastEvent = 0;
    this.stopped = false;
    this.updatingFleet = null;
    this.run();
  }

  stop() {
    this.stopped = true;
    this.api.endStream?.();
  }

  async run() {
    let wait = 1000;
    while (!this.stopped) {
      try {
        await this.api.stream(`${this.path}/stream?since=${this.lastEvent}`, (event, data) => {
          wait = 1000;
          this.heard(event, data);
        });
      } catch (error) {
        if (this.stopped) return;
        await this.poll(error);
      }
      await sleep(wait);
      wait = Math.min(wait * 1.5, 5000);
    }
  }

  async poll() {
    try {
      await this.refresh();
      this.setLink("polling", null);
    } catch (error) {
      this.setLink("lost", error.message);
    }
  }

  setLink(state, error) {
    if (this.stopped) return;
    this.link = {state, error, heard: state === "lost" ? this.link.heard : Date.now() / 1000};
    this.changed("link");
  }

  async refresh() {
    const asked = this.api.get(`${this.path}/events`, {since: this.lastEvent || null, limit: 1000});
    const [events] = await Promise.all([asked, this.updateFleet()]);
    // A server that was replaced may count from the beginning again.
    if (events.last < this.lastEvent) this.lastEvent = 0;
    this.addEvents(events.events);
  }

  heard(event, data) {
    if (this.stopped) return;
    if (event === "hello") {
      setServerTime(data.time);
      this.revision = null; // it may be another server by now
      this.setHead(data.head, undefined);
      this.refresh().then(() => this.setLink("live", null), (error) => this.setLink("lost", error.message));
      return;
    }
    this.link.heard = Date.now() / 1000;
    if (event === "health") this.setHealth(data);
    if (event === "fleet") this.updateFleet().catch(() => {});
    if (event === "head") this.setHead(data.head, data.first);
    if (event === "event") this.addEvents([data]);
    if (event === "loading") this.setLoading(data);
  }

  setHealth(health) {
    if (this.health && health.time < this.health.time) return; // an answer that the stream has overtaken
    setServerTime(health.time);
    this.health = health;
    if (health.loading) this.setLoading(health.loading);
    this.setHead(health.head, undefined);
    this.changed("health");
  }

  setLoading(loading) {
    const before = this.loading;
    this.loading = loading;
    if (before?.done === loading.done && before.total === loading.total) return;
    if (this.health) this.health.loading = loading;
    this.changed("health");
    this.changed("head");
  }

  setHead(head, first) {
    if (head === this.head && (first === undefined || first === this.first)) return;
    this.head = head;
    if (first !== undefined) this.first = first;
    this.changed("head");
  }

  addEvents(events) {
    const fresh = events.filter(({id}) => id > this.lastEvent);
    if (fresh.length === 0) return;
    this.events = [...this.events, ...fresh].slice(-kEventsKept);
    this.lastEvent = fresh.at(-1).id;
    this.changed("events");
  }

  // At most one question at a time, and one a second, however many heartbeats there are.
  updateFleet() {
    if (this.updatingFleet) {
      this.fleetIsOld = true;
      return this.updatingFleet;
    }
    this.fleetIsOld = false;
    this.updatingFleet = this.askFleet();
    const next = () => {
      this.updatingFleet = null;
      if (this.fleetIsOld && !this.stopped) this.updateFleet().catch(() => {});
    };
    this.updatingFleet.finally(() => setTimeout(next, 1000)).catch(() => {});
    return this.updatingFleet;
  }

  async askFleet() {
    const [answer, health] = await Promise.all([
      this.api.get(`${this.path}/fleet`, {since: this.revision}), this.api.get(`${this.path}/health`),
    ]);
    if (answer.complete) this.replicas.clear();
    for (const id of answer.removed ?? []) this.replicas.delete(id);
    for (const replica of answer.replicas) this.replicas.set(replica.id, replica);
    this.revision = answer.revision;
    setServerTime(answer.time);
    this.counts = answer.counts;
    this.changed("fleet");
    this.setHealth(health); // times in it change with the rows, and the stream does not tell of those alone
  }
}
