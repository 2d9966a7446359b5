// What states of replicas mean: the colour, and the reason in words.
import {age, clock, count, isNumber} from "./dom.js";

// The worst first: the order in which the fleet is sorted.
export const kStates = {
  failed: {tone: "bad", label: "failed"},
  other: {tone: "bad", label: "other chain"},
  unreadable: {tone: "bad", label: "unreadable"},
  behind: {tone: "warn", label: "behind"},
  fetching: {tone: "warn", label: "fetching"},
  engine_behind: {tone: "warn", label: "engine behind"},
  current: {tone: "good", label: "current"},
  gone: {tone: "gone", label: "gone"},
};
const kOrder = Object.keys(kStates);
export const stateOf = (row) => kStates[row.state] ?? {tone: "", label: String(row.state)};

export function severity(row) {
  const place = kOrder.indexOf(row.state);
  return (place < 0 ? kOrder.length : place) * 1e12 - (row.lag_versions ?? 0);
}

// Does its engine serve something else than what it holds?
export const engineDiffers = (row) =>
  isNumber(row.serving) && isNumber(row.version) && (row.serving !== row.version || row.serving_run !== row.run);

// Why a replica is as it is; "" where there is nothing to say.
export function reasonOf(row) {
  const said = [];
  if (row.state === "gone") said.push(`no heartbeat since ${clock(row.seen)}: its process ended or cannot write to the store`);
  if (row.state === "other" && row.proof === "differs") {
    said.push(`holds version ${count(row.version)} of another run or history (run ${String(row.run).slice(0, 8)})`);
  }
  if (row.state === "other" && row.proof !== "differs") said.push("holds a version that the chain does not have");
  if (row.state === "fetching") said.push(`began to fetch version ${count(row.fetching)} at ${clock(row.seen)}; no heartbeat since: slow, or stopped`);
  // It writes a heartbeat as soon as it begins to fetch.
  if (row.state === "behind") {
    said.push(row.seen <= row.behind_since ? `no heartbeat since ${clock(row.seen)}: its process was stopped, or does not reach the store`
      : "has not fetched newer versions, and reports no error");
  }
  if (row.error) said.push(`${row.state === "unreadable" ? "" : "last pull failed: "}${row.error}`);
  if (!["gone", "other"].includes(row.state) && engineDiffers(row)) {
    said.push(`its engine still serves version ${count(row.serving)}${row.serving_run === row.run ? "" : " of another run"}`);
  }
  if (row.restarts > 0) said.push(`restarted ${row.restarts === 1 ? "once" : `${count(row.restarts)} times`} while this server watched`);
  return said.join("; ");
}

// Since when: behind since the first version that it lacks was published, gone since its last heartbeat.
export function sinceOf(row) {
  if (row.state === "gone") return row.seen;
  return row.behind_since ?? (row.state === "current" ? null : row.state_since ?? null);
}
export const sinceText = (time) => (isNumber(time) ? `${clock(time)} (${age(time)})` : "–");
