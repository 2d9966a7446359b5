// The JSON API: questions, and the stream of what happens. docs/api.md describes it.

const kTimeoutMs = 20000;
const kSilenceMs = 40000; // the server writes at least a comment every 15 seconds

// Makes a function that runs one call at a time: calls meanwhile are one more call afterwards.
export function oneAtATime(run) {
  let [running, wanted] = [false, false];
  return async () => {
    wanted = true;
    if (running) return;
    running = true;
    try {
      while (wanted) {
        wanted = false;
        await run();
      }
    } finally {
      running = false;
    }
  };
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export class Api {
  // askForToken(again) resolves with a token; it is called once however many requests wait for it.
  constructor(askForToken) {
    this.askForToken = askForToken;
    this.token = sessionStorage.getItem("deltawire-token");
    this.asking = null;
  }

  async request(path, signal) {
    for (;;) {
      const used = this.token;
      const headers = used ? {Authorization: `Bearer ${used}`} : {};
      const response = await fetch(`api/v1/${path}`, {headers, signal, cache: "no-store"}).catch((error) => {
        throw error instanceof TypeError ? new Error("No connection") : error; // browsers word it differently
      });
      if (response.status === 401) {
        if (used === this.token) await this.newToken(used !== null);
        signal?.throwIfAborted();
        continue;
      }
      if (response.ok) return response;
      const body = await response.json().catch(() => null);
      throw new ApiError(response.status, body?.error ?? `the server answered with status ${response.status}`);
    }
  }

  newToken(again) {
    this.asking ??= this.askForToken(again).then((token) => {
      this.token = token;
      sessionStorage.setItem("deltawire-token", token);
      this.asking = null;
    });
    return this.asking;
  }

  async get(path, parameters = {}) {
    const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
    const query = new URLSearchParams(given).toString();
    const stop = new AbortController();
    const timer = setTimeout(() => this.asking || stop.abort(), kTimeoutMs);
    try {
      return await (await this.request(query ? `${path}?${query}` : path, stop.signal)).json();
    } finally {
      clearTimeout(timer);
    }
  }

  // Calls handle(event, data) for each message until the connection ends; then it throws.
  async stream(path, handle) {
    const stop = new AbortController();
    this.endStream = () => stop.abort();
    const response = await this.request(path, stop.signal);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let timer = 0;
    let text = "";
    try {
      for (;;) {
        clearTimeout(timer);
        timer = setTimeout(() => stop.abort(), kSilenceMs);
        const {value, done} = await reader.read();
        if (done) throw new Error("the server closed the connection");
        const messages = (text + value).replaceAll("\r\n", "\n").split("\n\n");
        text = messages.pop();
        for (const message of messages) this.deliver(message, handle);
      }
    } finally {
      clearTimeout(timer);
      stop.abort();
    }
  }

  deliver(message, handle) {
    let event = "message";
    const data = [];
    for (const line of message.split("\n")) {
      const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
      if (field === "event") event = value;
      if (field === "data") data.push(value);
    }
    if (data.length > 0) handle(event, JSON.parse(data.join("\n")));
  }
}
